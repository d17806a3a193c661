# SPDX-License-Identifier: BSD-2-Clause
"""What goes wrong on the way: the answers 400, 408, 502, 503, 504, the log's termination codes, retries."""

import re
import socket
import struct
import threading
import time

import pytest
from conftest import (SLOW, HostSocket, ScriptedServer, Syslog, connect, keepalive_server, raw, read_head,
                      read_response, recv_all, reply, wait_for)

CFG = """
global
    stats socket {sock} level admin
    log 127.0.0.1:5140 local0
    nbthread 1
defaults
    mode http
    log global
    option httplog
    timeout client 10s
    timeout server 10s
    timeout connect 1s
    retries 0
listen web
    bind 127.0.0.1:8000
"""
GET = b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n"
LAST = b"GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000\r\n\r\n"

# ip:port [date] fe be/srv TR/Tw/Tc/Tr/Ta ST B CC CS tsc ac/fc/bc/sc/rc sq/bq "r"
HTTPLOG = re.compile(
    r"<(?P<pri>\d+)>(?P<stamp>\w{3} [ \d]\d \d\d:\d\d:\d\d) (?P<tag>[^ \[]+)\[(?P<pid>\d+)\]: "
    r"(?P<ci>[0-9.]+):(?P<cp>\d+) \[(?P<date>\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d\.\d{3})\] (?P<fe>\S+) "
    r"(?P<be>[^/ ]+)/(?P<srv>\S+) (?P<TR>-?\d+)/(?P<Tw>-?\d+)/(?P<Tc>-?\d+)/(?P<Tr>-?\d+)/(?P<Ta>\+?-?\d+) "
    r"(?P<ST>-?\d+) (?P<B>\+?\d+) (?P<CC>\S+) (?P<CS>\S+) (?P<tsc>\S{4}) "
    r"(?P<ac>\d+)/(?P<fc>\d+)/(?P<bc>\d+)/(?P<sc>\d+)/(?P<rc>\+?\d+) (?P<sq>\d+)/(?P<bq>\d+)"
    r"(?: \{(?P<hr>[^}]*)\})?(?: \{(?P<hs>[^}]*)\})? \"(?P<r>.*)\"\n?$")


class Scene:
    """A daemon, a log, and what a test asks about them."""

    def __init__(self, one, daemon, tail, handler=None, head=CFG):
        self.host = one
        self.log = Syslog(one)
        self.server = ScriptedServer(one, "127.0.0.1", 9001, handler) if handler else None
        self.daemon = daemon(one, head + tail)

    def lines(self):
        """All lines of traffic so far; what the process says about itself left out."""
        return [x for x in self.log.lines if not x.startswith("<133>")]

    def line(self, n=0):
        """The n-th request's log line, parsed."""
        lines = wait_for(f"log line {n}", lambda: (m := [x for x in map(HTTPLOG.match, self.lines()) if x]) and
                         len(m) > n and m, timeout=15 * SLOW)
        return lines[n]

    def code(self, n=0):
        m = self.line(n)
        return m["tsc"], int(m["ST"])


@pytest.fixture
def scene(one, daemon):
    made = []

    def make(*args, **kw):
        s = Scene(one, daemon, *args, **kw)
        made.append(s)
        return s

    yield make
    for s in made:
        s.log.close()


