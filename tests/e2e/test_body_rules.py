# SPDX-License-Identifier: BSD-2-Clause
"""Rules that look at bodies: wait-for-body, option http-buffer-request; HAProxy's answers. And pause."""

import socket
import threading
import time

import pytest
from conftest import SLOW, ScriptedServer, Syslog, connect, raw, read_head, read_response, wait_for
from peer import Pair

CONF = """
global
    nbthread 1
    log 127.0.0.1:{log} local0
defaults
    mode http
    log global
    option httplog
    timeout client 20s
    timeout server 20s
    timeout connect 5s
    timeout http-request 20s
frontend rule
    bind 127.0.0.1:{port}
    http-request set-var(txn.path) path
    http-request wait-for-body time 20s at-least 4 if { path_beg /four }
    http-request wait-for-body time 20s if { path_beg /all }
    http-request wait-for-body time 300ms if { path_beg /late }
    http-request deny deny_status 429 if { req.body -m sub evil }
    http-request set-header x-seen "%[req.body_len] %[req.body_size] %[req.body_param(a)] %[req.body]"
    use_backend app
frontend option
    bind 127.0.0.1:{port1}
    option http-buffer-request
    http-request deny deny_status 429 if { req.body -m sub evil }
    http-request set-header x-seen "%[req.body_len] %[req.body_size] %[req.body_param(a)] %[req.body]"
    use_backend app
frontend late
    bind 127.0.0.1:{port3}
    timeout http-request 300ms
    option http-buffer-request
    use_backend app
frontend latebe
    bind 127.0.0.1:{port4}
    use_backend belate
backend belate
    timeout http-request 300ms
    option http-buffer-request
    server s 127.0.0.1:{port8}
frontend other
    bind 127.0.0.1:{port2}
    use_backend buffered
backend buffered
    option http-buffer-request
    http-request set-header x-seen "%[req.body_len] %[req.body_size] %[req.body_param(a)] %[req.body]"
    server s 127.0.0.1:{port8}
backend app
    http-response wait-for-body time 20s if { var(txn.path) -m str /all-rsp }
    http-response wait-for-body time 300ms if { var(txn.path) -m str /late-rsp }
    http-response wait-for-body time 20s at-least 3 if { var(txn.path) -m str /three-rsp }
    http-response deny deny_status 500 if { res.body -m sub secret }
    http-response set-header x-rsp "%[res.body_len] %[res.body]" if { var(txn.path) -m end -- -rsp }
    server s 127.0.0.1:{port8}
"""


class Server:
    """Tells in its body what rules wrote into the request, and the body it got; sends bodies in pieces. Counts heads."""

    def __init__(self, host, port):
        self.go, self.heads = threading.Event(), 0
        self.server = ScriptedServer(host, "127.0.0.1", port, self.handle)

    def handle(self, server, c, n):
        buf = b""
        while True:
            while b"\r\n\r\n" not in buf:
                chunk = c.recv(65536)
                if not chunk:
                    return
                buf += chunk
            head, buf = buf.split(b"\r\n\r\n", 1)
            fields = {k.lower(): v.strip() for k, v in
                      (line.split(":", 1) for line in head.decode("latin-1").split("\r\n")[1:])}
            self.heads += 1
            body, buf = self.body(c, fields, buf)
            path = head.split()[1].decode()
            if path.endswith("-rsp"):
                self.pieces(c, path)
                continue
            out = (fields.get("x-seen", "-") + "|" + body.decode("latin-1") + "|" + fields.get("expect", "-")).encode()
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(out) + out)

    def body(self, c, fields, buf):
        if "content-length" in fields:
            n = int(fields["content-length"])
            while len(buf) < n:
                buf += c.recv(65536)
            return buf[:n], buf[n:]
        out = b""
        while fields.get("transfer-encoding") == "chunked":
            while b"\r\n" not in buf:
                buf += c.recv(65536)
            size, buf = buf.split(b"\r\n", 1)
            while len(buf) < int(size, 16) + 2:
                buf += c.recv(65536)
            out, buf = out + buf[:int(size, 16)], buf[int(size, 16) + 2:]
            if not int(size, 16):
                break
        return out, buf

    def pieces(self, c, path):
        """"abcdef" in three pieces, the last two when the test wants them."""
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
        time.sleep(0.1)
        c.sendall(b"2\r\ncd\r\n")
        if path.startswith(("/late", "/three")):
            self.go.wait(20 * SLOW)
        else:
            time.sleep(0.1)
        c.sendall(b"2\r\nef\r\n0\r\n\r\n")


