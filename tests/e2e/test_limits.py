# SPDX-License-Identifier: BSD-2-Clause
"""Limits of servers and what waits for them; what live traffic, and the runtime API, do to a server's checks."""

import time

from conftest import SLOW, ScriptedServer, connect, keepalive_server, raw, read_head, recv_all, reply, wait_for

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 2s
    timeout queue 15s
listen web
    bind 127.0.0.1:8000
    balance roundrobin
"""
GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Slow:
    """Answers with its name when it is told to."""

    def __init__(self, host, port, name):
        self.name, self.is_open = name, False
        self.server = ScriptedServer(host, "127.0.0.1", port, self._handle)

    def _handle(self, server, c, n):
        if not read_head(c):
            return
        while not self.is_open:
            time.sleep(0.01)
        c.sendall(reply(self.name, headers=("Connection: close",)))


def ask(host, n):
    out = []
    for _ in range(n):
        c = connect(host, "127.0.0.1", 8000, timeout=20 * SLOW)
        c.sendall(GET)
        out.append(c)
    return out


def test_maxqueue_sends_the_rest_elsewhere(one, daemon):
    """Two requests are bound to a server of one connection: one works, one waits, the third goes to another."""
    a, b = Slow(one, 9001, b"a"), Slow(one, 9002, b"b")
    d = daemon(one, CFG + "    option redispatch\n    cookie S insert\n"
               "    server a 127.0.0.1:9001 maxconn 1 maxqueue 1 cookie a\n    server b 127.0.0.1:9002 cookie b\n")
    conns = []
    for i in range(3):
        c = connect(one, "127.0.0.1", 8000, timeout=20 * SLOW)
        c.sendall(GET.replace(b"Connection", b"Cookie: S=a\r\nConnection"))
        conns.append(c)
        if i < 2:
            wait_for("its place", lambda i=i: (d.stat("web", "a")["scur"], d.stat("web", "a")["qcur"]) == ("1", str(i)),
                     timeout=5 * SLOW)
    wait_for("the third at b", lambda: d.stat("web", "b")["scur"] == "1", timeout=5 * SLOW)
    a.is_open = b.is_open = True
    assert [recv_all(c).split(b"\r\n\r\n")[1] for c in conns] == [b"a", b"a", b"b"]
    assert d.stat("web", "a")["qmax"] == "1"


def test_minconn_follows_the_load(one, daemon):
    """minconn 2, maxconn 8, fullconn 8: the limit is the load's share, 2 at first, 8 with a full backend."""
    a = Slow(one, 9001, b"a")
    d = daemon(one, CFG + "    fullconn 8\n    server a 127.0.0.1:9001 minconn 2 maxconn 8\n")
    conns = ask(one, 3)
    wait_for("one waits", lambda: (d.stat("web", "a")["scur"], d.stat("web", "BACKEND")["qcur"]) == ("2", "1") or
             d.stat("web", "a")["scur"] == "3", timeout=5 * SLOW)
    # Three in the backend of eight are 8 * 3 / 8 = 3 at most.
    assert int(d.stat("web", "a")["scur"]) <= 3
    conns += ask(one, 9)
    wait_for("the backend is full", lambda: d.stat("web", "a")["scur"] == "8", timeout=5 * SLOW)
    time.sleep(0.3)
    assert d.stat("web", "a")["scur"] == "8"
    a.is_open = True
    assert all(recv_all(c).endswith(b"a") for c in conns)
    assert d.stat("web", "a")["smax"] == "8"


def test_observe_acts_at_once(one, daemon):
    """The error that reaches the limit is acted upon by the next request, not on the next second."""
    def bad(server, c, n):
        while read_head(c):
            c.sendall(reply(b"no", status="500 Oops"))

    ScriptedServer(one, "127.0.0.1", 9001, bad)
    ScriptedServer(one, "127.0.0.1", 9002, keepalive_server(b"good"))
    ScriptedServer(one, "127.0.0.1", 9100, keepalive_server())
    daemon(one, CFG + "    default-server check inter 1h fastinter 1h port 9100 observe layer7 error-limit 3 "
           "on-error mark-down\n    server a 127.0.0.1:9001\n    server b 127.0.0.1:9002 backup\n")
    for round_no in range(3):
        answer = raw(one, "127.0.0.1", 8000, GET)
        assert b"500 Oops" in answer, (round_no, answer)
    # A tick of one second would come after hundreds of them mostly; the mail is there in a millisecond.
    answers = (raw(one, "127.0.0.1", 8000, GET) for _ in range(60))
    assert any(answer.endswith(b"good") for answer in answers)