def reset(s):
    """Closes with RST."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


SRV = "    server s1 127.0.0.1:9001\n"


def test_log_line_fields(scene):
    s = scene("    capture request header Host len 20\n    capture response header Server len 8\n" + SRV,
              lambda srv, c, n: read_head(c) and (time.sleep(0.05), c.sendall(reply(b"12345", headers=["Server: abcdefghijk"]))))
    hours = {time.strftime("%d/%b/%Y:%H:")}
    with connect(s.host, "127.0.0.1", 8000) as c:
        port = c.getsockname()[1]
        c.sendall(b"GET /a?b=c HTTP/1.1\r\nHost: shop.example\r\n\r\n")
        read_response(c)
        m = s.line()
    assert m["pri"] == str(16 * 8 + 6)
    assert (m["ci"], m["cp"], m["fe"], m["be"], m["srv"]) == ("127.0.0.1", str(port), "web", "web", "s1")
    assert m["date"][:15] in hours | {time.strftime("%d/%b/%Y:%H:")}
    assert 45 <= int(m["Tr"]) <= 5000 and int(m["Ta"]) >= int(m["Tr"])
    assert all(0 <= int(m[name]) <= 5000 for name in ("TR", "Tw", "Tc"))
    assert (m["ST"], m["tsc"], m["CC"], m["CS"]) == ("200", "----", "-", "-")
    assert int(m["B"]) == len(reply(b"12345", headers=["Server: abcdefghijk"]))
    assert (m["ac"], m["fc"], m["bc"], m["sc"], m["rc"]) == ("1", "1", "0", "0", "0")
    assert (m["sq"], m["bq"]) == ("0", "0")
    assert (m["hr"], m["hs"]) == ("shop.example", "abcdefgh")
    assert m["r"] == "GET /a?b=c HTTP/1.1"


# --- the client's faults ----------------------------------------------------------------------------

BAD = {
    "garbage": b"\x00\x01\x02\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "version": b"GET / HTTP/9.9x\r\n\r\n",
    "space in name": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n",
    "nul in value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    "control in path": b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "bad length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
    "huge length": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "unknown coding": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb: c\x7f\x00\r\n\r\n",
    "method": b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
    "too large": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 40000 + b"\r\n\r\n",
}


def test_400(scene):
    s = scene(SRV, keepalive_server())
    for i, (name, text) in enumerate(BAD.items()):
        out = raw(s.host, "127.0.0.1", 8000, text)
        status = {"version": 505, "too large": 431}.get(name)
        assert out.startswith((b"HTTP/1.1 400 Bad request\r\n", b"HTTP/1.1 %d " % (status or 400))), (name, out)
        assert b"connection: close" in out.lower(), name
        assert out.replace(b"<RESET>", b"").endswith(b"</html>\n"), (name, out)
        m = s.line(i)
        assert m["tsc"] in ("PR--", "CR--"), name
        assert (m["srv"], m["r"]) == ("<NOSRV>", "<BADREQ>"), (name, m[0])
    assert s.server.count == 0
    assert s.daemon.stat("web", "FRONTEND")["ereq"] == str(len(BAD))
    row = s.daemon.stat("web", "FRONTEND")
    assert int(row["hrsp_4xx"]) + int(row["hrsp_5xx"]) == len(BAD)
    assert read_response_of(s, GET)[0] == 200


def read_response_of(s, data):
    with connect(s.host, "127.0.0.1", 8000) as c:
        c.sendall(data)
        return read_response(c)


def test_smuggling_is_refused_or_made_unambiguous(scene):
    """What reaches the server is one request, whatever the client meant."""
    s = scene(SRV, keepalive_server())
    out = raw(s.host, "127.0.0.1", 8000, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
                                         b"0\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n")
    assert out.startswith((b"HTTP/1.1 400", b"HTTP/1.1 200"))
    for head in s.server.received:
        assert not (b"content-length" in head.lower() and b"transfer-encoding" in head.lower())
        assert b"/evil" not in head


def test_bad_chunk_in_request(scene):
    s = scene(SRV, lambda srv, c, n: recv_all(c))
    out = raw(s.host, "127.0.0.1", 8000, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    assert out.startswith(b"HTTP/1.1 400 "), out
    assert s.code()[1] == 400


def test_408_request_timeout(scene):
    s = scene("    timeout http-request 300ms\n" + SRV, keepalive_server())
    t = time.monotonic()
    out = raw(s.host, "127.0.0.1", 8000, b"GET / HTTP/1.1\r\nHost:")
    assert out.startswith(b"HTTP/1.1 408 Request Time-out\r\n")
    assert 0.25 < time.monotonic() - t < 5 * SLOW
    assert s.code() == ("cR--", 408)
    assert s.line()["r"] == "<BADREQ>"


def test_keepalive_timeout_is_silent(scene):
    s = scene("    timeout http-keep-alive 200ms\n" + SRV, keepalive_server())
    with connect(s.host, "127.0.0.1", 8000) as c:
        c.sendall(GET)
        read_response(c)
        assert recv_all(c) == b""
    assert s.code() == ("----", 200)
    assert len(s.lines()) == 1


def test_client_gone_in_the_request(scene):
    s = scene(SRV, keepalive_server())
    with connect(s.host, "127.0.0.1", 8000) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHos")
    assert s.code() == ("CR--", 400)


def test_dontlognull(scene):
    s = scene("    option dontlognull\n" + SRV, keepalive_server())
    with connect(s.host, "127.0.0.1", 8000):
        pass
    assert read_response_of(s, GET)[0] == 200
    assert s.code() == ("----", 200)
    assert len(s.lines()) == 1


def test_client_gone_in_the_body(scene):
    s = scene(SRV, lambda srv, c, n: recv_all(c))
    c = connect(s.host, "127.0.0.1", 8000)
    c.sendall(POST + b"x" * 10)
    wait_for("the server", lambda: s.server.count)
    s.daemon.settle()
    reset(c)
    assert s.line()["tsc"] in ("CD--", "CH--")


def test_client_stalls_in_the_body(scene):
    s = scene("    timeout client 300ms\n" + SRV, lambda srv, c, n: recv_all(c))
    out = raw(s.host, "127.0.0.1", 8000, POST + b"x" * 10)
    assert out.startswith(b"HTTP/1.1 408 ")
    assert s.line()["tsc"] in ("cD--", "cH--")


def test_client_gone_in_the_answer(scene):
    def handle(srv, c, n):
        read_head(c)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while True:
            c.sendall(b"x" * 65536)

    s = scene(SRV, handle)
    c = connect(s.host, "127.0.0.1", 8000)
    c.sendall(GET)
    c.recv(10000)
    reset(c)
    assert s.code() == ("CD--", 200)


def test_client_does_not_read_the_answer(scene):
    def handle(srv, c, n):
        read_head(c)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while True:
            c.sendall(b"x" * 65536)

    s = scene("    timeout client 400ms\n" + SRV, handle)
    with connect(s.host, "127.0.0.1", 8000) as c:
        c.sendall(GET)
        assert s.code() == ("cD--", 200)


def test_abortonclose(scene):
    s = scene("    option abortonclose\n" + SRV, lambda srv, c, n: srv.received.append(read_head(c)) or recv_all(c))
    c = connect(s.host, "127.0.0.1", 8000)
    c.sendall(GET)
    wait_for("the server to be asked", lambda: s.server.received)
    s.daemon.settle()
    c.close()
    m = s.line()
    assert m["tsc"] == "CH--"


def test_abortonclose_in_the_queue(scene):
    free = threading.Event()
    s = scene("    option abortonclose\n    server s1 127.0.0.1:9001 maxconn 1\n",
              lambda srv, c, n: read_head(c) and free.wait(5) and c.sendall(reply()))
    first = connect(s.host, "127.0.0.1", 8000)
    first.sendall(GET)
    wait_for("the server", lambda: s.server.count)
    second = connect(s.host, "127.0.0.1", 8000)
    second.sendall(GET)
    wait_for("the queue", lambda: s.daemon.stat("web", "BACKEND")["qcur"] == "1")
    second.close()
    assert s.line()["tsc"] == "CQ--"
    assert s.daemon.stat("web", "BACKEND")["qcur"] == "0"
    free.set()
    assert read_response(first)[0] == 200
    first.close()
    assert s.server.count == 1


# --- the server's faults ----------------------------------------------------------------------------


@pytest.mark.parametrize("name, answer, code", [
    ("garbage", b"hello\r\n\r\n", "PH--"),
    ("bad header", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "PH--"),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "PH--"),
    ("closed", b"", "SH--"),
    ("cut head", b"HTTP/1.1 200 OK\r\nConte", "SH--"),
])
def test_502(scene, name, answer, code):
    s = scene(SRV, lambda srv, c, n: read_head(c) and c.sendall(answer))
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert out.startswith(b"HTTP/1.1 502 Bad Gateway\r\n"), out
    assert s.code() == (code, 502)
    assert s.line()["srv"] == "s1"
    assert s.daemon.stat("web", "s1")["eresp"] == "1"


def test_502_keeps_the_client(scene):
    """The client's connection did nothing wrong; it may go on, or is told that it ends."""
    s = scene(SRV, lambda srv, c, n: read_head(c) and (c.sendall(reply()) if n > 1 else None))
    with connect(s.host, "127.0.0.1", 8000) as c:
        c.sendall(GET)
        status, headers, body = read_response(c)
        assert status == 502
        if headers.get("connection", "").lower() != "close":
            c.sendall(GET)
            assert read_response(c)[0] == 200