@pytest.fixture
def pair(one, daemon):
    one.servers = [Server(one, 8008), Server(one, 8108)]
    one.logs = [Syslog(one, port=5140), Syslog(one, port=5141)]
    yield Pair(one, daemon, CONF)
    for s in one.servers:
        s.go.set()
    for log in one.logs:
        log.close()


def exchange(host, port, server, pieces, last_when_asked=False):
    """
    Sends the pieces with pauses between; the answer. `last_when_asked`: the last piece goes when the server has the head.
    Once we have the answer's head, the server sends what it holds back.
    """
    heads = server.heads
    with connect(host, "127.0.0.1", port, 20) as c:
        for i, p in enumerate(pieces):
            if i and last_when_asked and i == len(pieces) - 1:
                wait_for("the server to be asked", lambda: server.heads > heads, timeout=20 * SLOW)
            elif i:
                time.sleep(0.1)
            c.sendall(p)
        c.recv(1, socket.MSG_PEEK)
        server.go.set()
        status, headers, body = read_response(c)
        server.go.clear()
        return status, headers.get("x-rsp"), body


def both(pair, i, pieces, last_when_asked=False):
    ours, theirs = (exchange(pair.host, base + i, server, pieces, last_when_asked)
                    for base, server in zip((8000, 8100), pair.host.servers))
    assert ours == theirs, pieces
    return ours


def post(path, extra="", version="1.1"):
    return f"POST {path} HTTP/{version}\r\nHost: a\r\n{extra}\r\n".encode()


def test_rules_see_what_they_waited_for(pair):
    length = [post("/all", "Content-Length: 11\r\n"), b"a=12", b"3&b=456"]
    chunks = [post("/all", "Transfer-Encoding: chunked\r\n"), b"4\r\na=12\r\n", b"7;x=y\r\n3&b=4", b"56\r\n0\r\n\r\n"]
    for i in (0, 1, 2):
        status, _, body = both(pair, i, length)
        assert (status, body) == (200, b"11 11 123 a=123&b=456|a=123&b=456|-")
        status, _, body = both(pair, i, chunks)
        assert (status, body) == (200, b"11 11 123 a=123&b=456|a=123&b=456|-")
        assert both(pair, i, [post("/all")])[2] == b"0 0||-"
    for i in (0, 1):
        assert both(pair, i, [post("/all", "Content-Length: 9\r\n"), b"some ", b"evil"])[0] == 429
    # At least four bytes: more is not waited for.
    status, _, body = both(pair, 0, [post("/four", "Content-Length: 9\r\n"), b"abcde", b"fghi"], last_when_asked=True)
    assert (status, body) == (200, b"5 9  abcde|abcdefghi|-")


def test_what_follows_the_body_is_another_request(pair):
    """Two requests in one piece, and a body that is longer than the buffer."""
    one_piece = post("/all", "Content-Length: 3\r\n") + b"abc" + post("/all", "Content-Length: 2\r\n") + b"de"
    with connect(pair.host, "127.0.0.1", 8000, 20) as c:
        c.sendall(one_piece)
        assert read_response(c)[2] == b"3 3  abc|abc|-"
        assert read_response(c)[2] == b"2 2  de|de|-"
    big = b"x" * 200000
    for i, extra in ((0, ""), (1, ""), (2, "")):
        with connect(pair.host, "127.0.0.1", 8000 + i, 20) as c:
            c.sendall(post("/four" if i == 0 else "/all", f"Content-Length: {len(big)}\r\n{extra}") + big)
            status, _, body = read_response(c)
            assert status in (200, 400, 500) and (status != 200 or big in body)


