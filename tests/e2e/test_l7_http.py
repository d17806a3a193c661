# SPDX-License-Identifier: BSD-2-Clause
"""HTTP/1 through the daemon as a client and a server see it: connections, pipelining, framing, upgrades."""

import hashlib
import os
import socket
import threading
import time

import pytest
from conftest import (SLOW, ScriptedServer, connect, keepalive_server, raw, read_head, read_response, recv_all,
                      reply, wait_for)

CFG = """
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
    timeout http-request 10s
listen web
    bind 127.0.0.1:8000
    {options}
    server s1 127.0.0.1:9001
"""
GET = b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n"


def cfg(options="", nbthread=1):
    return f"global\n    stats socket {{sock}} level admin\n    nbthread {nbthread}\n" + CFG.replace("{options}", options)


def read_exactly(c, n):
    buf = bytearray()
    while len(buf) < n:
        chunk = c.recv(min(1 << 18, n - len(buf)))
        if not chunk:
            break
        buf += chunk
    return bytes(buf)


def split_head(buf):
    head, rest = buf.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    return lines[0], {k.lower(): v.strip() for k, v in (x.split(":", 1) for x in lines[1:])}, rest


def read_chunked(c, buf):
    """Raw bytes of a chunked body up to and with its last CRLF, decoded; and the trailers."""
    out, buf = bytearray(), bytearray(buf)
    while True:
        while b"\r\n" not in buf:
            chunk = c.recv(65536)
            assert chunk, "chunked body cut"
            buf += chunk
        size = bytes(buf[:buf.index(b"\r\n")])
        del buf[:len(size) + 2]
        n = int(size.split(b";")[0], 16)
        if n == 0:
            break
        while len(buf) < n + 2:
            chunk = c.recv(65536)
            assert chunk, "chunked body cut"
            buf += chunk
        out += buf[:n]
        assert buf[n:n + 2] == b"\r\n"
        del buf[:n + 2]
    trailers = b""
    while not (buf.startswith(b"\r\n") or b"\r\n\r\n" in buf):
        chunk = c.recv(65536)
        assert chunk, "trailers cut"
        buf += chunk
    if not buf.startswith(b"\r\n"):
        trailers = bytes(buf[:buf.index(b"\r\n\r\n")])
    return bytes(out), trailers


# --- connections ------------------------------------------------------------------------------------


def test_keepalive_and_reuse(one, daemon):
    srv = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        for _ in range(20):
            c.sendall(GET)
            status, headers, body = read_response(c)
            assert (status, body) == (200, b"ok")
            assert headers.get("connection", "keep-alive").lower() != "close"
    for _ in range(20):  # a connection each: the server's are used again, whoever the client is
        assert raw(one, "127.0.0.1", 8000, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).endswith(b"ok")
    assert len(srv.received) == 40
    assert srv.count <= 2
    row = d.stat("web", "s1")
    assert int(row["connect"]) == srv.count
    assert int(row["reuse"]) == 40 - srv.count
    assert d.stat("web", "FRONTEND")["req_tot"] == "40"
    assert d.stat("web", "FRONTEND")["hrsp_2xx"] == "40"


def test_pipelining_keeps_order(one, daemon):
    def handle(server, c, n):
        buf = b""
        while True:
            while b"\r\n\r\n" not in buf:
                chunk = c.recv(65536)
                if not chunk:
                    return
                buf += chunk
            head, buf = buf.split(b"\r\n\r\n", 1)
            path = head.split()[1]
            if path.endswith(b"0"):
                time.sleep(0.02)
            c.sendall(reply(path))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    n = 50
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(n)))
        got = b""
        for i in range(n):
            while b"/%d" % i not in got:
                chunk = c.recv(65536)
                assert chunk
                got += chunk
        heads = [x for x in got.split(b"HTTP/1.1 200 OK") if x]
        assert [h.split(b"\r\n\r\n", 1)[1] for h in heads] == [b"/%d" % i for i in range(n)]


def test_pipelined_posts(one, daemon):
    def handle(server, c, n):
        while True:
            buf = read_head(c)
            if not buf:
                return
            line, headers, body = split_head(buf)
            want = int(headers["content-length"])
            body += read_exactly(c, want - len(body))
            server.received.append(body)
            c.sendall(reply(hashlib.sha1(body).hexdigest().encode()))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    bodies = [os.urandom(n) for n in (1, 0, 5000, 20000, 3)]
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"".join(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(b) + b for b in bodies))
        got = b""
        while got.count(b"HTTP/1.1 200") < len(bodies) or not got[-40:].isalnum():
            chunk = c.recv(65536)
            assert chunk
            got += chunk
    sums = [x.split(b"\r\n\r\n", 1)[1].decode() for x in got.split(b"HTTP/1.1 200 OK") if x]
    assert sums == [hashlib.sha1(b).hexdigest() for b in bodies]


