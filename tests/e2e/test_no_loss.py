# SPDX-License-Identifier: BSD-2-Clause
"""Change under load, without loss: reloads, a worker process that is killed, a new process that takes over."""

import os
import re
import signal
import socket
import threading
import time

import pytest
from conftest import (HEADGATED, SLOW, ScriptedServer, connect, make_cert, read_head, read_response, reply,
                      start_nginx, wait_for)
from load import Clients, Reader, during, h2load, h2load_result

CFG = """
global
    stats socket {sock} level admin expose-fd listeners
    nbthread 2
    hard-stop-after 30s
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
listen web
    bind 127.0.0.1:8000
    bind 127.0.0.1:8002 proto h2
    bind 127.0.0.1:8443 ssl crt {dir}/site.pem alpn h2,http/1.1
    server s1 127.0.0.1:9001
    server s2 127.0.0.1:9002
"""
# name, port, TLS, requests per connection (0: as many as it gives), at once, pause
KINDS = [
    ("fresh", 8000, False, 1, 1, 0),
    ("kept", 8000, False, 0, 1, 0.001),
    ("idle", 8000, False, 0, 1, 0.13),
    ("pipelined", 8000, False, 0, 6, 0.002),
    ("tls-fresh", 8443, True, 1, 1, 0.01),
    ("tls-idle", 8443, True, 0, 1, 0.07),
    ("tls-pipelined", 8443, True, 0, 4, 0.002),
]


@pytest.fixture
def web(one):
    make_cert(one.lab.dir / "site.pem", ["a", "127.0.0.1"])
    start_nginx(one, ["127.0.0.1:9001", "127.0.0.1:9002"])
    return one


def worker_of(d):
    return int(re.search(r"^Pid: (\d+)$", d.cli("show info"), re.M).group(1))


def test_ten_reloads_a_second_under_load(web, daemon):
    """HG_RELOAD_SECONDS=60 for a long run. Not one request fails, not one connection is closed under a request."""
    seconds = float(os.environ.get("HG_RELOAD_SECONDS", "8"))
    d = daemon(web, CFG)
    loads = [(url, h2load(web, url, int(seconds) + 1)) for url in ("http://127.0.0.1:8002/", "https://127.0.0.1:8443/")]
    loads.append(("http://127.0.0.1:8000/", h2load(web, "http://127.0.0.1:8000/", int(seconds) + 1, extra=("--h1",))))
    clients = Clients(web, KINDS)
    refused = []

    def reload(i):
        d.write(CFG + (f"    http-response set-header x-generation {i}\n"
                       + (f"listen extra{i % 7}\n    bind 127.0.0.1:{8100 + i % 7}\n" if i % 2 else "")))
        out = d.cli("reload")
        if "Success=1" not in out:
            refused.append(out)

    n = during(seconds, 0.1, reload)
    clients.stop()
    # Short requests, short pauses: nothing holds four generations for long.
    assert not refused, refused[:2]
    assert n >= max(5, seconds / SLOW), f"{n} reloads only: nothing was tested"
    assert not clients.failures, (len(clients.failures), clients.failures[:5])
    assert all(clients.done[k[0]] >= 10 for k in KINDS), clients.done
    for url, proc in loads:
        done, bad, text = h2load_result(web, proc, url, ("--h1",) if url.endswith("8000/") else ())
        assert done > 100 and bad == 0, text
    assert f"generation {n + 1}" in d.output()


def test_a_pipelined_request_crosses_a_reload(one, daemon):
    """The second request is in the buffer while the first is answered and the configuration changes."""
    free = threading.Event()

    def handle(server, c, n):
        while head := read_head(c):
            for one_head in head.split(b"\r\n\r\n")[:-1]:
                if b"/slow" in one_head:
                    free.wait(20)
                c.sendall(reply(one_head.split()[1]))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    text = """
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
listen web
    bind 127.0.0.1:8000
    http-response set-header x-generation one
    server s1 127.0.0.1:9001
"""
    d = daemon(one, text)
    with connect(one, "127.0.0.1", 8000, 20) as c:
        c.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for("the stream", lambda: d.stat("web", "s1")["scur"] == "1")
        d.write(text.replace("x-generation one", "x-generation two"))
        assert "Success=1" in d.cli("reload")
        assert len(re.findall(r"^\s*\d+", d.cli("show snapshots"), re.M)) == 2
        free.set()
        reader = Reader(c)
        heads = []
        while len(heads) < 2:
            while b"\r\n\r\n" not in reader.buf:
                more = c.recv(65536)
                assert more, f"closed after {heads}"
                reader.buf += more
            heads.append(reader.buf.partition(b"\r\n\r\n")[0])
            assert reader.response() == (200, False)
        # Each with the configuration it began with.
        assert b"x-generation: one" in heads[0] and b"x-generation: two" in heads[1], heads
        wait_for("the old configuration to be freed",
                 lambda: len(re.findall(r"^\s*\d+", d.cli("show snapshots"), re.M)) == 1)
        # And the address is gone: what is pipelined has nobody to serve it.
        free.clear()
        c.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for("the stream", lambda: d.stat("web", "s1")["scur"] == "1")
        d.write(text.replace("127.0.0.1:8000", "127.0.0.1:8001"))
        assert "Success=1" in d.cli("reload")
        free.set()
        assert read_response(c)[0] == 200
        try:
            assert c.recv(100) == b""
        except ConnectionResetError:
            pass


