# SPDX-License-Identifier: BSD-2-Clause
"""compression: the same responses as HAProxy, whole bodies over HTTP/1 and HTTP/2, streams, limits, counters."""

import gzip
import http.client
import random
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import SLOW, ScriptedServer, connect, read_head, read_response, recv_all, reply, wait_for
from peer import Pair

HEAD = """
global
    nbthread 1
{more}
defaults
    mode http
    timeout client 120s
    timeout server 120s
    timeout connect 1s
"""
CFG = """
frontend web
    bind 127.0.0.1:{port}
    compression algo gzip deflate
    compression type text/ application/json
    http-after-response set-header x-seen "%[res.hdr(content-encoding)]"
    default_backend app
backend app
    server s 127.0.0.1:9001
frontend off
    bind 127.0.0.1:{port1}
    compression algo raw-deflate
    compression offload
    default_backend app
frontend id
    bind 127.0.0.1:{port2}
    compression algo identity
    default_backend app
"""
TEXT = b"".join(b"line %d of a text that repeats itself\n" % (i % 97) for i in range(5000))
RANDOM = random.Random(7).randbytes(3 * 1024 * 1024)

BODIES = {
    "/text": reply(TEXT, headers=["Content-Type: text/plain", 'ETag: "v1"', "Vary: Cookie"]),
    "/json": reply(b'{"a": 1}', headers=["Content-Type: application/json; charset=utf-8"]),
    "/png": reply(TEXT, headers=["Content-Type: image/png"]),
    "/notype": reply(TEXT),
    "/weak": reply(TEXT, headers=["Content-Type: text/css", 'ETag: W/"v1"']),
    "/badetag": reply(TEXT, headers=["Content-Type: text/css", "ETag: v1"]),
    "/br": reply(TEXT, headers=["Content-Type: text/css", "Content-Encoding: br"]),
    "/notransform": reply(TEXT, headers=["Content-Type: text/css", "Cache-Control: no-transform"]),
    "/206": reply(TEXT, "206 Partial Content", ["Content-Type: text/css", "Content-Range: bytes 0-9/10"]),
    "/201": reply(TEXT, "201 Created", ["Content-Type: text/css"]),
    "/404": reply(TEXT, "404 Not Found", ["Content-Type: text/css"]),
    "/empty": reply(b"", headers=["Content-Type: text/css"]),
    "/chunked": b"HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    "/1.0": b"HTTP/1.0 200 OK\r\nContent-Type: text/css\r\nContent-Length: 5\r\n\r\nhello",
    "/huge": reply(RANDOM * 4, headers=["Content-Type: text/plain"]),
    "/random": reply(RANDOM, headers=["Content-Type: text/plain"]),
}


def serve(server, c, n):
    while head := read_head(c):
        server.received.append(head)
        path = head.split()[1].decode()
        c.sendall(BODIES[path])
        if path == "/1.0":
            return


def get(path, encoding="gzip", method="GET", version="1.1", extra=""):
    ae = f"Accept-Encoding: {encoding}\r\n" if encoding else ""
    return f"{method} {path} HTTP/{version}\r\nHost: a.example\r\n{ae}{extra}\r\n".encode()


def decode(headers, body):
    coding = headers.get("content-encoding")
    if coding == "gzip":
        return gzip.decompress(body)
    if coding == "deflate":
        return zlib.decompress(body, -15 if body[:1] != b"\x78" else 15)
    return body


def read_all(c):
    """Fields and body of one response, without a copy for each piece."""
    r = http.client.HTTPResponse(c)
    r.begin()
    body = r.read()
    c.close()
    return {k.lower(): v for k, v in r.getheaders()}, body


def comparable(answer):
    status, headers, body = answer
    if headers.get("connection") == "keep-alive":  # HAProxy repeats what a 1.0 server is known for
        del headers["connection"]
    return status, headers, decode(headers, body)


