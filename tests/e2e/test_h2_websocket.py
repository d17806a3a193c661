# SPDX-License-Identifier: BSD-2-Clause
"""WebSockets over all four combinations of HTTP/1 and HTTP/2 (RFC 8441), with real clients' and scripted servers' bytes."""

import base64
import hashlib
import ssl
import threading

import pytest
from conftest import ScriptedServer, connect, make_cert, read_head, reply, wait_for

h2_connection = pytest.importorskip("h2.connection")
h2_events = pytest.importorskip("h2.events")
h2_config = pytest.importorskip("h2.config")
h2_settings = pytest.importorskip("h2.settings")

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
    timeout tunnel 20s
listen web
    bind 127.0.0.1:8000
    http-request add-header X-Seen yes
    http-response add-header X-Back yes
    server s1 127.0.0.1:9001 {server}
"""
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455 1.3
CODE = h2_settings.SettingCodes.ENABLE_CONNECT_PROTOCOL


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())


def h1_server(server, c, n):
    """Shouts back what it is told, after an upgrade; anything else is answered."""
    while head := read_head(c):
        head, rest = head.split(b"\r\n\r\n", 1)
        server.received.append(head)
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if fields.get(b"upgrade") != b"websocket":
            c.sendall(reply(b"plain h1"))
            continue
        key = [line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")][0]
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  b"Sec-WebSocket-Accept: " + accept_of(key) + b"\r\n\r\n" + rest.upper())
        while data := c.recv(65536):
            c.sendall(data.upper())
        return


def h2_server(takes=True, status="200", late=None):
    """The same over HTTP/2. `late`: an event before which it keeps its SETTINGS to itself."""

    def handle(server, c, n):
        h = h2_connection.H2Connection(h2_config.H2Configuration(client_side=False, header_encoding="utf-8"))
        if takes:
            h.local_settings[CODE] = 1
        h.initiate_connection()
        if takes:
            h.update_settings({CODE: 1})
        if late:
            late.wait(20)
        c.sendall(h.data_to_send())
        tunnels, waiting, ended = set(), {}, set()

        def send(stream):
            while waiting[stream] and (n := min(h.local_flow_control_window(stream), 16384, len(waiting[stream]))):
                h.send_data(stream, waiting[stream][:n])
                waiting[stream] = waiting[stream][n:]
            if stream in ended and not waiting[stream]:
                h.send_data(stream, b"", end_stream=True)
                tunnels.discard(stream)

        while data := c.recv(65536):
            for e in h.receive_data(data):
                if isinstance(e, h2_events.RequestReceived):
                    head = dict(e.headers)
                    server.received.append(head)
                    if head[":method"] != "CONNECT":
                        h.send_headers(e.stream_id, [(":status", "200"), ("content-length", "8")])
                        h.send_data(e.stream_id, b"plain h2", end_stream=True)
                    elif status == "200":
                        tunnels.add(e.stream_id)
                        waiting[e.stream_id] = b""
                        h.send_headers(e.stream_id, [(":status", "200"), ("sec-websocket-protocol", "chat")])
                    else:
                        h.send_headers(e.stream_id, [(":status", status), ("content-length", "2")])
                        h.send_data(e.stream_id, b"no", end_stream=True)
                elif isinstance(e, h2_events.DataReceived) and e.stream_id in tunnels:
                    h.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                    waiting[e.stream_id] += e.data.upper()
                elif isinstance(e, h2_events.StreamEnded) and e.stream_id in tunnels:
                    ended.add(e.stream_id)
            for stream in list(tunnels):
                send(stream)
            c.sendall(h.data_to_send())

    return handle


class H1Client:
    def __init__(self, one, key=KEY):
        self.s = connect(one, "127.0.0.1", 8000, timeout=20)
        self.s.sendall(b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                       b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n")
        self.head, self.rest = read_head(self.s).split(b"\r\n\r\n", 1)
        self.status = int(self.head.split()[1])

    def say(self, data):
        self.s.sendall(data)

    def hear(self, n):
        while len(self.rest) < n:
            chunk = self.s.recv(65536)
            assert chunk, f"ended after {self.rest[:80]}"
            self.rest += chunk
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def end(self):
        """A half-close goes through to the server and comes back."""
        self.s.shutdown(1)
        assert self.s.recv(10) == b""
        self.s.close()


class H2Client:
    def __init__(self, one):
        self.s = connect(one, "127.0.0.1", 8000, timeout=20)
        self.h = h2_connection.H2Connection(h2_config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h.initiate_connection()
        self.head, self.rest, self.ended = None, b"", False
        self.until(lambda: self.h.remote_settings.get(CODE) == 1)
        self.h.send_headers(1, [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/chat"),
                                (":authority", "a"), ("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat")])
        self.until(lambda: self.head)
        self.status = int(self.head[":status"])

    def until(self, done):
        self.s.sendall(self.h.data_to_send())
        while not done():
            data = self.s.recv(65536)
            assert data, "connection ended"
            for e in self.h.receive_data(data):
                if isinstance(e, h2_events.ResponseReceived):
                    self.head = dict(e.headers)
                elif isinstance(e, h2_events.DataReceived):
                    self.rest += e.data
                    self.h.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                elif isinstance(e, h2_events.StreamEnded):
                    self.ended = True
            self.s.sendall(self.h.data_to_send())

    def say(self, data):
        for i in range(0, len(data), 16384):
            part = data[i:i + 16384]
            self.until(lambda part=part: self.h.local_flow_control_window(1) >= len(part))
            self.h.send_data(1, part)
            self.s.sendall(self.h.data_to_send())

    def hear(self, n):
        self.until(lambda: len(self.rest) >= n)
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def end(self):
        self.h.end_stream(1)
        self.until(lambda: self.ended)
        self.s.close()


@pytest.mark.parametrize("client", [H1Client, H2Client])
@pytest.mark.parametrize("speaks", ["h1", "h2"])
def test_four_ways(one, daemon, client, speaks):
    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server() if speaks == "h2" else h1_server)
    d = daemon(one, CFG.replace("{server}", "proto h2" if speaks == "h2" else ""))
    c = client(one)
    if client is H1Client:
        low = c.head.lower()
        assert c.status == 101 and b"upgrade: websocket" in low and b"connection: upgrade" in low and b"x-back: yes" in low
        assert b"Sec-WebSocket-Accept: ".lower() + ACCEPT.lower() in low and ACCEPT in c.head
        assert b"content-length" not in low and b"transfer-encoding" not in low
    else:
        assert c.status == 200 and "sec-websocket-accept" not in c.head and c.head["x-back"] == "yes"
    c.say(b"hello")
    assert c.hear(5) == b"HELLO"
    big = b"abcdefgh" * 40000  # beyond any window
    t = threading.Thread(target=c.say, args=(big,)) if client is H1Client else None
    if t:
        t.start()
        assert c.hear(len(big)) == big.upper()
        t.join()
    else:
        for i in range(0, len(big), 32000):
            c.say(big[i:i + 32000])
            assert c.hear(len(big[i:i + 32000])) == big[i:i + 32000].upper()
    c.end()
    if speaks == "h2":
        head = srv.received[0]
        assert head[":method"] == "CONNECT" and head[":protocol"] == "websocket" and head[":path"] == "/chat"
        assert head[":authority"] == "a" and head[":scheme"] == "http" and head["x-seen"] == "yes"
        assert head["sec-websocket-version"] == "13" and head["sec-websocket-protocol"] == "chat"
        assert not {"sec-websocket-key", "upgrade", "connection", "host"} & set(head)
    wait_for("the stream to end", lambda: "web,FRONTEND" in d.cli("show stat") and
             int([r for r in d.cli("show stat").splitlines() if r.startswith("web,s1,")][0].split(",")[4]) == 0, timeout=20)


def test_share_a_connection(one, daemon):
    """Several at a time, and plain requests beside them."""
    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server())
    daemon(one, CFG.replace("{server}", "proto h2"))
    cs = [H1Client(one) for _ in range(5)]
    for i, c in enumerate(cs):
        c.say(b"from %d" % i)
    for i, c in enumerate(cs):
        assert c.hear(6) == b"FROM %d" % i
    assert one.run(["curl", "-sS", "-m", "20", "http://127.0.0.1:8000/"]).stdout == "plain h2"
    assert srv.count <= 2, "one connection for WebSockets, one for requests"
    for c in cs:
        c.end()


def test_settings_that_come_late(one, daemon):
    """Whether the server takes it is known from its SETTINGS only: until then nothing is asked."""
    go = threading.Event()
    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(late=go))
    daemon(one, CFG.replace("{server}", "proto h2"))
    threading.Timer(0.4, go.set).start()
    c = H1Client(one)
    assert go.is_set() and c.status == 101
    c.say(b"x")
    assert c.hear(1) == b"X" and len(srv.received) == 1
    c.end()


@pytest.mark.parametrize("client", [H1Client, H2Client])
def test_servers_that_do_not_take_it(one, daemon, client):
    """They are not even asked; the next plain request is served."""
    srv = ScriptedServer(one, "127.0.0.1", 9001, h2_server(takes=False))
    daemon(one, CFG.replace("{server}", "proto h2"))
    assert client(one).status == 502
    assert srv.received == [] and one.run(["curl", "-sS", "-m", "20", "http://127.0.0.1:8000/"]).stdout == "plain h2"


@pytest.mark.parametrize("client", [H1Client, H2Client])
def test_servers_that_say_no(one, daemon, client):
    ScriptedServer(one, "127.0.0.1", 9001, h2_server(status="403"))
    daemon(one, CFG.replace("{server}", "proto h2"))
    c = client(one)
    assert c.status == 403 and c.hear(2) == b"no"


def tls_server(one, pem, server, protocols):
    """`protocols`: what it can, by preference; it speaks what was negotiated, and notes what was offered."""
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(pem)
    ctx.set_alpn_protocols(protocols)

    def handle(srv, c, n):
        with ctx.wrap_socket(c, server_side=True) as t:
            spoken = t.selected_alpn_protocol()
            srv.spoken = getattr(srv, "spoken", []) + [spoken]
            (h2_server() if spoken == "h2" else h1_server)(srv, t, n)

    return ScriptedServer(one, "127.0.0.1", 9001, handle)


@pytest.mark.parametrize("options,spoken", [("alpn h2,http/1.1", "http/1.1"), ("alpn h2", "h2"), ("alpn h2,http/1.1 ws h2", "h2"),
                                            ("alpn h2,http/1.1 ws h1", "http/1.1"), ("ws h2", "h2")])
def test_ws_and_alpn(one, daemon, options, spoken):
    """`ws auto` asks servers that can speak HTTP/1 in HTTP/1; h1 and h2 are orders. Other requests follow the ALPN."""
    pem = make_cert(one.lab.dir / "ws.pem", ["s.example"])
    srv = tls_server(one, pem, None, ["h2", "http/1.1"])
    daemon(one, CFG.replace("{server}", "ssl verify none " + options))
    c = H1Client(one)
    assert c.status == 101
    c.say(b"hi")
    assert c.hear(2) == b"HI"
    assert srv.spoken == [spoken]
    plain = one.run(["curl", "-sS", "-m", "20", "http://127.0.0.1:8000/"]).stdout
    assert plain == ("plain h2" if "alpn" in options else "plain h1")
    c.s.close()


def test_ws_h2_in_clear(one, daemon):
    """`ws h2` without `proto h2`: WebSockets by prior knowledge, all else in HTTP/1."""
    def handle(server, c, n):
        start = c.recv(3, 2)  # MSG_PEEK
        (h2_server() if start == b"PRI" else h1_server)(server, c, n)

    srv = ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, CFG.replace("{server}", "ws h2"))
    c = H1Client(one)
    c.say(b"hi")
    assert c.status == 101 and c.hear(2) == b"HI"
    assert one.run(["curl", "-sS", "-m", "20", "http://127.0.0.1:8000/"]).stdout == "plain h1"
    assert isinstance(srv.received[0], dict) and isinstance(srv.received[1], bytes)
    c.end()


def test_upgrades_that_are_none(one, daemon):
    """Without a proper key there is nothing to accept: refused, as every other upgrade that HTTP/2 does not know."""
    ScriptedServer(one, "127.0.0.1", 9001, h2_server())
    daemon(one, CFG.replace("{server}", "proto h2"))
    assert H1Client(one, key=b"short").status == 502