def test_places_of_checks_at_run_time(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, CFG + "    server s1 127.0.0.1:9001 check inter 100ms rise 1 fall 1\n    server s2 127.0.0.1:9001\n")

    def row():
        lines = d.cli("show servers state web").splitlines()
        names = lines[1].lstrip("# ").split()
        return dict(zip(names, lines[2].split()))

    def says(command, text=""):
        assert d.cli("set server web/" + command).strip() == text, command

    d.wait_server("web", "s1", "UP")
    says("s1 check-port 9")
    d.wait_server("web", "s1", "DOWN")
    says("s1 check-addr 127.0.0.1 port 9001")
    d.wait_server("web", "s1", "UP")
    assert (row()["srv_check_addr"], row()["srv_check_port"]) == ("127.0.0.1", "9001")
    says("s1 check-port x", "provided port is not an integer")
    says("s1 check-port 70000", "provided port is invalid")
    says("s1 check-port", "set server <b>/<s> check-port requires a port.")
    says("s1 check-addr", "set server <b>/<s> check-addr requires an address and optionally a port.")
    says("s1 check-addr a..b", "invalid addr 'a..b'")
    says("s2 check-port 9", "health checks are not enabled on this server")
    says("s1 agent-addr 127.0.0.9", "agent checks are not enabled on this server")
    says("s1 agent-send x", "agent checks are not enabled on this server.")
    says("s1 fqdn a.b", "set server <b>/<s> fqdn failed because no resolution is configured.")
    assert "cannot be set" in d.cli("set server web/s1 ssl on")
    assert d.cli("set server web/s1 what").startswith("usage: set server <backend>/<server> addr | agent | agent-addr")


def info(d):
    return dict(x.split(": ", 1) for x in d.cli("show info").strip().splitlines())


def test_limits_per_second(one, daemon):
    """Connections above a limit per second wait in the backlog: later ones are late, none is refused."""
    server = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"a"))
    d = daemon(one, CFG.replace("nbthread 1", "nbthread 1\n    maxconnrate 1000\n    maxsessrate 900\n    maxsslrate 800\n    maxcomprate 70")
               + "    rate-limit sessions 500\n    server a 127.0.0.1:9001\n")
    names = ("ConnRateLimit", "SessRateLimit", "SslRateLimit", "CompressBpsRateLim")
    assert [info(d)[x] for x in names] == ["1000", "900", "800", str(70 * 1024)]
    assert d.stat("web", "FRONTEND")["rate_lim"] == "500"
    for i, what in enumerate(("connections", "sessions", "ssl-sessions", "http-compression")):
        assert d.cli(f"set rate-limit {what} global {i + 2}") == "\n"
    assert [info(d)[x] for x in names] == ["2", "3", "4", str(5 * 1024)]
    began = time.monotonic()
    held = ask(one, 4)
    for c in held:
        assert recv_all(c).endswith(b"a")
    assert time.monotonic() - began > 0.4  # two at once, and half a window passes before the fourth
    assert len(server.received) == 4
    d.cli("set rate-limit connections global 1; set rate-limit sessions global 0")
    held = ask(one, 3)
    assert "Success=1" in d.cli("reload") and info(d)["ConnRateLimit"] == "1"  # the file has not changed
    d.cli("set rate-limit connections global 0")
    for c in held:
        assert recv_all(c).endswith(b"a")
    assert d.cli("set rate-limit connections global x") == "Integer value expected.\n\n"
    assert d.cli("set rate-limit sessions web 3") == "'set rate-limit sessions' only supports 'global'.\n\n"
    assert d.cli("set rate-limit").startswith("'set rate-limit' supports 'connections', 'sessions', ")