def test_byte_by_byte(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"slow"))
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for b in GET:
            c.sendall(bytes([b]))
            time.sleep(0.002)
        assert read_response(c)[2] == b"slow"


def test_http10_client(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ten"))
    daemon(one, cfg())
    out = raw(one, "127.0.0.1", 8000, b"GET / HTTP/1.0\r\n\r\n")  # closed after the answer
    assert out.endswith(b"\r\n\r\nten")
    with connect(one, "127.0.0.1", 8000) as c:
        for _ in range(3):
            c.sendall(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            status, headers, body = read_response(c)
            assert body == b"ten" and headers["connection"].lower() == "keep-alive"


def test_http10_client_of_a_chunked_answer(one, daemon):
    def handle(server, c, n):
        while read_head(c):
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    out = raw(one, "127.0.0.1", 8000, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    line, headers, body = split_head(out)
    assert "transfer-encoding" not in headers and body == b"hello world"


def test_http10_server_closes(one, daemon):
    def handle(server, c, n):
        read_head(c)
        c.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    for _ in range(3):
        with connect(one, "127.0.0.1", 8000) as c:
            c.sendall(GET)
            buf = read_head(c)
            line, headers, body = split_head(buf)
            if headers.get("transfer-encoding") == "chunked":
                assert read_chunked(c, body)[0] == b"until the end"
            else:
                assert body + recv_all(c) == b"until the end"


def test_head_204_304(one, daemon):
    def handle(server, c, n):
        while buf := read_head(c):
            path = buf.split()[1]
            if buf.startswith(b"HEAD"):
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")
            elif path == b"/204":
                c.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            elif path == b"/304":
                c.sendall(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 777\r\nETag: \"x\"\r\n\r\n")
            elif path == b"/0":
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            else:
                c.sendall(reply(b"body"))

    srv = ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:  # nothing of them may be taken for a body
        for method, path, status in (("HEAD", "/", 200), ("GET", "/204", 204), ("GET", "/b", 200), ("GET", "/304", 304),
                                     ("GET", "/0", 200), ("HEAD", "/", 200), ("GET", "/b", 200)):
            c.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            got, headers, body = read_response(c, head_only=method == "HEAD")
            assert got == status, (method, path)
            assert body == (b"body" if path == "/b" else b"")
            if method == "HEAD":
                assert headers["content-length"] == "12345"
            if status == 304:
                assert headers["etag"] == '"x"'
    assert srv.count == 1


def test_expect_100_continue(one, daemon):
    """The server's 100 comes through, and only then the body goes; a final answer comes through as well."""

    def handle(server, c, n):
        while buf := read_head(c):
            line, headers, body = split_head(buf)
            server.received.append((headers.get("expect"), len(body)))
            if b"/no" in buf:
                c.sendall(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            c.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body += read_exactly(c, int(headers["content-length"]) - len(body))
            c.sendall(reply(body[::-1]))

    srv = ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    post = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nExpect: 100-continue\r\n\r\n"
    with connect(one, "127.0.0.1", 8000) as c:
        for _ in range(2):
            c.sendall(post)
            got = read_head(c)
            assert got.startswith(b"HTTP/1.1 100"), got
            assert got.endswith(b"\r\n\r\n") and got.count(b"HTTP/") == 1
            c.sendall(b"abcdef")
            assert read_response(c)[2] == b"fedcba"
        assert srv.received[0] == ("100-continue", 0)
        c.sendall(post.replace(b"/p", b"/no"))
        assert read_response(c)[0] == 417
    done = one.run(["curl", "-sS", "-m", "10", "-H", "Expect: 100-continue", "-d", "123456", "http://127.0.0.1:8000/c"])
    assert done.stdout == "654321"


def test_early_hints_pass(one, daemon):
    def handle(server, c, n):
        while read_head(c):
            c.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n")
            time.sleep(0.05)
            c.sendall(reply(b"late"))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(GET)
        got = b""
        while not got.endswith(b"late"):
            got += c.recv(65536)
        assert got.startswith(b"HTTP/1.1 103 ") and b"Link: </a.css>" in got.replace(b"link", b"Link")
        assert got.count(b"HTTP/1.1 200") == 1


# --- bodies -----------------------------------------------------------------------------------------


def hash_server(server, c, n):
    """Reads a body, answers with its size and SHA-256."""
    while buf := read_head(c):
        line, headers, body = split_head(buf)
        sha, size = hashlib.sha256(), 0
        if headers.get("transfer-encoding") == "chunked":
            body, trailers = read_chunked(c, body)
            sha.update(body)
            size = len(body)
            server.received.append(trailers)
        else:
            want = int(headers.get("content-length", 0))
            while True:
                sha.update(body)
                size += len(body)
                if size >= want:
                    break
                body = c.recv(1 << 18)
                if not body:
                    return
        c.sendall(reply(f"{size} {sha.hexdigest()}".encode()))


def blob_server(server, c, n):
    """Answers /<n> with n bytes of a known pattern, /c<n> the same in chunks of odd sizes."""
    block = bytes(range(256)) * 256
    while buf := read_head(c):
        path = buf.split()[1].decode()[1:]
        size = int(path.lstrip("c"))
        if path.startswith("c"):
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            left, step = size, 1
            while left:
                take = min(left, step, 60001)
                off = (size - left) % 256
                c.sendall(b"%x\r\n" % take + block[off:off + take] + b"\r\n")
                left -= take
                step = step * 3 + 1
            c.sendall(b"0\r\nX-Sum: 1\r\n\r\n")
        else:
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            left = size
            while left:
                take = min(left, 65536)
                c.sendall(block[:take])
                left -= take


def pattern_sha(size):
    sha, block = hashlib.sha256(), bytes(range(256)) * 256
    for _ in range(size // 65536):
        sha.update(block)
    sha.update(block[:size % 65536])
    return sha.hexdigest()


SIZES = (0, 1, 16383, 16384, 16385, 1 << 20)


def test_request_bodies_content_length(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, hash_server)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        for n in SIZES:
            body = os.urandom(n)
            c.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % n)
            c.sendall(body)
            assert read_response(c)[2].decode() == f"{n} {hashlib.sha256(body).hexdigest()}"


def test_request_bodies_chunked_with_trailers(one, daemon):
    srv = ScriptedServer(one, "127.0.0.1", 9001, hash_server)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        for n in SIZES:
            body = os.urandom(n)
            c.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            left = body
            step = 1
            while left:
                c.sendall(b"%X;ext=1\r\n" % len(left[:step]) + left[:step] + b"\r\n")
                left = left[step:]
                step = step * 2 + 1
            c.sendall(b"0\r\nX-Trail: %d\r\n\r\n" % n)
            assert read_response(c)[2].decode() == f"{n} {hashlib.sha256(body).hexdigest()}"
    assert [t.lower() for t in srv.received] == [b"x-trail: %d" % n for n in SIZES]


def test_response_bodies(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, blob_server)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        for n in SIZES:
            c.sendall(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n)
            body = read_response(c)[2]
            assert (len(body), hashlib.sha256(body).hexdigest()) == (n, pattern_sha(n))
            c.sendall(b"GET /c%d HTTP/1.1\r\nHost: a\r\n\r\n" % n)
            buf = read_head(c)
            line, headers, rest = split_head(buf)
            assert headers["transfer-encoding"] == "chunked"
            body, trailers = read_chunked(c, rest)
            assert (len(body), hashlib.sha256(body).hexdigest()) == (n, pattern_sha(n))
            assert trailers.lower() == b"x-sum: 1"


def test_64_mib_both_ways(one, daemon):
    size = 64 << 20
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: (blob_server if n == 1 else hash_server)(s, c, n))
    daemon(one, cfg("http-reuse never"))
    out = one.run(f"curl -sS -m 60 http://127.0.0.1:8000/{size} | sha256sum", timeout=90).stdout
    assert out.split()[0] == pattern_sha(size)
    big = one.lab.dir / "big"
    block = bytes(range(256)) * 256
    with open(big, "wb") as f:
        for _ in range(size // len(block)):
            f.write(block)
    out = one.run(["curl", "-sS", "-m", "60", "-H", "Expect:", "-T", big, "http://127.0.0.1:8000/up"], timeout=90).stdout
    assert out == f"{size} {pattern_sha(size)}"
    out = one.run(["curl", "-sS", "-m", "60", "-H", "Expect:", "-H", "Transfer-Encoding: chunked", "-T", big,
                   "http://127.0.0.1:8000/up"], timeout=90).stdout
    assert out == f"{size} {pattern_sha(size)}"


def test_response_before_the_request_ended(one, daemon):
    """A server may answer early; the client gets the answer and no reset swallows it."""

    def handle(server, c, n):
        read_head(c)
        c.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        time.sleep(0.3)

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 1000)
        status, headers, body = read_response(c)
        assert (status, body) == (413, b"big")


# --- upgrades ---------------------------------------------------------------------------------------


def test_upgrade_is_tunnelled_both_ways(one, daemon):
    def handle(server, c, n):
        buf = read_head(c)
        server.received.append(buf)
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello!")
        while data := c.recv(65536):
            c.sendall(data[::-1])

    srv = ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        got = b""
        while not got.endswith(b"hello!"):
            chunk = c.recv(65536)
            assert chunk
            got += chunk
        line, headers, rest = split_head(got)
        assert " 101 " in line + " " and headers["upgrade"] == "websocket"
        assert headers["connection"].lower() == "upgrade"
        assert b"sec-websocket-key: dghlihnhbxbszsbub25jzq==" in srv.received[0].lower()
        for msg in (b"\x81\x05\x00\xff\x10", b"GET / HTTP/1.1\r\n\r\n", os.urandom(3000)):
            c.sendall(msg)
            assert read_exactly(c, len(msg)) == msg[::-1]
        c.shutdown(socket.SHUT_WR)
        assert recv_all(c) == b""


def test_refused_upgrade_stays_http(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"no"))
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        for _ in range(2):
            c.sendall(b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            assert read_response(c)[2] == b"no"


def test_connect_method(one, daemon):
    def handle(server, c, n):
        read_head(c)
        c.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        while data := c.recv(65536):
            c.sendall(data.upper())

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"CONNECT a.example:22 HTTP/1.1\r\nHost: a.example:22\r\n\r\n")
        assert read_head(c).startswith(b"HTTP/1.1 200")
        c.sendall(b"ssh")
        assert read_exactly(c, 3) == b"SSH"


# --- slow and dying peers ---------------------------------------------------------------------------


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def daemon_pid(d):
    return int(next(x for x in d.cli("show info").splitlines() if x.startswith("Pid:")).split()[1])


@pytest.mark.skipif(SLOW > 1, reason="memory of a sanitizer build says nothing")
def test_slow_readers_do_not_cost_memory(one, daemon):
    """20 clients that do not read a 64 MiB answer: the server is held back, not stored."""
    sent = [0] * 100

    def handle(server, c, n):
        c.settimeout(None)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        if not read_head(c):
            return
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        block = b"z" * 65536
        for _ in range(1024):
            c.sendall(block)
            sent[n] += len(block)

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg("timeout client 30s"))
    before = rss_kib(daemon_pid(d))
    clients = []
    for _ in range(20):
        c = connect(one, "127.0.0.1", 8000)
        c.sendall(GET)
        clients.append(c)
    last = -1
    for _ in range(50):
        time.sleep(0.2)
        if sum(sent) == last:
            break
        last = sum(sent)
    assert sum(sent) < 20 * (32 << 20)
    assert rss_kib(daemon_pid(d)) - before < 20 * 256
    total = len(read_exactly(clients[0], 64 << 20))  # and the one that reads gets everything
    assert total == 64 << 20
    for c in clients:
        c.close()


def test_slow_writer(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, hash_server)
    daemon(one, cfg("timeout client 2s"))
    body = os.urandom(600)
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 600\r\n\r\n")
        for i in range(0, 600, 20):
            c.sendall(body[i:i + 20])
            time.sleep(0.02)
        assert read_response(c)[2].decode().endswith(hashlib.sha256(body).hexdigest())


def test_server_abort_in_the_body_is_seen(one, daemon):
    def handle(server, c, n):
        buf = read_head(c)
        if b"chunked" in buf:
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        else:
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg())
    out = raw(one, "127.0.0.1", 8000, GET)
    assert b"hello" in out and out.count(b"HTTP/") == 1  # cut, so the client notices
    out = raw(one, "127.0.0.1", 8000, GET.replace(b"/x", b"/chunked"))
    assert b"hello" in out and not out.endswith(b"0\r\n\r\n")
    assert int(d.stat("web", "s1")["srv_abrt"]) == 2