def test_server_cuts_the_body(scene):
    s = scene(SRV, lambda srv, c, n: read_head(c) and c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"))
    raw(s.host, "127.0.0.1", 8000, LAST)
    assert s.code() == ("SD--", 200)


def test_server_stalls_in_the_body(scene):
    s = scene("    timeout server 300ms\n" + SRV, lambda srv, c, n: read_head(c) and
              (c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), recv_all(c)))
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert b"abc" in out
    assert s.code() == ("sD--", 200)


def test_bad_chunk_in_answer(scene):
    s = scene(SRV, lambda srv, c, n: read_head(c) and
              (c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), time.sleep(0.1),
               c.sendall(b"xyz\r\n")))
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert b"abc" in out and not out.endswith(b"0\r\n\r\n")
    assert s.line()["tsc"] in ("SD--", "PD--")


def test_503_refused(scene):
    s = scene(SRV)
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert out.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert s.code() == ("SC--", 503)
    m = s.line()
    assert (m["Tw"], m["Tr"]) == ("0", "-1") and m["srv"] == "s1"
    row = s.daemon.stat("web", "s1")
    assert row["econ"] == "1"


def test_503_no_server(scene):
    s = scene("    server s1 127.0.0.1:9001 disabled\n")
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert out.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert s.code() == ("SC--", 503)
    m = s.line()
    assert m["srv"] == "<NOSRV>"
    assert (m["Tw"], m["Tc"], m["Tr"]) == ("-1", "-1", "-1")