def test_the_client_is_told_to_go_on(pair):
    """It asks whether it may send the body: nobody else would answer while we wait for it."""
    for i in (0, 1, 2):
        for base in (8000, 8100):
            with connect(pair.host, "127.0.0.1", base + i, 20) as c:
                c.sendall(post("/all", "Content-Length: 3\r\nExpect: 100-continue\r\n"))
                assert read_response(c)[0] == 100
                c.sendall(b"abc")
                assert read_response(c)[2] == b"3 3  abc|abc|-", "and the server is not asked"
    done = pair.host.run(["curl", "-sS", "-m", "20", "--http2-prior-knowledge", "-d", "a=xyz&b=1",
                          "http://127.0.0.1:8000/all"])
    assert done.stdout == "9 9 xyz a=xyz&b=1|a=xyz&b=1|-"


def test_bodies_that_do_not_come(pair):
    """408 and cD in the log, whoever waited; a client that goes away is no request."""
    late = post("/late", "Content-Length: 9\r\n") + b"abc"
    for i, path in ((0, late), (3, late), (4, late)):
        assert both(pair, i, [path])[0] == 408
    for log in pair.host.logs:
        log.wait(r' rule rule/<NOSRV> [^"]* 408 .* cR-- .*"POST /late')
        log.wait(r' late late/<NOSRV> [^"]* 408 .* cR-- .*"POST /late')
        log.wait(r' latebe belate/<NOSRV> [^"]* 408 .* cR-- .*"POST /late')
    out = raw(pair.host, "127.0.0.1", 8000, post("/all", "Transfer-Encoding: chunked\r\n") + b"zz\r\n")
    assert out.startswith(b"HTTP/1.1 400")


def test_responses(pair):
    assert both(pair, 0, [b"GET /all-rsp HTTP/1.1\r\nHost: a\r\n\r\n"]) == (200, "6 abcdef", b"abcdef")
    assert both(pair, 0, [b"GET /three-rsp HTTP/1.1\r\nHost: a\r\n\r\n"]) == (200, "4 abcd", b"abcdef")
    assert both(pair, 0, [b"GET /late-rsp HTTP/1.1\r\nHost: a\r\n\r\n"])[0] == 504
    for log in pair.host.logs:
        log.wait(r' rule app/s [^"]* 504 .* s.-- .*"GET /late-rsp')
    done = pair.host.run(["curl", "-sS", "-i", "-m", "20", "--http2-prior-knowledge", "http://127.0.0.1:8000/all-rsp"])
    assert "x-rsp: 6 abcdef" in done.stdout and done.stdout.endswith("abcdef")


PAUSE = """
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
frontend web
    bind 127.0.0.1:8000
    http-request set-var(txn.n) int(1)
    http-request set-var(txn.begin) date(0,ms)
    http-request pause 200ms if { path /a }
    http-request pause req.hdr(x-ms)
    http-request set-var(txn.n) var(txn.n),add(1)
    http-request set-var(txn.between) date(0,ms),sub(txn.begin)
    default_backend app
backend app
    http-request pause 150
    http-response pause 100
    http-response set-header x-n %[var(txn.n)]
    http-response set-header x-between %[var(txn.between)]
    http-response set-header x-all %[date(0,ms),sub(txn.begin)]
    server s 127.0.0.1:9001
"""


def test_pause(one, daemon):
    """Rules before a pause have run once; the pauses add up; a client that leaves ends its own."""
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: (read_head(c), c.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")))
    d = daemon(one, PAUSE)
    for path, extra, between, total in (("/a", "", 200, 450), ("/b", "X-Ms: 300\r\n", 300, 550), ("/c", "", 0, 250)):
        with connect(one, "127.0.0.1", 8000, 20) as c:
            c.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n{extra}\r\n".encode())
            status, headers, body = read_response(c)
        assert (status, headers["x-n"], body) == (200, "2", b"ok")
        assert int(headers["x-between"]) >= between and int(headers["x-all"]) >= total, headers
    c = connect(one, "127.0.0.1", 8000)
    c.sendall(b"GET /b HTTP/1.1\r\nHost: a\r\nX-Ms: 60000\r\n\r\n")
    wait_for("the pause", lambda: "FE_RULES" in d.cli("show sess"), timeout=10 * SLOW)
    c.setsockopt(1, 13, b"\x01\0\0\0\0\0\0\0")  # SO_LINGER: a reset
    c.close()
    wait_for("the stream to end", lambda: "FE_RULES" not in d.cli("show sess"), timeout=10 * SLOW)