def test_client_abort_frees_the_server_side(one, daemon):
    gone = threading.Event()

    def handle(server, c, n):
        read_head(c)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        try:
            while True:
                c.sendall(b"y" * 65536)
        except OSError:
            gone.set()
            raise

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg())
    c = connect(one, "127.0.0.1", 8000)
    c.sendall(GET)
    c.recv(1000)
    c.close()
    assert gone.wait(15 * SLOW)
    wait_for("the stream to end", lambda: d.stat("web", "s1")["scur"] == "0")
    assert int(d.stat("web", "s1")["cli_abrt"]) == 1


@pytest.mark.parametrize("linger", [0.0, 0.02])
def test_server_closing_idle_connections_fails_no_request(one, daemon, linger):
    """Keep-alive is promised, then broken: right after the answer, or a moment later."""

    def handle(server, c, n):
        for _ in range(2 if linger else 1):
            if not read_head(c):
                return
            c.sendall(reply(b"fine"))
        time.sleep(linger)

    srv = ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg(nbthread=2))
    with connect(one, "127.0.0.1", 8000) as c:
        for i in range(300):
            c.sendall(GET)
            status, headers, body = read_response(c)
            assert (status, body) == (200, b"fine"), i
            if i % 10 == 9:
                time.sleep(0.019 + i % 3 * 0.001)
    assert d.stat("web", "FRONTEND")["hrsp_2xx"] == "300"
    assert srv.count > 100