def test_503_connect_timeout(scene):
    full = None

    s0 = HostSocket
    s = scene("    timeout connect 300ms\n    server s1 127.0.0.1:9009\n")
    full = s0.make(s.host)  # a listener whose backlog is full answers nothing
    full.bind(("127.0.0.1", 9009))
    full.listen(0)
    fill = []
    for _ in range(4):
        c = s0.make(s.host)
        c.setblocking(False)
        c.connect_ex(("127.0.0.1", 9009))
        fill.append(c)
    t = time.monotonic()
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert out.startswith(b"HTTP/1.1 503 ")
    assert 0.25 < time.monotonic() - t < 5 * SLOW
    assert s.code() == ("sC--", 503)


def test_503_queue_timeout(scene):
    free = threading.Event()
    s = scene("    timeout queue 300ms\n    server s1 127.0.0.1:9001 maxconn 1\n",
              lambda srv, c, n: read_head(c) and free.wait(5) and c.sendall(reply()))
    with connect(s.host, "127.0.0.1", 8000) as first:
        first.sendall(GET)
        wait_for("the server", lambda: s.server.count)
        out = raw(s.host, "127.0.0.1", 8000, LAST)
        assert out.startswith(b"HTTP/1.1 503 ")
        assert s.code() == ("sQ--", 503)
        assert int(s.line()["Tw"]) >= 280
        free.set()
        assert read_response(first)[0] == 200


def test_504(scene):
    s = scene("    timeout server 300ms\n" + SRV, lambda srv, c, n: read_head(c) and recv_all(c))
    t = time.monotonic()
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert out.startswith(b"HTTP/1.1 504 Gateway Time-out\r\n")
    assert 0.25 < time.monotonic() - t < 5 * SLOW
    assert s.code() == ("sH--", 504)
    assert s.line()["Tr"] == "-1"


