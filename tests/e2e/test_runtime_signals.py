# SPDX-License-Identifier: BSD-2-Clause
"""Stopping and reloading: what ends, what goes on, what is kept."""

import os
import re
import signal
import socket
import threading
import time

import pytest
from conftest import HEADGATED, SLOW, ScriptedServer, Syslog, connect, keepalive_server, raw, read_head, read_response, \
    recv_all, reply, run_cli, wait_for

CFG = """
global
    nbthread 2
    stats socket {sock} level admin
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
listen web
    bind 127.0.0.1:8000
    server s1 127.0.0.1:9001
"""
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_stop_at_once(one, daemon, sig):
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: recv_all(c))
    d = daemon(one, CFG)
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(GET)
        wait_for("the stream", lambda: d.stat("web", "s1")["scur"] == "1")
        pid = d.proc.pid
        t = time.monotonic()
        rc = d.stop(sig)
        assert rc in (0, -sig), rc
        assert time.monotonic() - t < 8 * SLOW
        assert recv_all(c) in (b"", b"<RESET>")
    assert not os.path.exists(f"/proc/{pid}")
    assert not d.sock.exists()


def test_soft_stop_finishes_requests(one, daemon):
    free = threading.Event()
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: read_head(c) and (free.wait(10), c.sendall(reply(b"last"))))
    d = daemon(one, CFG)
    busy = connect(one, "127.0.0.1", 8000)
    busy.sendall(GET)
    idle = connect(one, "127.0.0.1", 8000)
    wait_for("the stream", lambda: d.stat("web", "s1")["scur"] == "1")
    d.signal(signal.SIGUSR1)
    wait_for("no listener", lambda: ":8000" not in one.run("ss -ltn").stdout)
    with pytest.raises(ConnectionRefusedError):
        connect(one, "127.0.0.1", 8000)
    assert d.proc.poll() is None
    free.set()
    status, headers, body = read_response(busy)
    assert (status, body) == (200, b"last")
    d.proc.wait(10 * SLOW)
    assert d.proc.returncode == 0
    busy.close()
    idle.close()


def test_hard_stop_after(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: recv_all(c))
    d = daemon(one, CFG.replace("nbthread 2", "nbthread 2\n    hard-stop-after 500ms"))
    c = connect(one, "127.0.0.1", 8000)
    c.sendall(GET)
    wait_for("the stream", lambda: d.stat("web", "s1")["scur"] == "1")
    t = time.monotonic()
    d.signal(signal.SIGUSR1)
    d.proc.wait(10 * SLOW)
    assert 0.4 < time.monotonic() - t < 8 * SLOW
    c.close()


def test_hard_stop_after_a_reload(one, daemon):
    """What a reload leaves behind ends in that time, an unfinished head too; what began after it, and idle clients, go on."""
    free, log = threading.Event(), Syslog(one)
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: read_head(c) and (free.wait(20), c.sendall(reply(b"late"))))
    ScriptedServer(one, "127.0.0.1", 9002, keepalive_server(b"quick"))
    text = CFG.replace("global\n", "global\n    log 127.0.0.1:5140 local0\n    hard-stop-after 1s\n").replace(
        "mode http\n", "mode http\n    log global\n    option httplog\n") + "listen other\n    bind 127.0.0.1:8001\n    server s 127.0.0.1:9002\n"
    d = daemon(one, text)
    old, idle, half = (connect(one, "127.0.0.1", p, 20) for p in (8000, 8001, 8000))
    old.sendall(GET)
    half.sendall(GET[:20])
    idle.sendall(GET)
    assert read_response(idle)[2] == b"quick"
    wait_for("the stream", lambda: d.stat("web", "s1")["scur"] == "1")
    began = time.monotonic()
    assert "Success=1" in d.cli("reload")
    new = connect(one, "127.0.0.1", 8000, 20)
    new.sendall(GET)
    wait_for("the new stream", lambda: d.stat("web", "s1")["scur"] == "2")
    assert recv_all(old) in (b"", b"<RESET>") and recv_all(half) in (b"", b"<RESET>")
    assert time.monotonic() - began > 0.9
    log.wait(r' web web/s1 .* KH-- .*"GET / HTTP/1.1"')
    assert "ending what is left of configuration 1" in d.output()
    wait_for("the old configuration to be freed", lambda: len(re.findall(r"^\s*\d+", d.cli("show snapshots"), re.M)) == 1)
    idle.sendall(GET)
    assert read_response(idle)[2] == b"quick"
    free.set()
    assert read_response(new)[2] == b"late"
    for c in (old, half, idle, new):
        c.close()
    log.close()