def test_a_generation_too_many_is_refused(one, daemon):
    """64 configurations held by 64 slow requests: the reload says what holds them, and nothing changes."""
    free = threading.Event()
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: read_head(c) and (free.wait(60 * SLOW), c.sendall(reply(b"ok"))))
    text = "defaults\n    mode http\n    timeout client 300s\n    timeout server 300s\n    timeout connect 5s\n" \
           "listen web\n    bind 127.0.0.1:8000\n    server s1 127.0.0.1:9001\n"
    d = daemon(one, text)
    held = []
    for i in range(64):
        held.append(connect(one, "127.0.0.1", 8000, 60))
        held[-1].sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        wait_for("the stream", lambda: d.stat("web", "s1")["scur"] == str(i + 1))
        out = d.cli("reload")
        assert ("Success=1" in out) == (i < 63), out
    assert "64 configurations are still in use by old connections" in out and "show snapshots" in out
    free.set()
    assert [read_response(c)[0] for c in held] == [200] * 64
    wait_for("room again", lambda: "Success=1" in d.cli("reload"))
    for c in held:
        c.close()


def test_a_killed_worker_costs_the_requests_in_flight_only(web, daemon):
    """kill -9 under load, three times: connections break once each, and not one is refused."""
    d = daemon(web, CFG, args=["-W"])
    kinds = [("fresh", 8000, False, 1, 1, 0), ("fresh2", 8000, False, 1, 1, 0.003), ("kept", 8000, False, 0, 1, 0.001),
             ("tls", 8443, True, 1, 1, 0.005), ("idle", 8000, False, 0, 1, 0.1)]
    clients = Clients(web, kinds)
    clients.until(20)
    for _ in range(3):
        first = worker_of(d)
        time.sleep(1.5)  # a worker that has lived
        os.kill(first, signal.SIGKILL)
        wait_for("another worker", lambda: d.cli("show info", check=False) and worker_of(d) != first, timeout=20 * SLOW)
        clients.until(20)
    clients.stop()
    refused = [f for f in clients.failures if "Refused" in str(f)]
    assert not refused, refused
    # One thread has one request in flight; connecting is never what fails, but for a handshake that had begun.
    assert len(clients.failures) <= 3 * len(kinds), clients.failures
    assert all(what != "connect" or name == "tls" for name, what, _ in clients.failures), clients.failures
    assert d.output().count("died of signal 9") == 3


UPGRADE = CFG.replace("    timeout connect", "    option idle-close-on-response\n    timeout connect")


def listeners(host):
    """Which sockets listen on port 8000: the kernel's numbers."""
    return sorted(re.findall(r" ino:(\d+)", host.run(["ss", "-ltneH", "sport", "=", ":8000"]).stdout))


@pytest.mark.parametrize("args", [[], ["-W"]], ids=["single", "master"])
def test_upgrade_under_load(web, daemon, args):
    """Three times a new process takes the sockets over, and the old one ends: no request fails, none is refused."""
    d = daemon(web, UPGRADE, args=args)
    clients = Clients(web, KINDS)
    clients.until(10)
    sockets = listeners(web)
    assert len(sockets) == 2
    for _ in range(3):
        old = d
        d = daemon(web, UPGRADE, args=[*args, "-x", str(old.sock), "-sf", str(old.proc.pid)])
        assert old.proc.wait(30 * SLOW) == 0
        old.proc = None
        clients.until(10)
        assert listeners(web) == sockets, "not the same sockets: connections that waited were lost"
    clients.stop()
    assert not clients.failures, (len(clients.failures), clients.failures[:5])
    assert worker_of(d) == d.proc.pid or args