def test_same_responses_as_haproxy(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, serve)
    pair = Pair(one, daemon, HEAD.replace("{more}", "") + CFG)
    for path in BODIES.keys() - {"/huge"}:
        for encoding in ("gzip", "deflate", "*", "identity", "br, deflate;q=0.5, gzip;q=0.8", "gzip;q=0", None):
            ours, theirs = map(comparable, pair.ask(get(path, encoding)))
            assert ours == theirs, (path, encoding)
    for request, i in ((get("/text", version="1.0"), 0), (get("/text", "deflate"), 1), (get("/text"), 2),
                       (get("/text", extra="User-Agent: Mozilla/4.0\r\n"), 0)):
        ours, theirs = map(comparable, pair.ask(request, i))
        assert ours == theirs, request
    ours, theirs = pair.ask(get("/text", method="HEAD"), head_only=True)
    assert ours == theirs and "content-encoding" not in ours[1]
    status, headers, body = pair.ask(get("/text"))[0]
    assert headers["content-encoding"] == "gzip" and headers["etag"] == 'W/"v1"' and len(body) < len(TEXT) / 10
    assert headers["vary"] in ("Accept-Encoding", "Cookie")


def test_offload_takes_the_request_field_away(one, daemon):
    server = ScriptedServer(one, "127.0.0.1", 9001, serve)
    daemon(one, HEAD.replace("{more}", "") + CFG.replace("{port}", "8000").replace("{port1}", "8001").replace("{port2}", "8002"))
    for port, is_there in ((8000, True), (8001, False)):
        with connect(one, "127.0.0.1", port) as c:
            c.sendall(get("/text", "deflate, br"))
            read_response(c)
        assert (b"accept-encoding" in server.received[-1].lower()) == is_there
    with connect(one, "127.0.0.1", 8001) as c:  # nothing of what is offered: the server may do it
        c.sendall(get("/text", "br"))
        read_response(c)
    assert b"accept-encoding: br" in server.received[-1].lower()


@pytest.fixture
def plain(one, daemon):
    def start(more="", lines=""):
        server = ScriptedServer(one, "127.0.0.1", 9001, serve)
        d = daemon(one, HEAD.replace("{more}", more) + f"""
listen web
    bind 127.0.0.1:8000
    compression algo gzip
{lines}
    server s 127.0.0.1:9001
""")
        return server, d

    return start


def test_whole_bodies_and_counters(one, plain):
    """3 MiB that hardly shrink, over HTTP/1 and HTTP/2, with a reader that takes its time; one connection goes on."""
    _, d = plain()
    with connect(one, "127.0.0.1", 8000, timeout=30) as c:
        for path, want in (("/random", RANDOM), ("/text", TEXT), ("/random", RANDOM)):
            c.sendall(get(path))
            time.sleep(0.3)
            _, headers, body = read_response(c)
            assert headers["content-encoding"] == "gzip" and gzip.decompress(body) == want
    for _ in range(2):
        out = one.run(["curl", "-s", "--http2-prior-knowledge", "--compressed", "--limit-rate", "8M", "-o",
                       str(one.lab.dir / "got"), "-w", "%{http_version} %{size_download}", "http://127.0.0.1:8000/random"]).stdout
        assert out.startswith("2 ")
        assert (one.lab.dir / "got").read_bytes() == RANDOM
    for sv in ("FRONTEND", "BACKEND"):
        row = d.stat("web", sv)
        assert int(row["comp_rsp"]) == 5 and int(row["comp_in"]) == 4 * len(RANDOM) + len(TEXT)
        assert 4 * len(RANDOM) < int(row["comp_out"]) < 4 * len(RANDOM) * 1.01 + len(TEXT) / 5
        assert int(row["comp_byp"]) == 0


