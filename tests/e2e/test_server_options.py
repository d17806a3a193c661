# SPDX-License-Identifier: BSD-2-Clause
"""Options of server and bind lines about connections: what is said first on them, where they go, how sockets are set."""

import ssl

import pytest
from conftest import ScriptedServer, connect, make_cert, read_head, read_response, reply, wait_for
from peer import Pair

HEAD = """
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
"""
GET = b"GET %s HTTP/1.1\r\nHost: www.example.com\r\n\r\n"


def test_proxy_v2_fields(one, daemon):
    """What one proxy says about TLS, certificates and names is what the next one reads."""
    d = one.lab.dir
    make_cert(d / "web.pem", ["web.example"])
    make_cert(d / "alice.pem", ["alice"])
    daemon(one, HEAD + f"""
frontend web
    bind 127.0.0.1:8443 ssl crt {d}/web.pem ca-file {d}/alice.pem verify optional alpn http/1.1
    unique-id-format id-%[path]
    use_backend plain if {{ path /plain }}
    default_backend full
backend full
    server s1 127.0.0.1:8000 send-proxy-v2-ssl-cn proxy-v2-options ssl-cipher,cert-sig,cert-key,authority,crc32c,unique-id set-proxy-v2-tlv-fmt(0xe5) "to %[path] of %[src]" set-proxy-v2-tlv-fmt(0xe6) ""
backend plain
    server s1 127.0.0.1:8000 send-proxy-v2
frontend told
    bind 127.0.0.1:8000 accept-proxy
    http-request return status 200 content-type text/plain lf-string "%[fc_pp_authority]|%[fc_pp_unique_id]|%[fc_pp_tlv(ALPN)]|%[fc_pp_tlv(0xe5)]|%[fc_pp_tlv(SSL_VERSION)]|%[fc_pp_tlv(SSL_CN)]|%[fc_pp_tlv(SSL_SIG_ALG)]|%[fc_pp_tlv(SSL_KEY_ALG)]"
""")

    def told(path, cert=False):
        ctx = ssl.create_default_context(cafile=d / "web.pem")
        ctx.set_alpn_protocols(["http/1.1"])
        if cert:
            ctx.load_cert_chain(d / "alice.pem")
        with ctx.wrap_socket(connect(one, "127.0.0.1", 8443), server_hostname="web.example") as c:
            c.sendall(GET % path)
            status, _, body = read_response(c)
            assert status == 200
            return body.decode().split("|")

    got = told(b"/a")
    assert got[:6] == ["web.example", "id-/a", "http/1.1", "to /a of 127.0.0.1", "TLSv1.3", ""], got
    assert got[6] and got[7][:2] in ("EC", "RS")
    assert told(b"/b", cert=True)[:6] == ["web.example", "id-/b", "http/1.1", "to /b of 127.0.0.1", "TLSv1.3", "alice"]
    assert told(b"/plain") == ["", "", "http/1.1", "", "", "", "", ""]


def test_where_the_client_wanted_to_go(one, daemon):
    """`*` and ports that are the client's, with and without a distance, beside HAProxy; what rules changed counts."""
    def says(text):
        return lambda s, c, n: read_head(c) and c.sendall(reply(text))

    for addr, port in (("127.0.0.2", 8001), ("127.0.0.2", 8101), ("127.0.0.3", 8001), ("127.0.0.3", 8101), ("127.0.0.2", 8110),
                       ("127.0.0.2", 8010), ("127.0.0.3", 9000)):
        ScriptedServer(one, addr, port, says(f"{addr}:{port % 100 + 8000 if port < 9000 else port}".encode()))
    p = Pair(one, daemon, HEAD + """
frontend web
    bind 127.0.0.1:{port}
    http-request set-dst hdr(to) if { req.hdr(to) -m found }
    http-request set-dst-port hdr_val(port) if { req.hdr(port) -m found }
    use_backend %[req.hdr(be)]
backend same-port
    server s1 127.0.0.2
backend plus
    server s1 127.0.0.2:+1
backend minus
    server s1 127.0.0.2:-1
backend any
    server s1 *:9000
backend both
    server s1 *
backend beyond
    retries 0
    server s1 127.0.0.2:+1
""")

    def ask(be, **more):
        fields = "".join(f"{k}: {v}\r\n" for k, v in more.items())
        return p.same(f"GET / HTTP/1.1\r\nHost: a\r\nbe: {be}\r\n{fields}\r\n".encode())[::2]

    assert ask("plus") == (200, b"127.0.0.2:8001")
    assert ask("any", to="127.0.0.3") == (200, b"127.0.0.3:9000")
    # Connections of a server that is in several places are not mixed up.
    with connect(one, "127.0.0.1", 8000) as c:
        for be, to, port, want in (("both", "127.0.0.2", 8010, b"127.0.0.2:8010"), ("both", "127.0.0.2", 8001, b"127.0.0.2:8001"),
                                   ("both", "127.0.0.3", 8001, b"127.0.0.3:8001"), ("same-port", "127.0.0.9", 8010, b"127.0.0.2:8010"),
                                   ("minus", "127.0.0.9", 8002, b"127.0.0.2:8001"), ("both", "127.0.0.2", 8010, b"127.0.0.2:8010")):
            c.sendall(f"GET / HTTP/1.1\r\nHost: a\r\nbe: {be}\r\nto: {to}\r\nport: {port}\r\n\r\n".encode())
            assert read_response(c)[2] == want
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nbe: beyond\r\nport: 65535\r\n\r\n")
        assert read_response(c)[0] == 503