def test_upgrade_that_fails_changes_nothing(web, daemon):
    """The new process cannot start: the old one goes on, with its sockets and its paths."""
    text = UPGRADE.replace("    bind 127.0.0.1:8002", "    bind {dir}/web.sock\n    bind 127.0.0.1:8002")
    d = daemon(web, text)
    clients = Clients(web, KINDS[:3])
    clients.until(10)
    other = web.lab.dir / "other.cfg"
    for broken, said in ((d.cfg.read_text() + "listen x\n    bind 192.0.2.77:8009\n", "no interface has this address"),
                         (d.cfg.read_text().replace("nbthread 2", "nbthread 1"), "set nbthread 2")):
        other.write_text(broken)
        out = web.run([HEADGATED, "-x", str(d.sock), "-sf", str(d.proc.pid), "-f", other], check=False)
        assert out.returncode == 1 and said in out.stderr, out.stderr
    out = web.run([HEADGATED, "-x", "/nonexistent.sock", "-f", d.cfg], check=False)
    assert out.returncode == 1 and "No such file" in out.stderr
    clients.until(10)
    clients.stop()
    assert not clients.failures, clients.failures[:5]
    assert (web.lab.dir / "web.sock").is_socket()
    assert "Success=1" in d.cli("reload")
    d.write(d.cfg.read_text().replace(" expose-fd listeners", ""))
    assert "Success=1" in d.cli("reload")
    out = web.run([HEADGATED, "-x", str(d.sock), "-sf", str(d.proc.pid), "-f", d.cfg], check=False)
    assert out.returncode == 1 and "expose-fd listeners" in out.stderr, out.stderr


def test_upgrade_takes_unix_paths_and_the_stats_socket(web, daemon):
    """Neither process removes what the other one serves; the last one removes what it has."""
    text = UPGRADE.replace("    bind 127.0.0.1:8002", "    bind {dir}/web.sock\n    bind 127.0.0.1:8002")
    path = web.lab.dir / "web.sock"

    def ask():
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(str(path))
            s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return read_response(s)[0]

    old = daemon(web, text)
    assert ask() == 200
    new = daemon(web, text, args=["-x", str(old.sock), "-sf", str(old.proc.pid)])
    assert old.proc.wait(30 * SLOW) == 0
    old.proc = None
    assert ask() == 200 and worker_of(new) == new.proc.pid
    assert new.stop() in (0, -15)
    assert not path.exists() and not new.sock.exists()


XDP = """
global
    stats socket {sock} level admin expose-fd listeners
    nbthread 1
    xdp interface lo
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
    option idle-close-on-response
listen web
    bind 127.0.0.1:8000
    server s1 127.0.0.1:9001
listen l4
    mode l4
    forward ipip
    bind 198.51.100.1:80
    server b1 198.51.100.2
"""


def program_of(host):
    return re.search(r"prog/xdp id (\d+)", host.run(["ip", "-d", "link", "show", "lo"]).stdout)[1]


def test_upgrade_of_a_process_that_owns_xdp(web, daemon):
    """The lock of the pins goes over, the same program stays attached, and the old process keeps its hands off."""
    old = daemon(web, XDP)
    before = program_of(web)
    refused = web.run([HEADGATED, "-sf", str(old.proc.pid), "-f", old.cfg], check=False)
    assert refused.returncode == 1 and "another Headgate process owns" in refused.stderr
    # A new process that fails after it had the lock: the old one is the owner again.
    other = web.lab.dir / "other.cfg"
    other.write_text(old.cfg.read_text() + "listen x\n    bind 192.0.2.77:8009\n")
    out = web.run([HEADGATED, "-x", str(old.sock), "-sf", str(old.proc.pid), "-f", other], check=False)
    assert out.returncode == 1 and "no interface has this address" in out.stderr
    wait_for("the old process to go on", lambda: "going on" in old.output())
    assert program_of(web) == before and "Success=1" in old.cli("reload")
    clients = Clients(web, KINDS[:3])
    clients.until(10)
    new = daemon(web, XDP, args=["-x", str(old.sock), "-sf", str(old.proc.pid)])
    assert old.proc.wait(30 * SLOW) == 0
    old.proc = None
    clients.until(10)
    clients.stop()
    assert not clients.failures, clients.failures[:5]
    assert program_of(web) == before
    # It owns the pins for good: nobody else gets them, and it changes the tables.
    refused = web.run([HEADGATED, "-sf", str(new.proc.pid), "-f", new.cfg], check=False)
    assert refused.returncode == 1 and "another Headgate process owns" in refused.stderr
    new.write(XDP.replace("server b1 198.51.100.2", "server b1 198.51.100.2\n    server b2 198.51.100.3"))
    assert "Success=1" in new.cli("reload")
    wait_for("the new server", lambda: "198.51.100.3" in new.cli("show backends"))


def test_upgrade_of_a_kernel_tier_alone(one, daemon):
    """No listening socket at all: the lock and the pins go over, packets never miss their program."""
    text = XDP[:XDP.index("listen web")] + XDP[XDP.index("listen l4"):]
    old = daemon(one, text)
    before = program_of(one)
    new = daemon(one, text, args=["-x", str(old.sock), "-sf", str(old.proc.pid)])
    assert old.proc.wait(30 * SLOW) == 0
    old.proc = None
    assert program_of(one) == before
    assert "198.51.100.2" in new.cli("show backends")
