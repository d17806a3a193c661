# SPDX-License-Identifier: BSD-2-Clause
"""HTTP/2 towards servers: real and scripted ones, gRPC end to end, and servers that misbehave."""

import hashlib
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import (SLOW, ScriptedServer, bounded_memory, connect, keepalive_server, make_cert, read_head, read_response, reply, start_nginx,
                      wait_for)

h2_connection = pytest.importorskip("h2.connection")
h2_events = pytest.importorskip("h2.events")
h2_config = pytest.importorskip("h2.config")
h2_errors = pytest.importorskip("h2.errors")

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
    retries 3
listen web
    bind 127.0.0.1:8000
    bind 127.0.0.1:8002 proto h2
    {options}
    server s1 127.0.0.1:9001 {server}
"""


def cfg(server="proto h2", options=""):
    return CFG.replace("{server}", server).replace("{options}", options)


def h2_server(on_request, on_start=None):
    """Handler of a ScriptedServer that speaks HTTP/2; on_request(conn, stream, headers, body, send) runs at END_STREAM."""

    def handle(server, c, n):
        h = h2_connection.H2Connection(h2_config.H2Configuration(client_side=False, header_encoding="utf-8"))
        h.initiate_connection()
        if on_start:
            on_start(h, n)
        lock = threading.Lock()
        heads, bodies = {}, {}

        def flush():
            with lock:
                c.sendall(h.data_to_send())

        flush()
        while data := c.recv(65536):
            for e in h.receive_data(data):
                if isinstance(e, h2_events.RequestReceived):
                    heads[e.stream_id], bodies[e.stream_id] = dict(e.headers), b""
                    server.received.append((n, dict(e.headers)))
                elif isinstance(e, h2_events.DataReceived):
                    bodies[e.stream_id] += e.data
                    h.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                elif isinstance(e, h2_events.StreamEnded):
                    if on_request(h, e.stream_id, heads[e.stream_id], bodies[e.stream_id], flush) == "close":
                        flush()
                        return
            flush()

    return handle


def answer(h, stream, body=b"ok", headers=(), end=True):
    h.send_headers(stream, [(":status", "200"), ("content-length", str(len(body))), *headers], end_stream=not body)
    if body:
        h.send_data(stream, body, end_stream=end)


def echo(h, stream, head, body, flush):
    if head[":method"] == "HEAD":
        h.send_headers(stream, [(":status", "200"), ("content-length", "1234")], end_stream=True)
    elif head[":path"] == "/empty":
        h.send_headers(stream, [(":status", "204")], end_stream=True)
    elif head[":path"] == "/unsized":
        h.send_headers(stream, [(":status", "200")])
        h.send_data(stream, b"no length")
        h.send_headers(stream, [("x-sum", "42")], end_stream=True)
    else:
        answer(h, stream, body or b"hello", [("x-scheme", head[":scheme"]), ("x-authority", head[":authority"])])


def curl(one, *args):
    return one.run(["curl", "-sS", "-m", "20", *args])


@pytest.mark.parametrize("flag,port", [("--http1.1", 8000), ("--http2-prior-knowledge", 8000), ("--http2-prior-knowledge", 8002)])
def test_messages(one, daemon, flag, port):
    """Both kinds of clients in front of an HTTP/2 server."""
    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(echo))
    daemon(one, cfg())
    get = lambda path, *a: curl(one, flag, "-i", *a, f"http://127.0.0.1:{port}{path}").stdout
    out = get("/a")
    assert " 200" in out.splitlines()[0] and out.endswith("hello")
    assert "x-scheme: http" in out and f"x-authority: 127.0.0.1:{port}" in out
    assert get("/b", "-d", "some=body").endswith("some=body")
    assert "1234" in get("/c", "-I")
    assert " 204" in get("/empty").splitlines()[0]
    assert "no length" in get("/unsized")
    assert get("/d", "-H", "Connection: close, X-Hop", "-H", "X-Hop: 1", "-H", "TE: gzip").endswith("hello")
    for n, head in srv.received:
        assert not {"connection", "te", "keep-alive", "host", "transfer-encoding"} & set(head), head
        assert "x-hop" not in head or "http2" in flag  # HTTP/2 clients nominate no fields
    # The first request of a client that is not idempotent takes no chances with a connection that is there.
    assert srv.count <= 2


def test_big_bodies_both_ways(one, daemon):
    start_nginx(one, ["127.0.0.1:9001 http2"], name="up")
    daemon(one, cfg())
    data = bytes(range(256)) * 40000
    (one.lab.dir / "files" / "big").write_bytes(data)
    want = hashlib.sha256(data).hexdigest()
    urls = " ".join(["http://127.0.0.1:8000/file/big"] * 6)
    out = one.run(f"curl -sS -Z --parallel-max 6 -m 60 {urls} | sha256sum").stdout
    assert len(out) > 10
    for flag in ("--http1.1", "--http2-prior-knowledge"):
        out = one.run(f"curl -sS -m 60 {flag} http://127.0.0.1:8000/file/big | sha256sum").stdout
        assert out.split()[0] == want


def test_uploads(one, daemon):
    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(
        lambda h, s, head, body, flush: answer(h, s, hashlib.sha256(body).hexdigest().encode())))
    daemon(one, cfg())
    data = bytes(range(256)) * 12000
    up = one.lab.dir / "up"
    up.write_bytes(data)
    for flag in ("--http1.1", "--http2-prior-knowledge"):
        assert curl(one, flag, "--data-binary", f"@{up}", "http://127.0.0.1:8000/").stdout == hashlib.sha256(data).hexdigest()
    out = curl(one, "--http1.1", "-H", "Transfer-Encoding: chunked", "-T", str(up), "http://127.0.0.1:8000/x").stdout
    assert out == hashlib.sha256(data).hexdigest()
    assert srv.count >= 1


@pytest.mark.parametrize("alpn,speaks", [("h2,http/1.1", "h2"), ("http/1.1", "http/1.1"), (None, None)])
def test_alpn_decides(one, daemon, alpn, speaks):
    """A TLS server chooses: HTTP/2 where it can, HTTP/1 otherwise; an upgrade is always asked for in HTTP/1."""
    make_cert(one.lab.dir / "s.pem", ["s.example"])
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(one.lab.dir / "s.pem")
    if alpn:
        ctx.set_alpn_protocols(alpn.split(","))
    chosen = []

    def handle(server, c, n):
        with ctx.wrap_socket(c, server_side=True) as t:
            chosen.append(t.selected_alpn_protocol())
            if chosen[-1] == "h2":
                h2_server(echo)(server, t, n)
            while head := read_head(t):
                if b"upgrade: websocket" in head.lower():
                    t.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi")
                    t.recv(10)
                    return
                t.sendall(reply(b"hello"))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg(f"ssl verify required ca-file {one.lab.dir}/s.pem sni str(s.example) alpn h2,http/1.1"))
    for _ in range(3):
        assert curl(one, "http://127.0.0.1:8000/").stdout == "hello"
    assert set(chosen) == {speaks}
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        out = b""
        while not out.endswith(b"hi"):
            out += c.recv(1000)
        assert out.startswith(b"HTTP/1.1 101")
    assert chosen[-1] == ("http/1.1" if alpn else None)


def test_health_checks(one, daemon):
    """HTTP checks speak what the traffic speaks: by `proto`, by ALPN; or what `check-proto` and `check-alpn` say."""
    make_cert(one.lab.dir / "s.pem", ["s.example"])
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(one.lab.dir / "s.pem")
    ctx.set_alpn_protocols(["h2", "http/1.1"])
    http1, bodies, status = [], [], ["200"]

    def health(h, stream, head, body, flush):
        bodies.append(body)
        h.send_headers(stream, [(":status", "103"), ("link", "early")])
        h.send_headers(stream, [(":status", status[0]), ("x-kind", "fine")])
        h.send_data(stream, b"all is ")
        h.send_data(stream, b"well", end_stream=True)

    def over_tls(server, c, n):
        with ctx.wrap_socket(c, server_side=True) as t:
            if t.selected_alpn_protocol() == "h2":
                h2_server(health)(server, t, n)
            elif head := read_head(t):
                http1.append(head.split()[0])
                t.sendall(reply(b"checked"))

    clear = ScriptedServer(one, "127.0.0.1", 9001, h2_server(health))
    tls = ScriptedServer(one, "127.0.0.1", 9002, over_tls)
    ScriptedServer(one, "127.0.0.1", 9003, lambda server, c, n: c.sendall(b"\0\0\0\4\0\0\0\0\0"))
    d = daemon(one, cfg("proto h2 check inter 100ms", """
    option httpchk
    http-check send meth POST uri /up ver HTTP/1.1 hdr Host check.example hdr X-Some thing body question
    http-check expect fhdr name "x-kind" value "fine"
    http-check expect string "is well" """) + """
