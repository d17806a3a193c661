# SPDX-License-Identifier: BSD-2-Clause
"""Whose connection to a server may carry whose request: names in TLS, PROXY headers."""

import ssl

import pytest
from conftest import ScriptedServer, connect, read_head, read_response, reply
from test_l7_tls import make_cert

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
    http-reuse {reuse}
"""


def cfg(text, reuse="always"):
    return CFG.replace("{reuse}", reuse) + text


def get(c, host="a", path="/"):
    c.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return read_response(c)[2].decode()


class Named(ScriptedServer):
    """Answers every request with the number of its connection and what that was opened with."""

    def __init__(self, one, proxy=False, tls=None):
        self.proxy, self.tls, self.n_opened = proxy, tls, 0
        super().__init__(one, "127.0.0.1", 9001, self.talk)

    def talk(self, server, c, n):
        self.n_opened += 1
        number, what = self.n_opened, "clear"
        if self.proxy:
            what = b""
            while not what.endswith(b"\r\n"):
                what += c.recv(1)
            what = what.decode().split()[4]
        if self.tls:
            names = []
            self.tls.sni_callback = lambda sock, name, ctx: names.append(name or "none")
            c = self.tls.wrap_socket(c, server_side=True)
            what = names[0]
        while read_head(c):
            c.sendall(reply(f"{number} {what}".encode()))


@pytest.fixture
def tls(one):
    make_cert(one.lab.dir / "s.pem", ["s.example"])
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(one.lab.dir / "s.pem")
    return ctx


@pytest.mark.parametrize("reuse", ["always", "never"])
def test_a_name_in_tls(one, daemon, tls, reuse):
    """A connection that was opened for one name carries requests for that name only."""
    Named(one, tls=tls)
    daemon(one, cfg("""
listen web
    bind 127.0.0.1:8000
    server s1 127.0.0.1:9001 ssl verify none sni req.hdr(host)
""", reuse))
    with connect(one, "127.0.0.1", 8000) as c:
        first = [get(c, h) for h in ("a.example", "b.example", "a.example", "b.example", "b.example")]
    # A private connection makes way for the next one.
    numbers = "12122" if reuse == "always" else "12344"
    assert first == [f"{n} {h}.example" for n, h in zip(numbers, "ababb")]


def test_a_proxy_header(one, daemon):
    """A connection that told a client's address carries requests of that client connection only."""
    Named(one, proxy=True)
    d = daemon(one, cfg("""
listen web
    bind 127.0.0.1:8000
    server s1 127.0.0.1:9001 send-proxy
"""))
    with connect(one, "127.0.0.1", 8000) as a, connect(one, "127.0.0.1", 8000) as b:
        ports = [c.getsockname()[1] for c in (a, b)]
        assert [get(c) for c in (a, b, a, b)] == [f"{n} {ports[n - 1]}" for n in (1, 2, 1, 2)]
    assert d.stat("web", "s1")["srv_icur"] == "2"


def test_many_names(one, daemon, tls):
    """More names than connections are kept for: some are closed, everybody still gets the right one."""
    Named(one, tls=tls)
    d = daemon(one, cfg("""
listen web
    bind 127.0.0.1:8000
    server s1 127.0.0.1:9001 ssl verify none sni req.hdr(host) pool-max-conn 5
"""))
    with connect(one, "127.0.0.1", 8000) as c:
        for _ in range(2):
            for i in range(8):
                assert get(c, f"n{i}.example").split()[1] == f"n{i}.example"
        assert d.stat("web", "s1")["srv_icur"] == "5"