def test_local_answers(scene):
    s = scene("    monitor-uri /alive\n    http-request deny if { path /no }\n    http-request redirect location /y if { path /r }\n"
              + "    http-request return status 200 content-type text/plain string hi if { path /hi }\n" + SRV)
    assert raw(s.host, "127.0.0.1", 8000, b"GET /alive HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 OK\r\n") or \
        raw(s.host, "127.0.0.1", 8000, b"GET /alive HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
    with connect(s.host, "127.0.0.1", 8000) as c:
        for i, (path, status, code) in enumerate((("/no", 403, "PR--"), ("/r", 302, "LR--"), ("/hi", 200, "LR--"))):
            c.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            got, headers, body = read_response(c)
            assert got == status
            assert s.code(i) == (code, status)
            if path == "/hi":
                assert body == b"hi"
            if path == "/r":
                assert headers["location"] == "/y"
            if headers.get("connection", "").lower() == "close":
                break


def test_monitor_is_not_logged(scene):
    s = scene("    monitor-uri /alive\n" + SRV, keepalive_server())
    out = raw(s.host, "127.0.0.1", 8000, b"GET /alive HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert b" 200 OK" in out[:20]
    assert read_response_of(s, GET)[0] == 200
    assert s.line()["r"] == "GET /x HTTP/1.1"
    assert len(s.lines()) == 1


# --- retries ----------------------------------------------------------------------------------------


def test_redispatch_from_a_dead_server(scene):
    """One of two servers refuses: no request fails, the log tells where it went."""
    s = scene("    balance roundrobin\n    timeout connect 200ms\n    retries 3\n    option redispatch\n    server dead 127.0.0.1:9002\n" + SRV,
              keepalive_server())
    with connect(s.host, "127.0.0.1", 8000, timeout=20) as c:
        for _ in range(4):
            c.sendall(GET)
            assert read_response(c)[0] == 200
    again = [m for m in (s.line(i) for i in range(4)) if m["rc"] != "0"]
    assert again and all(m["rc"].startswith("+") and m["srv"] == "s1" and m["tsc"] == "----" for m in again)
    assert int(s.daemon.stat("web", "dead")["wredis"]) >= 1
    assert int(s.daemon.stat("web", "dead")["wretr"]) >= 1


def test_retries_to_one_server(scene):
    s = scene("    retries 2\n    timeout connect 200ms\n" + SRV)
    t = time.monotonic()
    out = raw(s.host, "127.0.0.1", 8000, LAST)
    assert out.startswith(b"HTTP/1.1 503 ")
    assert s.line()["rc"] == "2"
    assert s.code() == ("SC--", 503)
    assert time.monotonic() - t < 10 * SLOW


def test_post_is_not_sent_twice(scene):
    """A server that read a POST and closed is not asked again."""
    s = scene("    retries 3\n" + SRV, lambda srv, c, n: srv.received.append(read_head(c)))
    out = raw(s.host, "127.0.0.1", 8000, b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert out.startswith(b"HTTP/1.1 502 ")
    assert s.server.count == 1
    assert s.code() == ("SH--", 502)


# --- mode tcp's lines -------------------------------------------------------------------------------

TCP = """
global
    stats socket {sock} level admin
    log 127.0.0.1:5140 local0
    nbthread 1
defaults
    mode tcp
    log global
    option tcplog
    timeout client 10s
    timeout server 10s
    timeout connect 1s
    retries 0
listen db
    bind 127.0.0.1:8000
"""
TCPLOG = (r"127\.0\.0\.1:\d+ \[[^\]]+\] db db/(\S+) (-?\d+)/(-?\d+)/(-?\d+) (\d+) (\S\S) "
          r"\d+/\d+/\d+/\d+/\d+ \d+/\d+\n?$")


def test_tcplog_normal(scene):
    s = scene(SRV, lambda srv, c, n: c.sendall(c.recv(100).upper()), head=TCP)
    assert raw(s.host, "127.0.0.1", 8000, b"abc") == b"ABC"
    srv, tw, tc, tt, b, code = s.log.wait(TCPLOG).groups()
    assert (srv, b, code) == ("s1", "3", "--")


def test_tcplog_refused(scene):
    s = scene(SRV, head=TCP)
    raw(s.host, "127.0.0.1", 8000, b"abc")
    srv, tw, tc, tt, b, code = s.log.wait(TCPLOG).groups()
    assert (srv, tc, b, code) == ("s1", "-1", "0", "SC")


def test_tcplog_timeouts_and_resets(scene):
    s = scene("    timeout server 300ms\n    timeout client 10s\n" + SRV, lambda srv, c, n: recv_all(c), head=TCP)
    raw(s.host, "127.0.0.1", 8000, b"abc")
    assert s.log.wait(TCPLOG)[6] == "sD"


def test_tcplog_client_timeout(scene):
    s = scene("    timeout client 300ms\n" + SRV, lambda srv, c, n: recv_all(c), head=TCP)
    raw(s.host, "127.0.0.1", 8000, b"abc")
    assert s.log.wait(TCPLOG)[6] == "cD"


def test_tcplog_server_reset(scene):
    s = scene(SRV, lambda srv, c, n: (c.recv(100), c.sendall(b"x"), time.sleep(0.1), reset(c)), head=TCP)
    raw(s.host, "127.0.0.1", 8000, b"abc")
    assert s.log.wait(TCPLOG)[6] == "SD"


def test_tcplog_client_reset(scene):
    s = scene(SRV, lambda srv, c, n: (c.sendall(b"x"), recv_all(c)), head=TCP)
    c = connect(s.host, "127.0.0.1", 8000)
    c.recv(10)
    reset(c)
    assert s.log.wait(TCPLOG)[6] == "CD"


def test_default_log_is_the_connect_line(scene):
    s = scene("    no option httplog\n" + SRV, keepalive_server())
    read_response_of(s, GET)
    s.log.wait(r"Connect from 127\.0\.0\.1:\d+ to 127\.0\.0\.1:8000 \(web/HTTP\)")
