# SPDX-License-Identifier: BSD-2-Clause
"""Options of server and bind lines about connections: what is said first on them, where they go, how sockets are set."""

import socket
import ssl

from conftest import connect, make_cert, read_response

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
