# SPDX-License-Identifier: BSD-2-Clause
"""Fetches and converters that ask the running proxy, beside HAProxy where its version has them."""

import socket
import struct
import time

from conftest import ScriptedServer, Syslog, connect, raw, read_response
from peer import Pair

HEAD = """
global
    log 127.0.0.1:{log} local0
defaults
    mode http
    timeout client 11s
    timeout server 12s
    timeout connect 2s
    timeout queue 3s
    timeout tunnel 13s
"""
GET = b"GET %s HTTP/1.1\r\nHost: www.example.com\r\n\r\n"


def test_as_haproxy(one, daemon):
    """Hashes of every length class, maps with matches filled in, times in force, captures by converters."""
    (one.lab.dir / "re.map").write_text("^/v(\\d+)/(\\w+) v=\\1 name=\\2\n^/x last\n", encoding="utf-8")
    texts = "".join(f'%[str({"ab-" * (n // 3) + "x" * (n % 3)}),xxh3({n})] ' for n in (1, 3, 5, 8, 12, 16, 30, 128, 200, 900))
    p = Pair(one, daemon, HEAD + f"""
frontend web
    bind 127.0.0.1:{{port}}
    declare capture request len 4
    declare capture response len 9
    http-request set-var(txn.x) path,capture-req(0),capture-req(7)
    http-response set-header x-got %[capture.req.hdr(0)]
    use_backend app
backend app
    http-request return status 200 content-type text/plain lf-string "{texts}" if {{ path /hash }}
    http-request return status 200 content-type text/plain lf-string "%[path,map_regm({{dir}}/re.map,no)] %[be_server_timeout] %[be_tunnel_timeout] %[srv_iweight(s1)] %[srv_uweight(s1)] %[srv_conn_free(app/s1)] %[var(txn.x)] %[capture.req.hdr(0)]"
    server s1 127.0.0.1:1 weight 7 maxconn 9
""")
    for path in (b"/hash", b"/", b"/v12/abc", b"/x9"):
        status, _, body = p.same(GET % path)
        assert status == 200
        if path == b"/v12/abc":
            assert body.startswith(b"v=12 name=abc 12000 13000 7 7 9  /v12")


def test_timeouts_in_force(one, daemon):
    """What a rule has set, otherwise what the section says."""
    daemon(one, HEAD.replace("{log}", "5140") + """
frontend web
    bind 127.0.0.1:8000
    http-request set-timeout client 4s if { path /set }
    default_backend app
backend app
    timeout connect 1s
    timeout tarpit 6s
    http-request set-timeout server 5s if { path /set }
    http-request set-timeout tunnel 6s if { path /set }
    http-request return status 200 content-type text/plain lf-string "%[cur_client_timeout] %[cur_server_timeout] %[cur_tunnel_timeout] %[cur_connect_timeout] %[cur_queue_timeout] %[cur_tarpit_timeout] %[fe_client_timeout] %[be_server_timeout] %[be_tunnel_timeout] %[be_connect_timeout] %[be_queue_timeout] %[be_tarpit_timeout]"
""")
    with connect(one, "127.0.0.1", 8000) as c:
        for path, want in ((b"/", b"11000 12000 13000"), (b"/set", b"4000 5000 6000"), (b"/", b"11000 12000 13000")):
            c.sendall(GET % path)
            assert read_response(c)[2] == want + b" 1000 3000 6000 11000 12000 13000 1000 3000 6000"


def test_last_rule_and_when(one, daemon):
    """The log names the rule that decided; `when` drops values of streams that went another way."""
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: c.recv(4096) and
                   c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    log = Syslog(one)
    daemon(one, HEAD.replace("{log}", "5140") + """
frontend web
    bind 127.0.0.1:8000
    log global
    acl secret path /deny
    log-format "%HP r=%[last_rule_line] f=%[last_rule_file] e=%[str(E),when(error)] n=%[str(N),when(normal)] w=%[str(F),when(forwarded)] t=%[str(T),when(toapplet)] p=%[str(P),when(processed)] a=%[str(A),when(acl,secret)] b=%[bc_reused] d=%[fe_defbe] x=%[str(web),fe_exists]%[str(app),fe_exists]"
    http-request deny if secret
    http-request use-service prometheus-exporter if { path /metrics }
    default_backend app
backend app
    option http-server-close
    server s1 127.0.0.1:9001 maxconn 5
""")
    cfg = (one.lab.dir / "headgated.cfg")
    deny = 1 + cfg.read_text().splitlines().index("    http-request deny if secret")
    for path, want in (("/deny", rf"r={deny} f=\S*headgated.cfg e=E n=- w=- t=- p=- a=A b=- d=app x=10"),
                       ("/", r"r=- f=- e=- n=N w=F t=- p=P a=- b=0 d=app x=10"),
                       ("/metrics", rf"r={deny + 1} f=\S* e=- n=N w=- t=T p=P a=- ")):
        raw(one, "127.0.0.1", 8000, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % path.encode())
        log.wait(rf" {path} {want}")