@pytest.mark.parametrize("how", ["SIGHUP", "SIGUSR2", "cli"])
def test_reload_keeps_connections_and_counters(one, daemon, how):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"old"))
    ScriptedServer(one, "127.0.0.1", 9002, keepalive_server(b"new"))
    free = threading.Event()
    ScriptedServer(one, "127.0.0.1", 9003, lambda s, c, n: read_head(c) and (free.wait(10), c.sendall(reply(b"slow"))))
    text = CFG + "    server s2 127.0.0.1:9001 weight 7\nlisten slow\n    bind 127.0.0.1:8003\n    server s 127.0.0.1:9003\n"
    d = daemon(one, text)
    d.cli("set server web/s2 state maint")
    keep = connect(one, "127.0.0.1", 8000)
    keep.sendall(GET)
    assert read_response(keep)[2] == b"old"
    slow = connect(one, "127.0.0.1", 8003)
    slow.sendall(GET)
    wait_for("the stream", lambda: d.stat("slow", "s")["scur"] == "1")
    pid = next(x for x in d.cli("show info").splitlines() if x.startswith("Pid:"))
    d.write(text.replace("server s1 127.0.0.1:9001", "server s1 127.0.0.1:9002")
            + "listen more\n    bind 127.0.0.1:8004\n    server s1 127.0.0.1:9002\n")
    if how == "cli":
        assert "Success=1" in d.cli("reload") or "rror" not in d.cli("show startup-logs")
    else:
        d.signal(getattr(signal, how))
    wait_for("the new section", lambda: "more,FRONTEND" in d.cli("show stat"))
    assert pid in d.cli("show info")
    keep.sendall(GET)  # the connection lives on and uses the new configuration
    assert read_response(keep)[2] == b"new"
    assert raw(one, "127.0.0.1", 8004, LAST).endswith(b"new")
    free.set()
    assert read_response(slow)[2] == b"slow"
    row = d.stat("web", "FRONTEND")
    assert (row["req_tot"], row["stot"]) == ("2", "1")
    assert d.stat("web", "s1")["hrsp_2xx"] == "2"
    assert d.stat("web", "s2")["status"] == "MAINT"  # server state survives by name
    keep.close()
    slow.close()
    wait_for("the old configuration to be freed", lambda: len(re.findall(r"^\s*\d+", d.cli("show snapshots"), re.M)) <= 1)


