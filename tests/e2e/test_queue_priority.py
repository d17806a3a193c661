# SPDX-License-Identifier: BSD-2-Clause
"""Who is served first of those who wait: set-priority-class and set-priority-offset, in HAProxy's order."""

import threading

import pytest
from conftest import SLOW, ScriptedServer, connect, read_head, read_response, reply, wait_for
from peer import Pair

CONF = """
global
    nbthread {threads}
defaults
    mode http
    timeout client 30s
    timeout server 30s
    timeout connect 5s
    timeout queue 30s
frontend web
    bind 127.0.0.1:{port}
    http-request return if { path / }
    http-request set-priority-class req.hdr(x-class) if { req.hdr(x-class) -m found }
    use_backend app
frontend probe
    bind 127.0.0.1:{port1}
    http-request return content-type text/plain lf-string "%[queue(app)]"
frontend early
    bind 127.0.0.1:{port2}
    tcp-request inspect-delay 5s
    tcp-request content set-priority-class int(-7) if HTTP
    http-request return content-type text/plain lf-string "%[prio_class] %[prio_offset]" if { path /fetch }
    http-request set-priority-class int(-4000)
    http-request set-priority-offset int(1000000)
    http-request return content-type text/plain lf-string "%[prio_class] %[prio_offset]"
backend app
    balance roundrobin
    http-request set-priority-offset req.hdr(x-offset) if { req.hdr(x-offset) -m found }
    http-response set-header x-prio "%[prio_class] %[prio_offset]"
    server s 127.0.0.1:{port8} maxconn 1
"""
# name, class, offset in ms: they come in this order, and are to be served in the order of EXPECTED.
WAITING = [("a", None, None), ("b", "5", None), ("c", "-3", None), ("d", "5", "-300000"), ("e", "-9999", None),
           ("f", None, "200000"), ("g", "-3", "-60000"), ("h", "none", "-400000"), ("i", "-2047", "9999999"),
           ("j", None, "9000")]
EXPECTED = "e i g c h a j f d b".split()


class Held:
    """A server that answers the first request when it is told to, the others at once; who came, in order."""

    def __init__(self, host, port):
        self.go, self.seen = threading.Event(), []
        self.server = ScriptedServer(host, "127.0.0.1", port, self.handle)

    def handle(self, server, c, n):
        while head := read_head(c):
            name = head.split()[1].decode().lstrip("/")
            self.seen.append(name)
            if name == "first":
                self.go.wait(30 * SLOW)
            c.sendall(reply())


def enter(host, port, probe, held):
    """All of WAITING, one behind the other, in the queue of the server at `port`; their answers."""
    def queued():
        with connect(host, "127.0.0.1", probe) as c:
            c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            return int(read_response(c)[2])

    conns = [connect(host, "127.0.0.1", port, 30)]
    conns[0].sendall(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_for("the first request", lambda: held.seen, timeout=20 * SLOW)
    for i, (name, prio, offset) in enumerate(WAITING):
        extra = f"X-Class: {prio}\r\n" if prio else ""
        extra += f"X-Offset: {offset}\r\n" if offset else ""
        conns.append(connect(host, "127.0.0.1", port, 30))
        conns[-1].sendall(f"GET /{name} HTTP/1.1\r\nHost: a\r\n{extra}\r\n".encode())
        wait_for(f"{name} in the queue", lambda n=i + 1: queued() == n, timeout=20 * SLOW)
    held.go.set()
    answers = [read_response(c) for c in conns]
    for c in conns:
        c.close()
    return [(status, headers["x-prio"]) for status, headers, _ in answers[1:]]


@pytest.mark.parametrize("threads", [1, 3])
def test_order_of_the_queue(one, daemon, threads):
    """On several workers each of which has a part of the queue, too."""
    text = CONF.replace("{threads}", str(threads))
    held = [Held(one, 8008), Held(one, 8108)]
    pair = Pair(one, daemon, text)
    answers = [enter(one, base, base + 1, h) for base, h in zip((8000, 8100), held)]
    assert answers[0] == answers[1]
    assert [h.seen[1:] for h in held] == [EXPECTED, EXPECTED]
    assert answers[0][4] == (200, "-2047 0") and answers[0][8] == (200, "-2047 524287")
    for path in ("/", "/fetch"):
        out = pair.same(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode(), 2)
        assert out[2] == (b"-7 0" if path == "/fetch" else b"-2047 524287")
    assert pair.daemon.stat("app", "BACKEND")["qcur"] == "0"
