# SPDX-License-Identifier: BSD-2-Clause
"""Bandwidth limits: how long bodies take with them, in every framing and direction, and that nothing is lost."""

import gzip
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import SLOW, ScriptedServer, connect, keepalive_server, read_head, read_response, recv_all, reply

CFG = """
global
    nbthread 2
defaults
    mode http
    timeout client 700ms
    timeout server 700ms
    timeout connect 5s
    timeout http-body 900ms
frontend web
    bind 127.0.0.1:8000
    filter bwlim-in up default-limit 300k default-period 1s
    filter bwlim-out down default-limit 10m default-period 1s
    filter bwlim-out shared limit 300k key path table t
    compression algo gzip
    compression type text/gz
    http-request set-bandwidth-limit up if { method POST }
    http-request set-bandwidth-limit down
    http-request set-bandwidth-limit down limit req.hdr(x-limit) period 500ms if { req.hdr(x-limit) -m found }
    http-request set-bandwidth-limit shared if { path /shared }
    default_backend app
backend app
    server s 127.0.0.1:9001
frontend tcp
    mode tcp
    bind 127.0.0.1:8001
    timeout client 5s
    filter bwlim-in up default-limit 300k default-period 1s min-size 2k
    tcp-request content set-bandwidth-limit up
    default_backend echo
backend echo
    mode tcp
    timeout server 5s
    server s 127.0.0.1:9002
backend t
    stick-table type string size 1k expire 1m store bytes_out_rate(1s)
"""
BODY = random.Random(3).randbytes(300 * 1024)
FRAMES = {
    b"/length": reply(BODY),
    b"/shared": reply(BODY),
    b"/gzip": reply(BODY, headers=["Content-Type: text/gz"]),
    b"/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                 + b"".join(b"%x\r\n" % 5000 + BODY[i:i + 5000] + b"\r\n" for i in range(0, 300000, 5000))
                 + b"%x\r\n" % len(BODY[300000:]) + BODY[300000:] + b"\r\n0\r\n\r\n",
    b"/close": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + BODY,
}


def serve(server, c, n):
    while head := read_head(c):
        head, _, body = head.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
        while len(body) < length:
            body += c.recv(65536)
        server.received.append(body)
        path = head.split()[1]
        c.sendall(FRAMES[path])
        if path == b"/close":
            return


def timed(one, request):
    began = time.monotonic()
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(request)
        status, headers, body = read_response(c)
    assert status == 200
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    assert body == BODY
    return time.monotonic() - began


def get(path, more=""):
    return f"GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n{more}\r\n".encode()


def test_bodies_take_their_time(one, daemon):
    server = ScriptedServer(one, "127.0.0.1", 9001, serve)
    ScriptedServer(one, "127.0.0.1", 9002, lambda s, c, n: [c.sendall(d) for d in iter(lambda: c.recv(65536), b"")])
    daemon(one, CFG)
    post = f"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY

    def tunnel():
        began = time.monotonic()
        with connect(one, "127.0.0.1", 8001) as c:
            c.sendall(BODY)
            c.shutdown(1)
            assert recv_all(c) == BODY
        return time.monotonic() - began

    # 300 KiB at 300 KiB/s are a second, longer than any timeout: who is held back is not late.
    with ThreadPoolExecutor(10) as pool:
        slow = [pool.submit(timed, one, get(path, f"X-Limit: {150 * 1024}\r\n"))
                for path in ("/length", "/chunked", "/close", "/gzip")]
        slow += [pool.submit(timed, one, post), pool.submit(tunnel)]
        shared = [pool.submit(timed, one, get("/shared")) for _ in range(2)]
        fast = [pool.submit(timed, one, get("/length")) for _ in range(2)]
        slow, shared, fast = ([f.result() for f in fs] for fs in (slow, shared, fast))
    assert all(0.85 < t < 1.5 * SLOW for t in slow), slow
    assert 1.85 < max(shared) < 2.8 * SLOW, shared
    assert all(t < 0.5 * SLOW for t in fast), fast
    assert server.received.count(BODY) == 1


def test_http2(one, daemon):
    """Streams of one connection, each with its own limit; the others go on meanwhile."""
    ScriptedServer(one, "127.0.0.1", 9001, serve)
    daemon(one, CFG.replace("bind 127.0.0.1:8000", "bind 127.0.0.1:8000 proto h2"))
    (one.lab.dir / "body").write_bytes(BODY)
    began = time.monotonic()
    out = one.run(["curl", "-sS", "--http2-prior-knowledge", "--parallel", "--parallel-immediate", "-w", "%{time_total}\\n",
                   "-o", one.lab.dir / "out1", "http://127.0.0.1:8000/length", "-H", f"X-Limit: {150 * 1024}",
                   "--next", "-sS", "--http2-prior-knowledge", "-w", "%{time_total}\\n",
                   "-o", one.lab.dir / "out2", "--data-binary", f"@{one.lab.dir / 'body'}", "http://127.0.0.1:8000/length",
                   ], timeout=20 * SLOW)
    times = [float(t) for t in out.stdout.split()]
    assert all(0.85 < t < 1.5 * SLOW for t in times) and time.monotonic() - began < 1.9 * SLOW, times
    for name in ("out1", "out2"):
        assert (one.lab.dir / name).read_bytes() == BODY