def test_a_pausing_server_is_heard(one, daemon):
    """What the server has said is readable before it says the rest (server-sent events)."""
    go = []

    def events(server, c, n):
        read_head(c)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(3):
            wait_for("the client's turn", lambda i=i: len(go) >= i, timeout=10 * SLOW)
            c.sendall(b"8\r\nevent %d\n\r\n" % i)
        c.sendall(b"0\r\n\r\n")

    ScriptedServer(one, "127.0.0.1", 9001, events)
    daemon(one, HEAD.replace("{more}", "") + """
listen web
    bind 127.0.0.1:8000
    compression algo gzip
    server s 127.0.0.1:9001
""")
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(get("/"))
        buf, z, seen = b"", zlib.decompressobj(31), b""
        while b"\r\n\r\n" not in buf:
            buf += c.recv(65536)
        buf = buf.split(b"\r\n\r\n", 1)[1]
        for i in range(3):
            while not seen.endswith(b"event %d\n" % i):
                buf = buf.removeprefix(b"\r\n")
                size, crlf, rest = buf.partition(b"\r\n")
                if not crlf or len(rest) < int(size, 16):
                    buf += c.recv(65536)
                    continue
                seen += z.decompress(rest[:int(size, 16)])
                buf = rest[int(size, 16):]
            go.append(1)
        while not buf.endswith(b"0\r\n\r\n"):
            buf += c.recv(65536)
    assert seen == b"event 0\nevent 1\nevent 2\n"


def test_memory_is_bounded(one, plain):
    """maxzlibmem 1: three responses at a time; the others go as they are, and all are whole."""
    _, d = plain("    maxzlibmem 1\n")
    conns = [connect(one, "127.0.0.1", 8000, timeout=30) for _ in range(8)]
    for c in conns:
        c.sendall(get("/huge"))
    for c in conns:  # every answer has begun, and has what it needs or goes without
        c.recv(1, socket.MSG_PEEK)
    assert d.stat("web", "BACKEND")["scur"] == "8"
    # All at once: a client that reads nothing for long is cut off.
    with ThreadPoolExecutor(len(conns)) as pool:
        answers = list(pool.map(read_all, conns))
    codings = [headers.get("content-encoding") for headers, _ in answers]
    assert all(decode(headers, body) == RANDOM * 4 for headers, body in answers)
    assert codings.count("gzip") == 3 and codings.count(None) == 5, codings
    assert int(d.stat("web", "BACKEND")["comp_rsp"]) == 3
    with connect(one, "127.0.0.1", 8000) as c:  # the memory is free again
        c.sendall(get("/text"))
        assert read_response(c)[1]["content-encoding"] == "gzip"


def test_rate_limit(one, plain):
    """maxcomprate 100 (kB/s): after three megabytes nothing more is compressed in that second."""
    _, d = plain("    maxcomprate 100\n")
    coded = 0
    with connect(one, "127.0.0.1", 8000, timeout=30) as c:
        for _ in range(20):
            c.sendall(get("/text"))
            _, headers, body = read_response(c)
            assert decode(headers, body) == TEXT
            coded += "content-encoding" in headers
    assert 1 <= coded < 20
    assert int(d.stat("web", "BACKEND")["comp_in"]) == coded * len(TEXT)


def test_server_dies_in_the_middle(one, daemon):
    """A truncated body is seen as such: no last chunk."""
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: read_head(c) and c.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + TEXT[:50000]))
    d = daemon(one, HEAD.replace("{more}", "") + """
listen web
    bind 127.0.0.1:8000
    compression algo gzip
    server s 127.0.0.1:9001
""")
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(get("/"))
        out = recv_all(c)
    assert b"content-encoding: gzip" in out.lower() and not out.endswith(b"0\r\n\r\n")
    assert int(d.stat("web", "BACKEND")["comp_rsp"]) == 0


def test_minsize_and_scope(one, plain):
    server, d = plain(lines="    compression minsize-res 1k\n    compression type text/")
    with connect(one, "127.0.0.1", 8000) as c:
        for path, want in (("/json", None), ("/text", "gzip"), ("/png", None), ("/chunked", "gzip"), ("/notype", None)):
            c.sendall(get(path))
            assert read_response(c)[1].get("content-encoding") == want, path


def upload(path="/up", body=TEXT, extra="Content-Type: text/plain\r\n", version="1.1", chunked=False):
    if chunked:
        pieces = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7000]), body[i:i + 7000]) for i in range(0, len(body), 7000))
        framing, body = "Transfer-Encoding: chunked", pieces + b"0\r\n\r\n"
    else:
        framing = f"Content-Length: {len(body)}"
    return f"POST {path} HTTP/{version}\r\nHost: a.example\r\n{extra}{framing}\r\n\r\n".encode() + body