def test_server_close_option(one, daemon):
    srv = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    daemon(one, cfg("option http-server-close"))
    with connect(one, "127.0.0.1", 8000) as c:
        for _ in range(3):
            c.sendall(GET)
            assert read_response(c)[0] == 200
    assert srv.count == 3
    assert all(b"connection: close" in h.lower() for h in srv.received)


def test_httpclose_option(one, daemon):
    srv = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    daemon(one, cfg("option httpclose"))
    out = raw(one, "127.0.0.1", 8000, GET)
    assert out.endswith(b"ok") and b"connection: close" in out.lower()
    assert srv.count == 1


def test_forwardfor_and_headers(one, daemon):
    srv = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    daemon(one, cfg("option forwardfor"))
    raw(one, "127.0.0.1", 8000, b"GET /p?q=1 HTTP/1.1\r\nHost: h.example\r\nX-Odd:  v  \r\nConnection: close, X-Hop\r\n"
                                b"X-Hop: 1\r\n\r\n")
    head = srv.received[0].decode().lower()
    assert head.startswith("get /p?q=1 http/1.1\r\n")
    assert "x-forwarded-for: 127.0.0.1\r\n" in head
    assert "host: h.example\r\n" in head and "x-odd: v\r\n" in head


def test_many_clients_at_once(one, daemon):
    """200 connections over two workers, all at the same time, each with its own answer."""

    def handle(server, c, n):
        while buf := read_head(c):
            c.sendall(reply(buf.split()[1]))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg(nbthread=2))
    clients = [connect(one, "127.0.0.1", 8000) for _ in range(200)]
    for r in range(3):
        for i, c in enumerate(clients):
            c.sendall(b"GET /%d/%d HTTP/1.1\r\nHost: a\r\n\r\n" % (r, i))
        for i, c in enumerate(clients):
            assert read_response(c)[2] == b"/%d/%d" % (r, i)
    assert d.stat("web", "FRONTEND")["scur"] == "200"
    for c in clients:
        c.close()
    wait_for("clients to be gone", lambda: d.stat("web", "FRONTEND")["scur"] == "0")
    assert d.stat("web", "FRONTEND")["req_tot"] == "600"


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
def test_max_forwards(one, daemon, method):
    """RFC 9110 7.6.2: one hop less each time; with none left the request ends here, in both protocol versions."""
    srv = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"far"))
    daemon(one, cfg())
    ask = lambda hops, *args: one.run(["curl", "-s", "-m", "5", "-i", "-X", method, "-H", f"Max-Forwards: {hops}", *args,
                                       "http://127.0.0.1:8000/"]).stdout.lower()
    for args in ([], ["--http2-prior-knowledge"]):
        out = ask(0, *args)
        assert (" 200" if method == "OPTIONS" else " 405") in out.splitlines()[0] and "allow: get, head" in out
    assert not srv.received
    assert "far" in ask(5) and b"max-forwards: 4" in srv.received[-1].lower()
    assert "far" in ask(1) and b"max-forwards: 0" in srv.received[-1].lower()
    assert "far" in ask("many") and b"max-forwards: many" in srv.received[-1].lower()
    one.run(["curl", "-s", "-m", "5", "-H", "Max-Forwards: 0", "http://127.0.0.1:8000/"])
    assert b"max-forwards: 0" in srv.received[-1].lower() and srv.received[-1].startswith(b"GET")