NETNS = ("mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip netns add blue && ip netns exec blue ip link set lo up")


def test_namespaces(one, daemon):
    """A listener and a server in another network namespace; the process stays where it is, over reloads, too."""
    one.run(NETNS)
    text = HEAD + """
frontend out
    bind 127.0.0.1:8000
    default_backend there
backend there
    server s1 127.0.0.1:9000 namespace blue check inter 200ms
frontend in
    bind 127.0.0.1:9000 namespace blue tcp-ut 7s cc reno
    http-request return status 200 content-type text/plain string there
"""
    d = daemon(one, text)
    d.wait_server("there", "s1", "UP")
    for again in (False, True):
        with connect(one, "127.0.0.1", 8000) as c:
            c.sendall(GET % b"/")
            assert read_response(c)[2] == b"there"
        with pytest.raises(ConnectionRefusedError):
            connect(one, "127.0.0.1", 9000)
        assert "127.0.0.1:9000" in one.run("ip netns exec blue ss -tln").stdout
        if not again:
            d.write(text.replace("string there", "string there if { src 127.0.0.0/8 }"))
            d.cli("reload")
    d.write(text.replace("namespace blue check", "namespace green check"))
    said = d.cli("reload", check=False)
    assert "headgated.cfg:15:5: error: no network namespace 'green'" in said
    d.write(text.replace("cc reno", "cc nosuch"))
    said = d.cli("reload", check=False)
    assert "no such congestion control" in said and "reno" in said and "headgated.cfg:17:5" in said


def test_fast_open(one, daemon):
    """The request goes with the SYN once there is a cookie; when nobody is there it goes to another server."""
    one.sysctl("net.ipv4.tcp_fastopen", 3)
    d = daemon(one, HEAD + """
listen web
    bind 127.0.0.1:8000
    balance first
    http-reuse never
    option redispatch 1
    server s1 127.0.0.1:9001 tfo
    server s2 127.0.0.1:9002
    http-request set-header x-a b
frontend one
    bind 127.0.0.1:9001 tfo
    http-request return status 200 content-type text/plain string one
frontend two
    bind 127.0.0.1:9002
    http-request return status 200 content-type text/plain string two
""")

    def opened():
        lines = [x.split() for x in one.run("cat /proc/net/netstat").stdout.splitlines() if x.startswith("TcpExt:")]
        return int(dict(zip(*lines))["TCPFastOpenActive"])

    def ask(method=b"GET"):
        with connect(one, "127.0.0.1", 8000) as c:
            body = b"" if method == b"GET" else b"content-length: 2\r\n"
            c.sendall(method + b" / HTTP/1.1\r\nHost: a\r\n" + body + b"\r\n" + (b"hi" if body else b""))
            return read_response(c)[::2]

    assert ask() == (200, b"one") and opened() == 0
    assert ask() == (200, b"one") and opened() == 1
    assert ask(b"POST") == (200, b"one") and opened() == 1
    d.cli("shutdown frontend one")

    def is_refused():
        try:
            connect(one, "127.0.0.1", 9001).close()
        except ConnectionRefusedError:
            return True
        return False

    # A socket that is being closed resets what has reached its queue: that is another failure.
    wait_for("the listener to be gone", is_refused)
    assert ask() == (200, b"two")


def test_names_and_pools(one, daemon):
    """pool-conn-name keeps connections apart, redir sends clients away, guid names what there is."""
    seen = []

    def count(s, c, n):
        while head := read_head(c):
            seen.append((n, head))
            c.sendall(reply(str(n).encode()))

    ScriptedServer(one, "127.0.0.1", 9001, count)
    d = daemon(one, HEAD + """
    http-reuse always
global
    nbthread 1
listen web
    guid w:web
    bind 127.0.0.1:8000,127.0.0.2:8000 guid-prefix w
    use-server away if { path_beg /away }
    server s1 127.0.0.1:9001 pool-conn-name req.hdr(tenant) guid w.s1
    server away 127.0.0.1:9001 weight 0 redir http://far.example/x
""")

    def ask(c, tenant, path=b"/", method=b"GET"):
        c.sendall(method + b" " + path + b" HTTP/1.1\r\nHost: a\r\ntenant: " + tenant + b"\r\n\r\n")
        return read_response(c, head_only=method == b"HEAD")

    with connect(one, "127.0.0.1", 8000) as c:
        a, b = ask(c, b"a")[2], ask(c, b"b")[2]
        assert a != b and ask(c, b"a")[2] == a and ask(c, b"b")[2] == b
        for method in (b"GET", b"HEAD"):
            status, fields, _ = ask(c, b"a", b"/away?q=1", method)
            assert status == 302 and fields["location"] == "http://far.example/x/away?q=1"
        assert ask(c, b"a", b"/away", b"DELETE")[0] == 200
    assert d.cli("show guid").split("\n")[:4] == ["w:web listen web", "w-0 listener web/sock-1", "w-1 listener web/sock-2", "w.s1 server web/s1"]
    assert d.cli("show guid w.s1").strip() == "w.s1 server web/s1"