listen over
    bind 127.0.0.1:8001
    option httpchk GET /tls
    server a 127.0.0.1:9002 ssl verify none alpn h2,http/1.1 check inter 100ms
    server b 127.0.0.1:9002 ssl verify none alpn h2,http/1.1 check-alpn http/1.1 check inter 100ms
    server c 127.0.0.1:9003 proto h2 check-proto h1 check inter 100ms
    server d 127.0.0.1:9001 check-proto h2 check inter 100ms
""")

    def result(px, srv, want, code):
        def seen():
            st = d.stat(px, srv)
            return st["check_status"].strip("* ") == want and st["check_code"] == code
        wait_for(f"{want} of {px}/{srv}", seen, timeout=10 * SLOW)

    result("web", "s1", "L7OK", "200")
    head = clear.received[0][1]
    assert (head[":method"], head[":path"], head[":authority"], head[":scheme"]) == ("POST", "/up", "check.example", "http")
    assert head["x-some"] == "thing" and "connection" not in head and b"question" in bodies
    for srv in "abd":
        result("over", srv, "L7OK", "200")
    wait_for("the server that speaks no HTTP/1 to be down", lambda: d.stat("over", "c")["status"] == "DOWN", timeout=10 * SLOW)
    assert set(http1) == {b"GET"} and {h[":scheme"] for _, h in tls.received} == {"https"}
    status[0] = "503"
    result("over", "a", "L7STS", "503")
    assert d.stat("over", "b")["status"] == "UP"


def test_grpc(one, daemon):
    pytest.importorskip("grpc")
    peer = Path(__file__).with_name("grpc_peer.py")
    one.popen([sys.executable, peer, "serve", "127.0.0.1:9001"], log="grpc.log")
    wait_for("the service", lambda: "serving" in (one.lab.dir / "grpc.log").read_text(), timeout=20 * SLOW)
    daemon(one, cfg())
    done = one.run([sys.executable, peer, "client", "127.0.0.1:8002"], check=False, timeout=120)
    assert "all good" in done.stdout, done.stdout[-3000:] + (done.stderr or "")[-3000:]


def parallel(one, n, path="/", port=8000, timeout=20):
    """n requests at once over HTTP/1; the bodies."""
    out = [None] * n

    def go(i):
        with connect(one, "127.0.0.1", port, timeout=timeout) as c:
            c.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            out[i] = read_response(c)

    threads = [threading.Thread(target=go, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def test_streams_share_connections(one, daemon):
    """Once a connection is there, slow answers do not need one each."""

    def slow(h, stream, head, body, flush):
        def later():
            time.sleep(0.5)
            answer(h, stream, b"done")
            flush()

        threading.Thread(target=later).start()

    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(slow))
    d = daemon(one, cfg())
    assert curl(one, "http://127.0.0.1:8000/").stdout == "done"
    assert all(r[2] == b"done" for r in parallel(one, 40))
    assert srv.count == 1
    assert d.stat("web", "s1")["scur"] == "0"


def test_peer_limit_of_streams(one, daemon):
    """A server that takes two at a time gets more connections, not more streams."""

    def start(h, n):
        h.update_settings({3: 2})

    def slow(h, stream, head, body, flush):
        def later():
            time.sleep(0.3)
            answer(h, stream, b"done")
            flush()

        threading.Thread(target=later).start()

    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(slow, start))
    daemon(one, cfg())
    assert curl(one, "http://127.0.0.1:8000/").stdout == "done"
    assert all(r[0] == 200 for r in parallel(one, 12))
    per = {}
    for n, _ in srv.received:
        per[n] = per.get(n, 0) + 1
    assert len(per) >= 3, per


def test_goaway_loses_nothing(one, daemon):
    """A server that says goodbye every few streams: what it did not process goes elsewhere, POSTs too."""

    def polite(h, stream, head, body, flush):
        answer(h, stream, b"ok")
        if stream >= 9:
            h.close_connection(last_stream_id=stream)
            return "close"
        return None

    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(polite))
    daemon(one, cfg())
    for n in range(60):
        args = ["-d", "x=1"] if n % 2 else []
        assert curl(one, *args, "http://127.0.0.1:8000/").stdout == "ok"
    assert srv.count >= 5


def test_refused_streams_go_again(one, daemon):
    seen = []

    def moody(h, stream, head, body, flush):
        seen.append(head[":method"])
        if len(seen) == 2:
            h.reset_stream(stream, h2_errors.ErrorCodes.REFUSED_STREAM)
        else:
            answer(h, stream, b"ok")

    ScriptedServer(one, "127.0.0.1", 9001, h2_server(moody))
    daemon(one, cfg())
    assert curl(one, "http://127.0.0.1:8000/").stdout == "ok"
    assert curl(one, "-d", "x=1", "http://127.0.0.1:8000/").stdout == "ok"
    assert seen == ["GET", "POST", "POST"]


def test_interim_responses(one, daemon):
    def hints(h, stream, head, body, flush):
        for n in range(3):
            h.send_headers(stream, [(":status", "103"), ("link", f"<{n}>")])
        answer(h, stream, b"final")

    ScriptedServer(one, "127.0.0.1", 9001, h2_server(hints))
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        out = b""
        while chunk := c.recv(65536):
            out += chunk
    assert out.count(b"HTTP/1.1 103") == 3 and out.lower().index(b"<0>") < out.lower().index(b"<1>") < out.lower().index(b"<2>")
    assert out.endswith(b"final")


def test_slow_client_does_not_stop_others(one, daemon):
    start_nginx(one, ["127.0.0.1:9001 http2"], name="up")
    # Longer than curl waits: whoever is held up by the others is found out.
    d = daemon(one, cfg().replace("client 10s", "client 60s").replace("server 10s", "server 60s"))
    (one.lab.dir / "files" / "big").write_bytes(bytes(8_000_000))
    assert len(curl(one, "http://127.0.0.1:8000/file/big").stdout) == 8_000_000
    stuck = []
    with bounded_memory(d, 40 * 256):  # KiB: windows and buffers; the answers are 320 MB
        for _ in range(40):
            c = connect(one, "127.0.0.1", 8000)
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sendall(b"GET /file/big HTTP/1.1\r\nHost: a\r\n\r\n")
            stuck.append(c)
        for c in stuck:
            c.recv(1, socket.MSG_PEEK)
        assert len(curl(one, "http://127.0.0.1:8000/file/big").stdout) == 8_000_000
    for c in stuck:
        c.close()


BAD = {
    "garbage": lambda c: c.sendall(b"\xff" * 5000),
    "http1": lambda c: c.sendall(reply(b"hello")),
    "closes": lambda c: c.close(),
    "silence then reset": lambda c: (c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"), c.close()),
}


@pytest.mark.parametrize("how", BAD)
def test_servers_that_do_not_speak_it(one, daemon, how):
    def handle(server, c, n):
        c.recv(65536)
        time.sleep(0.05)
        BAD[how](c)

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg())
    for _ in range(3):
        out = curl(one, "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8000/").stdout
        assert out == "502"
    assert "Uptime" in d.cli("show info")


def bad_answers():
    def huge(h, s, head, body, flush):
        h.send_headers(s, [(":status", "200"), *((f"x-{n}", "y" * 1000) for n in range(60))])

    def many_hints(h, s, head, body, flush):
        for _ in range(200):
            h.send_headers(s, [(":status", "103")])
        answer(h, s)

    def cut(h, s, head, body, flush):
        answer(h, s, b"half", [], end=False)
        h.reset_stream(s, h2_errors.ErrorCodes.INTERNAL_ERROR)

    def early(h, s, head, body, flush):
        h.reset_stream(s, h2_errors.ErrorCodes.INTERNAL_ERROR)

    return {"huge head": (huge, ("502",)), "many interim heads": (many_hints, ("502", "200")), "cut": (cut, ("200", "502")), "early": (early, ("502",))}


@pytest.mark.parametrize("how", bad_answers())
def test_bad_answers_hurt_only_themselves(one, daemon, how):
    bad, codes = bad_answers()[how]
    ScriptedServer(one, "127.0.0.1", 9001, h2_server(
        lambda h, s, head, body, flush: (bad if head[":path"] == "/bad" else echo)(h, s, head, body, flush)))
    d = daemon(one, cfg())
    with bounded_memory(d, 4096):
        for _ in range(3):
            assert curl(one, "http://127.0.0.1:8000/").stdout == "hello"
            done = one.run(["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8000/bad"], check=False)
            assert done.stdout in codes
            if how == "cut" and done.stdout == "200":
                assert done.returncode != 0
    assert d.stat("web", "s1")["scur"] == "0"


def test_idle_connections_end(one, daemon):
    """The pool's rules count for these connections, too; and a goodbye is said."""
    gone = []

    def handle(server, c, n):
        h2_server(echo)(server, c, n)
        gone.append(n)

    srv = ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg("proto h2 pool-purge-delay 1s"))
    assert curl(one, "http://127.0.0.1:8000/").stdout == "hello"
    wait_for("the connection to end", lambda: gone == [1], timeout=15 * SLOW)
    assert curl(one, "http://127.0.0.1:8000/").stdout == "hello"
    assert srv.count == 2
    d.cli("set server web/s1 state maint")


def test_reload_and_reuse(one, daemon):
    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(echo))
    d = daemon(one, cfg())
    for _ in range(5):
        assert curl(one, "http://127.0.0.1:8000/").stdout == "hello"
        d.cli("reload")
    assert srv.count == 1
    d.write(cfg("proto h2 disabled"))
    d.cli("reload")
    assert curl(one, "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8000/").stdout == "503"
    ScriptedServer(one, "127.0.0.1", 9002, keepalive_server(b"h1"))
    d.write(cfg("proto h2").replace("9001 proto h2", "9002"))
    d.cli("reload")
    wait_for("the new server", lambda: curl(one, "http://127.0.0.1:8000/").stdout == "h1", timeout=10 * SLOW)