def test_reload_under_load_loses_nothing(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    d = daemon(one, CFG)
    errors, served, stop = [], [0], threading.Event()

    def client(fresh):
        try:
            c = None
            while not stop.is_set():
                if fresh or c is None:
                    if c:
                        c.close()
                    c = connect(one, "127.0.0.1", 8000)
                c.sendall(GET)
                status, headers, body = read_response(c)
                if status != 200:
                    errors.append(status)
                if headers.get("connection", "").lower() == "close":
                    c.close()
                    c = None
                served[0] += 1
            if c:
                c.close()
        except (OSError, EOFError) as e:
            errors.append(repr(e))

    threads = [threading.Thread(target=client, args=(i % 2 == 0,)) for i in range(6)]
    for t in threads:
        t.start()
    for i in range(6):
        d.write(CFG + (f"listen extra{i}\n    bind 127.0.0.1:{8100 + i}\n" if i % 2 else ""))
        d.cli("reload")
        time.sleep(0.15)
    stop.set()
    for t in threads:
        t.join()
    assert errors == []
    assert served[0] > 50


@pytest.mark.parametrize("bad", [
    CFG + "    nonsense\n",
    CFG.replace("bind 127.0.0.1:8000", "bind 127.0.0.1:8000 ssl crt /nonexistent.pem"),
    CFG + "listen more\n    bind 192.0.2.99:8009\n    server s 127.0.0.1:1\n",
    CFG + "listen more\n    bind 127.0.0.1:9001\n    server s 127.0.0.1:1\n",
    "",
], ids=["syntax", "certificate", "address", "port", "empty"])
def test_bad_reload_changes_nothing(one, daemon, bad):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    d = daemon(one, CFG)
    keep = connect(one, "127.0.0.1", 8000)
    keep.sendall(GET)
    read_response(keep)
    before = d.cli("show servers state")
    d.write(bad)
    out = d.cli("reload")
    assert "Success=0" in out or re.search(r"rror|ALERT", out), out
    keep.sendall(GET)
    assert read_response(keep)[2] == b"ok"
    assert raw(one, "127.0.0.1", 8000, LAST).endswith(b"ok")
    row = d.stat("web", "FRONTEND")
    assert row["req_tot"] == "3"
    strip = lambda s: [x.split()[:9] + x.split()[10:] for x in s.splitlines()[2:]]  # noqa: E731
    assert strip(d.cli("show servers state")) == strip(before)
    assert "more" not in d.cli("show stat")
    d.write(CFG.replace("nbthread 2", "nbthread 2\n    node again"))
    assert "Success=0" not in d.cli("reload")
    assert "node: again" in d.cli("show info")
    keep.close()


def test_reload_moves_and_removes_listeners(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    d = daemon(one, CFG)
    keep = connect(one, "127.0.0.1", 8000)
    keep.sendall(GET)
    read_response(keep)
    d.write(CFG.replace("127.0.0.1:8000", "127.0.0.1:8010"))
    d.cli("reload")
    wait_for("the old port to be closed", lambda: "127.0.0.1:8000 " not in one.run("ss -ltn").stdout)
    assert raw(one, "127.0.0.1", 8010, LAST).endswith(b"ok")
    keep.close()


def test_many_reloads_leak_nothing(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    d = daemon(one, CFG)
    pid = int(re.search(r"^Pid: (\d+)", d.cli("show info"), re.M)[1])
    fds = lambda: len(os.listdir(f"/proc/{pid}/fd"))  # noqa: E731
    for _ in range(5):
        d.cli("reload")
    raw(one, "127.0.0.1", 8000, LAST)
    time.sleep(0.2)
    before = fds()
    for _ in range(20):
        d.cli("reload")
    raw(one, "127.0.0.1", 8000, LAST)
    wait_for("descriptors to be what they were", lambda: fds() <= before + 1, timeout=5 * SLOW)


def test_sighup_logs_the_failure(one, daemon):
    log = Syslog(one)
    d = daemon(one, CFG.replace("global\n", "global\n    log 127.0.0.1:5140 local0\n"))
    d.write("nonsense\n")
    d.signal(signal.SIGHUP)
    wait_for("a message", lambda: any(re.search(r"reload|nonsense|config", x, re.I) for x in log.lines))
    assert d.proc.poll() is None
    assert "web" in d.cli("show stat")
    log.close()


def test_cli_tool(one, daemon):
    """headgate check, show, reload."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    d = daemon(one, CFG)
    assert run_cli(one, "check", d.cfg).returncode == 0
    bad = one.lab.dir / "bad.cfg"
    bad.write_text("nonsense\n")
    done = run_cli(one, "check", bad, check=False)
    assert done.returncode == 1 and "nonsense" in done.stderr + done.stdout
    out = run_cli(one, "-s", d.sock, "show", "info", check=False)
    out = out if out.returncode == 0 else run_cli(one, "--socket", d.sock, "show", "info", check=False)
    assert out.returncode == 0 and "HAProxy" in out.stdout, out.stderr


def test_seamless_with_a_stalled_peer(one, daemon):
    """kill -9: the port is free at once for the next process, clients see a reset or an end."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    d = daemon(one, CFG)
    c = connect(one, "127.0.0.1", 8000)
    c.sendall(GET)
    read_response(c)
    d.proc.kill()
    d.proc.wait()
    assert recv_all(c) in (b"", b"<RESET>")
    d.start()
    assert raw(one, "127.0.0.1", 8000, LAST).endswith(b"ok")
    c.close()