def read_message(c, buf=b""):
    """Head as fields in lower case, and the body without its framing."""
    while b"\r\n\r\n" not in buf:
        chunk = c.recv(65536)
        if not chunk:
            return None
        buf += chunk
    head, rest = buf.split(b"\r\n\r\n", 1)
    fields = {k.lower().decode(): v.strip().decode() for k, v in (x.split(b":", 1) for x in head.split(b"\r\n")[1:])}
    out = b""
    if fields.get("transfer-encoding") == "chunked":
        while True:
            while b"\r\n" not in rest:
                rest += c.recv(65536)
            line, rest = rest.split(b"\r\n", 1)
            n = int(line, 16)
            while len(rest) < n + 2:
                rest += c.recv(65536)
            out, rest = out + rest[:n], rest[n + 2:]
            if not n:
                return fields, out
    while len(rest) < int(fields.get("content-length", 0)):
        rest += c.recv(65536)
    return fields, rest


def test_requests(one, daemon):
    """Bodies on their way to the server: coded when they may be, whole again behind it, also when sent twice."""
    got = []

    def take(server, c, n):
        while m := read_message(c):
            got.append(m)
            if m[0].get("x-fail") and len(got) == 1:
                return
            c.sendall(reply(TEXT, headers=["Content-Type: text/plain"]))

    ScriptedServer(one, "127.0.0.1", 9001, take)
    d = daemon(one, HEAD.replace("{more}", "    stats socket {sock} level admin\n    maxcomprate 100000") + """
    retries 2
    retry-on empty-response
frontend web
    bind 127.0.0.1:8000
    compression direction request
    compression algo gzip
    compression algo-req gzip
    compression type-req text/
    compression minsize-req 100
    default_backend app
frontend both
    bind 127.0.0.1:8001
    compression direction both
    compression algo gzip
    compression algo-req raw-deflate
    default_backend app
backend app
    server s 127.0.0.1:9001
""")

    def send(data, port=8000):
        got.clear()
        with connect(one, "127.0.0.1", port) as c:
            c.sendall(data)
            status, headers, body = read_response(c)
        assert status == 200
        return got[-1][0], got[-1][1], headers

    for data in (upload(), upload(chunked=True), upload(extra="Content-Type: text/x\r\nX-Fail: 1\r\n", body=TEXT[:8000])):
        fields, body, answer = send(data)
        assert fields["content-encoding"] == "gzip" and "content-length" not in fields
        assert gzip.decompress(body) in (TEXT, TEXT[:8000]) and len(body) < 8000
        assert "content-encoding" not in answer
    assert len(got) == 2 and got[0][1] == got[1][1], "what is sent again is coded again"
    for data in (upload(extra="Content-Type: image/png\r\n"), upload(body=b"x" * 99), upload(body=b""),
                 upload(extra="Content-Type: text/a\r\nContent-Encoding: br\r\n"), upload(extra=""),
                 upload(extra="Content-Type: text/a\r\nCache-Control: no-transform\r\n"), upload(version="1.0")):
        fields, body, answer = send(data)
        assert fields.get("content-encoding") in (None, "br") and data.endswith(body)
    fields, body, answer = send(upload(extra="Accept-Encoding: gzip\r\n"), 8001)
    assert fields["content-encoding"] == "deflate" and zlib.decompress(body, -15) == TEXT
    assert answer["content-encoding"] == "gzip"
    # All of it is seen in the rates, responses only in the columns.
    assert d.stat("web", "FRONTEND")["comp_in"] == "0" and d.stat("both", "FRONTEND")["comp_in"] == str(len(TEXT))

    def rates():
        send(upload())
        info = dict(line.split(": ", 1) for line in d.cli("show info").splitlines() if ": " in line)
        assert info["CompressBpsRateLim"] == str(100000 * 1024)
        return int(info["CompressBpsIn"]) > 10 * int(info["CompressBpsOut"]) > 0

    wait_for("rates of compression", rates, timeout=15 * SLOW)
