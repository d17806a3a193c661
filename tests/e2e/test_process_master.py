# SPDX-License-Identifier: BSD-2-Clause
"""Processes: master and worker, restart without a refused connection, replacement of an old process."""

import os
import re
import signal
import threading
import time

from conftest import HEADGATED, ScriptedServer, connect, keepalive_server, read_response, wait_for

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
listen px
    bind 127.0.0.1:8000
    server s1 127.0.0.1:8080
"""


def get(host, port=8000, timeout=5):
    with connect(host, "127.0.0.1", port, timeout) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return read_response(s)[0]


def worker_of(d):
    return int(re.search(r"^Pid: (\d+)$", d.cli("show info"), re.M).group(1))


def master_of(d):
    """The daemon is a child of nsenter, or nsenter itself after exec."""
    return d.proc.pid


def test_a_killed_worker_is_replaced_and_no_connection_is_refused(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    d = daemon(one, CFG, args=["-W"])
    assert get(one) == 200
    first = worker_of(d)
    assert first != master_of(d)
    failures, counts, stop = [], [0], threading.Event()

    def load():
        while not stop.is_set():
            try:
                assert get(one, timeout=10) == 200
                counts[0] += 1
            except ConnectionRefusedError as e:
                failures.append(repr(e))
            except (OSError, EOFError):
                pass  # in flight when the worker died: lost, and allowed to be

    t = threading.Thread(target=load)
    t.start()
    wait_for("traffic", lambda: counts[0] > 10)
    time.sleep(1.2)
    os.kill(first, signal.SIGKILL)
    wait_for("another worker", lambda: d.cli("show info", check=False) and worker_of(d) != first, timeout=15)
    before = counts[0]
    wait_for("traffic again", lambda: counts[0] > before + 10)
    stop.set()
    t.join()
    backend.close()
    assert not failures, failures
    assert "died of signal 9" in d.output()


def test_signals_go_through_the_master(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    d = daemon(one, CFG, args=["-W"])
    worker = worker_of(d)
    d.signal(signal.SIGUSR2)
    wait_for("the reload", lambda: "configuration reloaded, generation 2" in d.output())
    assert worker_of(d) == worker
    d.signal(signal.SIGTERM)
    assert d.proc.wait(10) == 0
    wait_for("no worker left", lambda: not os.path.exists(f"/proc/{worker}"))
    backend.close()
    d.proc = None


def test_a_worker_that_cannot_start_ends_the_master(one, daemon):
    d = daemon(one, CFG.replace("{sock}", "/nonexistent/dir/sock"), start=False, args=["-W"])
    d.start(wait=False)
    assert d.proc.wait(10) == 1
    assert "cannot bind /nonexistent/dir/sock" in d.output()
    d.proc = None


def test_replacing_an_old_process(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    old = daemon(one, CFG)
    assert get(one) == 200
    second = one.run([HEADGATED, "-f", old.cfg], check=False)
    assert second.returncode == 1 and "address already in use" in second.stderr
    new = daemon(one, CFG, args=["-sf", str(old.proc.pid)])
    assert old.proc.wait(10) == 0
    assert get(one) == 200
    assert worker_of(new) == new.proc.pid
    backend.close()
    old.proc = None


def test_what_haproxy_knows_and_we_do_not(one):
    for args in (["-x", "/tmp/sock"], ["-S", "/tmp/sock"]):
        out = one.run([HEADGATED, *args, "-f", "/dev/null"], check=False)
        assert out.returncode == 1 and "not supported by Headgate" in out.stderr