def test_debug(one, daemon):
    d = daemon(one, HEAD.replace("{log}", "5140") + """
frontend web
    bind 127.0.0.1:8000
    http-request set-var(txn.a) req.hdr(x),debug(seen,stdout),length,debug(size,stderr)
    http-request return status 200 content-type text/plain lf-string %[var(txn.a)]
""")
    assert raw(one, "127.0.0.1", 8000, b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x80b\r\nConnection: close\r\n\r\n").endswith(b"3")
    end = time.monotonic() + 10
    while "[debug] size: type=integer <3>" not in d.output() and time.monotonic() < end:
        time.sleep(0.05)
    assert "[debug] seen: type=string <a.b>" in d.output()


def proxy_v2(tlvs):
    body = socket.inet_aton("192.0.2.9") + socket.inet_aton("192.0.2.10") + struct.pack(">HH", 1000, 2000)
    body += b"".join(struct.pack(">BH", t, len(v)) + v for t, v in tlvs)
    return b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(">H", len(body)) + body


def test_fields_of_the_proxy_header(one, daemon):
    p = Pair(one, daemon, HEAD + """
frontend web
    bind 127.0.0.1:{port} accept-proxy
    http-request return status 200 content-type text/plain lf-string "%[src] %[fc_pp_authority] %[fc_pp_unique_id] %[fc_rcvd_proxy]"
""")
    for tlvs in ([], [(2, b"a.example")], [(5, b"id-7"), (2, b"b.example"), (4, b"")], [(0xe5, b"x")]):
        p.same(proxy_v2(tlvs) + GET % b"/")
    p.daemon.stop()
    daemon(one, HEAD.replace("{log}", "5140") + """
frontend web
    bind 127.0.0.1:8000 accept-proxy
    tcp-request session reject unless { fc_pp_authority -m found }
    http-request return status 200 content-type text/plain lf-string "%[fc_pp_tlv(0xE5)] %[fc_pp_tlv(SSL_CN)] %[fc_pp_tlv(ALPN)]"
""")
    ssl = b"\x01" + bytes(4) + b"\x22\x00\x04name"
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(proxy_v2([(0xe5, b"own"), (2, b"x"), (0x20, ssl)]) + GET % b"/")
        assert read_response(c)[2] == b"own name "
        c.sendall(GET % b"/")
        assert read_response(c)[2] == b"own name "
    assert raw(one, "127.0.0.1", 8000, proxy_v2([(0xe5, b"own")]) + GET % b"/") in (b"", b"<RESET>")


def test_rdp(one, daemon):
    """The same server as HAProxy's for a cookie; the one a routing token names; round robin without."""
    def hello(n):
        def handle(server, c, k):
            c.recv(4096)
            c.sendall(b"s%d" % n)
        return handle

    for n in range(1, 4):
        ScriptedServer(one, "127.0.0.1", 9000 + n, hello(n))
    p = Pair(one, daemon, """
defaults
    mode tcp
    timeout client 5s
    timeout server 5s
    timeout connect 2s
listen farm
    bind 127.0.0.1:{port}
    tcp-request inspect-delay 5s
    tcp-request content accept if RDP_COOKIE
    tcp-request content accept if { req.len gt 100 }
    persist rdp-cookie
    balance rdp-cookie
    server s1 127.0.0.1:9001
    server s2 127.0.0.1:9002
    server s3 127.0.0.1:9003
""")

    def ask(port, cookie):
        line = b"Cookie: " + cookie + b"\r\n"
        head = b"\x03\0" + struct.pack(">H", 11 + len(line)) + bytes([6 + len(line), 0xe0]) + bytes(5)
        with connect(one, "127.0.0.1", port) as c:
            c.sendall(head[:7])
            time.sleep(0.02)
            c.sendall(head[7:] + line)
            return c.recv(100)

    for name in (b"alice", b"bob", b"carol", b"dave", b"erin", b"mallory"):
        assert ask(8000, b"mstshash=" + name) == ask(8100, b"mstshash=" + name), name
    ip = struct.unpack("<I", socket.inet_aton("127.0.0.1"))[0]
    for n in (3, 1, 2):
        token = b"msts=%d.%d.0000" % (ip, struct.unpack("<H", struct.pack(">H", 9000 + n))[0])
        assert ask(8000, token) == ask(8100, token) == b"s%d" % n
    # A token of nobody here: as if there were none.
    assert {ask(8000, b"msts=%d.1.0000" % ip) for _ in range(6)} == {b"s1", b"s2", b"s3"}
