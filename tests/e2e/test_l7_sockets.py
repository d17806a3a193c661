# SPDX-License-Identifier: BSD-2-Clause
"""Small things of real files: case of field names, unix-bind, set-retries, source addresses."""

import socket

from conftest import HostSocket, ScriptedServer, keepalive_server, raw, read_head, read_response, reply, wait_for

CONFIG = """
global
    nbthread 2
    unix-bind prefix {dir}/pre- mode 640
    h1-case-adjust x-odd X-oDD
    h1-case-adjust content-type CONTENT-TYPE
    h1-case-adjust host HOST
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 50ms
frontend adjusted
    bind 127.0.0.1:8000
    bind unix@web.sock
    option h1-case-adjust-bogus-client
    http-request return status 200 content-type text/plain string ok hdr x-odd 1 if { path /own }
    default_backend app
frontend plain
    bind 127.0.0.1:8001
    default_backend other
frontend dead
    bind 127.0.0.1:8003
    default_backend gone
backend app
    option h1-case-adjust-bogus-server
    http-response set-header x-odd 2
    server a 127.0.0.1:9001
backend other
    http-response set-header x-odd 2
    server a 127.0.0.1:9001
backend gone
    retries 0
    http-request set-retries 2 if { path /two }
    http-request set-retries req.hdr(x-retries) if { path /header }
    server a 127.0.0.1:9009
"""


def get(one, port, path="/", headers=""):
    return raw(one, "127.0.0.1", port, f"GET {path} HTTP/1.1\r\nHost: a\r\n{headers}Connection: close\r\n\r\n".encode())


def test_odds(one, daemon):
    server = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, CONFIG)

    # Names as they were received, unless an option asks for more.
    answer = get(one, 8000, headers="X-ODD: y\r\nx-other: z\r\n")
    assert b"\r\nX-oDD: 2\r\n" in answer
    assert b"\r\nX-oDD: y\r\n" in server.received[0] and b"\r\nHOST: a\r\n" in server.received[0] and b"\r\nx-other: z\r\n" in server.received[0]
    assert b"\r\nx-odd: 2\r\n" in get(one, 8001, headers="X-ODD: y\r\n")
    assert b"\r\nX-ODD: y\r\n" in server.received[1]
    answer = get(one, 8000, "/own")
    assert b"\r\nX-oDD: 1\r\n" in answer and b"\r\nCONTENT-TYPE: text/plain\r\n" in answer

    path = d.dir / "pre-web.sock"
    assert path.is_socket() and path.stat().st_mode & 0o777 == 0o640

    before = 0
    for path, headers, retries in (("/", "", 0), ("/two", "", 2), ("/header", "x-retries: 1\r\n", 1), ("/header", "", 0)):
        assert get(one, 8003, path, headers).startswith(b"HTTP/1.1 503")
        now = int(d.stat("gone", "BACKEND")["wretr"])
        assert now - before == retries, path
        before = now
    server.close()


SOURCES = """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 2s
    option httpchk GET /check
listen both
    bind 127.0.0.1:8000
    source 127.0.0.5
    server own 127.0.0.1:9001 source 127.0.0.6 check inter 100ms
    server shared 127.0.0.1:9002 check inter 100ms
listen transparent
    bind 127.0.0.1:8001
    default-server source 0.0.0.0 usesrc clientip
    server one 127.0.0.1:9001
"""


def test_source_of_servers(one, daemon):
    """`source` of a server comes before its section's, in traffic and in checks; `usesrc` takes the client's address."""
    peers = set()

    def handle(server, c, n):
        while head := read_head(c):
            peers.add((server, c.getpeername()[0], head.split(b" ", 2)[1]))
            c.sendall(reply(c.getpeername()[0].encode()))

    first, second = (ScriptedServer(one, "127.0.0.1", port, handle) for port in (9001, 9002))
    daemon(one, SOURCES)
    assert {get(one, 8000).rsplit(b"\r\n", 1)[1] for _ in range(4)} == {b"127.0.0.6", b"127.0.0.5"}
    wait_for("checks", lambda: {(first, "127.0.0.6", b"/check"), (second, "127.0.0.5", b"/check")} <= peers)
    assert {(s, ip) for s, ip, _ in peers} == {(first, "127.0.0.6"), (second, "127.0.0.5")}

    c = HostSocket.make(one, socket.AF_INET)
    c.bind(("127.0.0.9", 0))
    c.connect(("127.0.0.1", 8001))
    c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert read_response(c)[2] == b"127.0.0.9"
    c.close()
