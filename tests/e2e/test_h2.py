# SPDX-License-Identifier: BSD-2-Clause
"""HTTP/2 towards clients: translation to HTTP/1, trailers, WebSocket, draining, and peers that mean harm."""

import hashlib
import shutil
import signal
import struct
import time

import pytest
from conftest import (ROOT, SLOW, ScriptedServer, bounded_memory, connect, make_cert, read_head, reply, wait_for)

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout client {client}
    timeout server 10s
    timeout connect 2s
    timeout http-request {client}
listen web
    bind 127.0.0.1:8000
    bind 127.0.0.1:8002 proto h2
    {tls}
    http-request deny if { path /deny }
    http-request return status 200 content-type text/plain string "own" if { path /own }
    server s1 127.0.0.1:9001
"""
CURL = ["curl", "-sk", "--max-time", "20"]
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END, ACK, END_HEADERS = 1, 1, 4
CALM = 11


def serve(server, c, n):
    while head := read_head(c):
        head, rest = head.split(b"\r\n\r\n", 1)
        server.received.append(head)
        path = head.split()[1]
        low = head.lower()
        if b"content-length:" in low:
            want = int(low.split(b"content-length:")[1].split(b"\r\n")[0])
            while len(rest) < want:
                rest += c.recv(1 << 16)
        elif b"transfer-encoding: chunked" in low:
            while not (b"0\r\n" in rest and rest.endswith(b"\r\n\r\n")):
                rest += c.recv(1 << 16)
        if path == b"/chunks":
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: abc\r\n\r\n")
        elif path == b"/early":
            c.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + reply(b"ok"))
        elif path == b"/cut":
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            return
        elif path == b"/304":
            c.sendall(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nETag: x\r\n\r\n")
        elif path.startswith(b"/big/"):
            c.sendall(reply(b"x" * int(path[5:])))
        elif path == b"/slow":
            time.sleep(1)
            c.sendall(reply(b"slow"))
        elif path == b"/ws":
            assert b"upgrade: websocket" in low and b"sec-websocket-key:" in low
            c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      b"Sec-WebSocket-Accept: x\r\n\r\n")
            while data := c.recv(65536):
                c.sendall(data.upper())
            return
        elif head.startswith(b"HEAD"):
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        else:
            c.sendall(reply(hashlib.md5(rest).hexdigest().encode() if rest else b"ok", headers=["X-Up: Case"]))


@pytest.fixture
def web(one, daemon, request):
    """With `timeout client` as the test asks for it."""
    pem = make_cert(one.lab.dir / "h2.pem", ["h2.example"])
    srv = ScriptedServer(one, "127.0.0.1", 9001, serve)
    d = daemon(one, CFG.replace("{tls}", f"bind 127.0.0.1:8443 ssl crt {pem}").replace("{client}", getattr(request, "param", "60s")))
    one.d, one.srv = d, srv
    yield one
    srv.close()


def curl(host, *args):
    return host.run([*CURL, *args], check=False)


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def hpack(*fields):
    return b"".join(b"\0" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in fields)


def request(path=b"/", method=b"GET", *more):
    return hpack((b":method", method), (b":scheme", b"http"), (b":path", path), (b":authority", b"h"), *more)


class Raw:
    """A client that writes frames."""

    def __init__(self, host, port=8002):
        self.s = connect(host, "127.0.0.1", port, timeout=10)
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS))

    def send(self, data):
        self.s.sendall(data)

    def flood(self, data):
        try:
            self.send(data)
        except OSError:
            pass

    def _exactly(self, n):
        out = b""
        while len(out) < n:
            chunk = self.s.recv(n - len(out))
            if not chunk:
                raise EOFError
            out += chunk
        return out

    def read(self):
        head = self._exactly(9)
        return head[3], head[4], struct.unpack(">I", head[5:])[0], self._exactly(int.from_bytes(head[:3], "big"))

    def until(self, kind, stream=None):
        while True:
            f = self.read()
            if f[0] == kind and stream in (None, f[2]):
                return f

    def rest(self):
        out = []
        try:
            while True:
                out.append(self.read())
        except (EOFError, ConnectionResetError):
            return out


def all_urls(path):
    return [f"https://127.0.0.1:8443{path}", f"http://127.0.0.1:8000{path}", f"http://127.0.0.1:8002{path}"]


def test_versions(web):
    for url in all_urls("/a"):
        out = curl(web, "--http2-prior-knowledge", "-w", "%{http_version} %{http_code}", url).stdout
        assert out == "ok2 200", url
    for url in all_urls("/a")[:2]:
        assert curl(web, "--http1.1", "-w", "%{http_version}", url).stdout == "ok1.1"
    head = web.srv.received[0].lower()
    assert head.startswith(b"get /a http/1.1\r\n") and b"\r\nhost: 127.0.0.1:8443" in head


@pytest.mark.parametrize("url", all_urls(""))
def test_messages(web, url):
    get = lambda path, *a: curl(web, "--http2-prior-knowledge", "-i", *a, url + path)
    assert "hello" in (out := get("/chunks").stdout) and "x-sum: abc" in out
    assert "HTTP/2 103" in (out := get("/early").stdout) and "link: </a>" in out and "HTTP/2 200" in out
    assert get("/cut").returncode == 92  # the stream was reset
    assert "content-length: 77" in get("/304").stdout
    assert "content-length: 1234" in get("/h", "-I").stdout
    assert get("/deny").stdout.startswith("HTTP/2 403")
    assert get("/own").stdout.endswith("own")
    assert "x-up: Case" in get("/x").stdout
    out = curl(web, "--http2-prior-knowledge", url + "/big/3000000", "-o", web.lab.dir / "big", "-w", "%{http_code}")
    assert out.stdout == "200" and (web.lab.dir / "big").stat().st_size == 3000000
    up = web.lab.dir / "up"
    up.write_bytes(bytes(range(256)) * 8000)
    want = hashlib.md5(up.read_bytes()).hexdigest()
    assert curl(web, "--http2-prior-knowledge", "--data-binary", f"@{up}", url + "/up").stdout == want
    get("/c", "-b", "a=1; b=2")
    assert b"a=1; b=2" in web.srv.received[-1]


def test_websocket(web):
    c = Raw(web)
    c.send(frame(HEADERS, END_HEADERS, 1, request(b"/ws", b"CONNECT", (b":protocol", b"websocket"))))
    c.send(frame(DATA, 0, 1, b"shout"))
    f = c.read()
    while f[0] not in (DATA, RST):
        f = c.read()
    assert f[0] == DATA and f[3] == b"SHOUT"
    c.send(frame(DATA, END, 1, b"bye"))
    got = b""
    while True:
        f = c.read()
        if f[0] == DATA:
            got += f[3]
            if f[1] & END:
                break
    assert got == b"BYE"


def test_h2load(web):
    if not shutil.which("h2load"):
        pytest.skip("h2load is not installed")
    out = web.run(["h2load", "-n", "3000", "-c", "5", "-m", "100", "http://127.0.0.1:8002/x"]).stdout
    assert "3000 succeeded, 0 failed" in out, out
    out = web.run(["h2load", "-n", "200", "-c", "4", "-m", "20", "https://127.0.0.1:8443/big/200000"]).stdout
    assert "200 succeeded, 0 failed" in out, out


def test_h2spec(web):
    """The conformance tester: sections 3 to 8 and HPACK, each failure by its name."""
    spec = shutil.which("h2spec") or shutil.which(str(ROOT / "build/tools/h2spec"))
    if not spec:
        pytest.skip("h2spec is not there (tools/h2spec.sh builds it when Go is)")
    for args in (["-p", "8002"], ["-p", "8443", "-t", "-k"]):
        done = web.run([spec, "-h", "127.0.0.1", *args], check=False, timeout=120)
        assert "0 failed" in done.stdout, done.stdout[-4000:]


def test_reload(web):
    """Connections live on over a reload, and their next streams get the new configuration."""
    c = Raw(web)
    c.send(frame(HEADERS, END | END_HEADERS, 1, request(b"/own")))
    assert c.until(DATA, 1)[3] == b"own"
    c.send(frame(HEADERS, END | END_HEADERS, 3, request(b"/slow")))
    wait_for("the server", lambda: web.srv.received, timeout=10 * SLOW)
    web.d.cfg.write_text(web.d.cfg.read_text().replace('string "own"', 'string "new"'), encoding="utf-8")
    web.d.signal(signal.SIGUSR2)
    wait_for("the reload", lambda: "generation 2" in web.d.output(), timeout=10 * SLOW)
    c.send(frame(HEADERS, END | END_HEADERS, 5, request(b"/own")))
    assert c.until(DATA, 5)[3] == b"new"
    c.send(frame(HEADERS, END | END_HEADERS, 7, request(b"/own")))
    assert c.until(DATA, 7)[3] == b"new"


def test_drain(web):
    """What is under way is answered; GOAWAY in two steps; then the end."""
    c = Raw(web)
    c.send(frame(HEADERS, END | END_HEADERS, 1, request(b"/slow")))
    wait_for("the server", lambda: web.srv.received, timeout=10 * SLOW)
    web.d.signal(signal.SIGUSR1)
    frames = c.rest()
    last = [struct.unpack(">I", f[3][:4])[0] for f in frames if f[0] == GOAWAY]
    assert last == [0x7fffffff, 1]
    assert [f[3] for f in frames if f[0] == DATA and f[3]] == [b"slow"]


@pytest.mark.parametrize("web", ["2s"], indirect=True)
def test_zero_window(web):
    """A reader who never reads costs streams and their buffers until the client timeout; others go on."""
    n, stuck = 40, set()
    with bounded_memory(web.d, n * 64):  # KiB; the answers alone are 20 MB
        c = Raw(web)
        c.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
        for i in range(n):
            c.send(frame(HEADERS, END | END_HEADERS, 2 * i + 1, request(b"/big/500000")))
        t = time.monotonic()
        c.send(frame(HEADERS, END | END_HEADERS, 2 * n + 1, request(b"/304")))
        c.until(HEADERS, 2 * n + 1)
        while len(stuck) < n:
            stuck.add(c.until(RST)[2])
    assert stuck == set(range(1, 2 * n, 2)) and 1.5 < time.monotonic() - t < 8 * SLOW


@pytest.mark.parametrize("web", ["2s"], indirect=True)
def test_idle_timeout(web):
    t = time.monotonic()
    c = Raw(web)
    frames = c.rest()
    assert any(f[0] == GOAWAY for f in frames)
    assert 1.5 < time.monotonic() - t < 8 * SLOW


GET = request()
FLOODS = {
    "rapid reset": b"".join(frame(HEADERS, END | END_HEADERS, i, GET) + frame(RST, 0, i, b"\0\0\0\x08")
                            for i in range(1, 2001, 2)),
    "settings": frame(SETTINGS) * 2000,
    "ping": frame(PING, 0, 0, b"12345678") * 5000,
    "empty data": frame(HEADERS, END_HEADERS, 1, request(b"/", b"POST")) + frame(DATA, 0, 1) * 5000,
    "continuation": frame(HEADERS, 0, 1, GET) + frame(CONTINUATION, 0, 1, hpack((b"a", b"b"))) * 5000,
    "empty continuation": frame(HEADERS, 0, 1, GET) + frame(CONTINUATION, 0, 1) * 5000,
    "window update": frame(WINDOW, 0, 0, b"\0\0\0\x01") * 20000,
    "header bomb": frame(HEADERS, END | END_HEADERS, 1,
                         GET + b"\x40\x01x\x7f" + bytes([0x80 | (3873 & 127), 3873 >> 7]) + b"a" * 4000 + b"\xbe" * 9000),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods(web, name):
    """Each ends with ENHANCE_YOUR_CALM, in bounded memory, and nobody else notices."""
    other = Raw(web)
    curl(web, "--http2-prior-knowledge", "http://127.0.0.1:8002/x")
    with bounded_memory(web.d, 4096):
        for _ in range(5):
            c = Raw(web)
            c.flood(FLOODS[name])
            codes = [struct.unpack(">I", f[3][4:8])[0] for f in c.rest() if f[0] == GOAWAY]
            assert codes[-1:] == [CALM]
    other.send(frame(HEADERS, END | END_HEADERS, 1, request(b"/own")))
    assert other.until(DATA, 1)[3] == b"own"
