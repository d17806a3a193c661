# SPDX-License-Identifier: BSD-2-Clause
"""TLS termination seen by openssl s_client, curl and Python's ssl module."""

import hashlib
import re
import socket
import ssl
import subprocess
import time

import pytest
from conftest import ScriptedServer, Syslog, connect, keepalive_server, make_cert, read_head, read_response, reply, wait_for

CFG = """
global
    stats socket {sock} level admin
    log 127.0.0.1:5140 local0
    nbthread 2
    {global}
defaults
    mode http
    log global
    option httplog
    timeout client 10s
    timeout server 10s
    timeout connect 1s
listen web
    bind 127.0.0.1:8443 ssl {bind}
    {options}
    server s1 127.0.0.1:9001
"""


@pytest.fixture
def certs(one):
    d = one.lab.dir / "crt"
    d.mkdir()
    make_cert(d / "a.pem", ["a.example", "www.a.example"])
    make_cert(d / "b.pem", ["b.example"], key="rsa")
    make_cert(d / "w.pem", ["*.wild.example"])
    make_cert(d / "c.pem", ["c.example"])
    return d


def cfg(bind, options="", glob=""):
    return CFG.replace("{bind}", bind).replace("{options}", options).replace("{global}", glob)


def wrap(one, sni=None, **kw):
    """A TLS connection and the name in the certificate it was shown."""
    ctx = ssl.create_default_context()
    ctx.check_hostname = False
    ctx.verify_mode = ssl.CERT_NONE
    for k, v in kw.items():
        if k == "alpn":
            ctx.set_alpn_protocols(v)
        else:
            setattr(ctx, k, v)
    return ctx.wrap_socket(connect(one, "127.0.0.1", 8443), server_hostname=sni)


def cn(tls):
    der = tls.getpeercert(True)
    out = subprocess.run(["openssl", "x509", "-inform", "der", "-noout", "-subject"], input=der, stdout=subprocess.PIPE,
                         check=True).stdout.decode()
    return out.split("CN = ")[1].strip()


def test_sni_picks_the_certificate(one, daemon, certs):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/c.pem crt {certs}"))
    for sni, want in (("a.example", "a.example"), ("www.a.example", "a.example"), ("B.Example", "b.example"),
                      ("x.wild.example", "*.wild.example"), ("x.y.wild.example", "c.example"), ("other.example", "c.example"),
                      (None, "c.example")):
        with wrap(one, sni) as c:
            assert cn(c) == want, sni
            c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert read_response(c)[2] == b"tls"


def test_strict_sni(one, daemon, certs):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/a.pem crt {certs}/b.pem strict-sni"))
    with wrap(one, "b.example") as c:
        assert cn(c) == "b.example"
    with pytest.raises(ssl.SSLError):
        wrap(one, "nobody.example")


def test_versions(one, daemon, certs):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    d = daemon(one, cfg(f"crt {certs}/a.pem", "bind 127.0.0.1:8444 ssl crt %s/a.pem ssl-min-ver TLSv1.3\n"
                                              "    bind 127.0.0.1:8445 ssl crt %s/a.pem ssl-max-ver TLSv1.2" % (certs, certs)))

    def speaks(port, flag):
        done = one.run(f"openssl s_client -connect 127.0.0.1:{port} {flag} </dev/null", check=False)
        return "Cipher is (NONE)" not in done.stdout and "Cipher is" in done.stdout

    assert speaks(8443, "-tls1_2") and speaks(8443, "-tls1_3")
    assert not speaks(8443, "-tls1_1 -cipher DEFAULT@SECLEVEL=0")
    assert not speaks(8444, "-tls1_2") and speaks(8444, "-tls1_3")
    assert speaks(8445, "-tls1_2") and not speaks(8445, "-tls1_3")
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        with wrap(one, maximum_version=version) as c:
            assert c.version() == name
            for _ in range(3):
                c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                assert read_response(c)[2] == b"tls"
    info = d.cli("show info")
    assert int(re.search(r"CumSslConns: (\d+)", info)[1]) >= 6


def test_cipher_suites(one, daemon, certs):
    """128 bits first unless the file says otherwise, ChaCha20 for clients that prefer it; another curve after a second hello."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/a.pem", "bind 127.0.0.1:8444 ssl crt %s/a.pem ciphersuites TLS_AES_256_GCM_SHA384\n"
                                          "    bind 127.0.0.1:8445 ssl crt %s/a.pem curves P-384" % (certs, certs)))

    def suite(port, flags=""):
        out = one.run("printf 'GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n' | "
                      f"openssl s_client -connect 127.0.0.1:{port} -tls1_3 {flags} -ign_eof", check=False).stdout
        assert out.rstrip().endswith("tls") or "\ntls" in out, out
        return re.search(r"Cipher is (\S+)", out)[1]

    assert suite(8443) == "TLS_AES_128_GCM_SHA256"
    assert suite(8443, "-ciphersuites TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256") == "TLS_CHACHA20_POLY1305_SHA256"
    assert suite(8443, "-ciphersuites TLS_AES_256_GCM_SHA384") == "TLS_AES_256_GCM_SHA384"
    assert suite(8444) == "TLS_AES_256_GCM_SHA384"
    assert suite(8445) == "TLS_AES_128_GCM_SHA256"


def test_alpn(one, daemon, certs):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/a.pem alpn http/1.1"))
    with wrap(one, alpn=["h2", "http/1.1"]) as c:
        assert c.selected_alpn_protocol() == "http/1.1"
    with wrap(one) as c:
        assert c.selected_alpn_protocol() is None
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(c)[2] == b"tls"


def test_curl_over_default_alpn(one, daemon, certs):
    """A client that prefers h2 gets what the daemon speaks, whichever that is."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/a.pem"))
    done = one.run(["curl", "-sS", "-m", "5", "--cacert", certs / "a.pem", "--resolve", "a.example:8443:127.0.0.1",
                    "-w", " %{http_code} %{ssl_verify_result}", "https://a.example:8443/"])
    assert done.stdout == "tls 200 0"


@pytest.mark.parametrize("flag", ["-tls1_2", "-tls1_3"])
def test_resumption(one, daemon, certs, flag):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    d = daemon(one, cfg(f"crt {certs}/a.pem"))
    sess = one.lab.dir / "sess"
    ask = "printf 'GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n'"
    first = one.run(f"{ask} | openssl s_client -connect 127.0.0.1:8443 {flag} -ign_eof -sess_out {sess}", check=False)
    assert "New, TLS" in first.stdout and "tls" in first.stdout
    for _ in range(4):  # whichever worker it reaches
        again = one.run(f"{ask} | openssl s_client -connect 127.0.0.1:8443 {flag} -ign_eof -sess_in {sess}", check=False)
        assert "Reused, TLS" in again.stdout, again.stdout[-3000:]
    del d


def test_bad_handshakes_do_not_hurt(one, daemon, certs):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    d = daemon(one, cfg(f"crt {certs}/a.pem", "timeout client 2s"))
    good = wrap(one)
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\xff\xff" + b"\0" * 100, b"\0" * 3000, b""):
        with connect(one, "127.0.0.1", 8443) as c:
            c.sendall(junk)
            c.shutdown(socket.SHUT_WR)
            try:
                c.recv(1000)
            except ConnectionResetError:
                pass
    one.run("openssl s_client -connect 127.0.0.1:8443 -cipher NULL-SHA256 -tls1_2 </dev/null", check=False)
    good.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert read_response(good)[2] == b"tls"
    good.close()
    with wrap(one) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(c)[2] == b"tls"
    wait_for("all gone", lambda: d.stat("web", "FRONTEND")["scur"] == "0")


def test_stalled_handshake_times_out(one, daemon, certs):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/a.pem", "timeout client 400ms"))
    with connect(one, "127.0.0.1", 8443) as c:
        t = time.monotonic()
        c.sendall(b"\x16\x03\x01")
        try:
            assert c.recv(100) == b"" or True
        except ConnectionResetError:
            pass
        assert 0.3 < time.monotonic() - t < 5


def test_big_transfers(one, daemon, certs):
    size = 32 << 20
    block = bytes(range(256)) * 256

    def handle(s, c, n):
        while head := read_head(c):
            if head.startswith(b"GET"):
                c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                for _ in range(size // len(block)):
                    c.sendall(block)
            else:
                sha, left = hashlib.sha256(), size
                data = head.split(b"\r\n\r\n", 1)[1]
                while True:
                    sha.update(data)
                    left -= len(data)
                    if left <= 0:
                        break
                    data = c.recv(1 << 18)
                    if not data:
                        return
                c.sendall(reply(sha.hexdigest().encode()))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg(f"crt {certs}/a.pem"))
    want = hashlib.sha256(block * (size // len(block))).hexdigest()
    out = one.run("curl -skS -m 30 https://127.0.0.1:8443/ | sha256sum", timeout=40).stdout
    assert out.split()[0] == want
    big = one.lab.dir / "big"
    big.write_bytes(block * (size // len(block)))
    out = one.run(["curl", "-skS", "-m", "30", "-H", "Expect:", "-T", big, "https://127.0.0.1:8443/up"], timeout=40).stdout
    assert out == want
    wait_for("counters", lambda: int(d.stat("web", "s1")["bout"]) >= size and int(d.stat("web", "s1")["bin"]) >= size)


def test_log_says_tls(one, daemon, certs):
    log = Syslog(one)
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/a.pem",
                    'log-format "%ft %sslv %sslc %[ssl_fc_sni] %[ssl_fc] %[ssl_fc_protocol] %ST"'))
    with wrap(one, "a.example", maximum_version=ssl.TLSVersion.TLSv1_2) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        read_response(c)
    m = log.wait(r"\]: (web~) (\S+) (\S+) (\S+) (\S+) (\S+) (\d+)")
    assert (m[2], m[4], m[5], m[6], m[7]) == ("TLSv1.2", "a.example", "1", "TLSv1.2", "200")
    assert m[3].startswith("ECDHE-")
    log.close()


def test_captured_hello_and_secrets(one, daemon, certs):
    """What the client offered, and the secrets of its key log, as rules see them."""
    keys = certs / "keys"
    fetches = ("ssl_fc_cipherlist_str(1)", "ssl_fc_cipherlist_hex", "ssl_fc_cipherlist_bin,hex", "ssl_fc_cipherlist_bin,xxh64",
               "ssl_fc_cipherlist_xxh", "ssl_fc_extlist_bin(1),hex", "ssl_fc_eclist_bin,hex", "ssl_fc_ecformats_bin,hex",
               "ssl_fc_protocol_hello_id", "ssl_fc_client_random,hex", "ssl_fc_client_traffic_secret_0",
               "ssl_fc_server_handshake_traffic_secret", "ssl_fc_exporter_secret")
    text = r"\ ".join(f"%[{f}]" for f in fetches)
    daemon(one, cfg(f"crt {certs}/a.pem", f"http-request return status 200 content-type text/plain lf-string {text}",
                    "tune.ssl.capture-buffer-size 400\n    tune.ssl.keylog on"))
    with wrap(one, "a.example", keylog_filename=str(keys)) as c:
        offered = [cipher["name"] for cipher in c.context.get_ciphers()]
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        got = dict(zip(fetches, read_response(c)[2].decode().split(" ")))
    names, codes = got["ssl_fc_cipherlist_str(1)"].split(","), got["ssl_fc_cipherlist_hex"]
    assert names[0] == "TLS_AES_256_GCM_SHA384" and set(names[:-1]) <= set(offered)  # the last is none, but RFC 5746's signal
    assert len(codes) == 4 * len(names) and codes == got["ssl_fc_cipherlist_bin,hex"]
    assert got["ssl_fc_cipherlist_xxh"] == got["ssl_fc_cipherlist_bin,xxh64"]
    exts = re.findall("....", got["ssl_fc_extlist_bin(1),hex"])
    assert "0000" in exts and "000A" in exts and "002B" in exts
    assert "001D" in got["ssl_fc_eclist_bin,hex"] and got["ssl_fc_ecformats_bin,hex"].startswith("00")
    assert got["ssl_fc_protocol_hello_id"] == "771"
    lines = [line.split() for line in keys.read_text().splitlines() if line[0] != "#"]
    secrets = {line[0]: line[2] for line in lines}
    assert got["ssl_fc_client_random,hex"].lower() == lines[0][1]
    for fetch, label in (("ssl_fc_client_traffic_secret_0", "CLIENT_TRAFFIC_SECRET_0"), ("ssl_fc_exporter_secret", "EXPORTER_SECRET"),
                         ("ssl_fc_server_handshake_traffic_secret", "SERVER_HANDSHAKE_TRAFFIC_SECRET")):
        assert got[fetch] == secrets[label]


def test_client_certificates(one, daemon, certs):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    daemon(one, cfg(f"crt {certs}/a.pem ca-file {certs}/c.pem verify required"))
    done = one.run(["curl", "-skS", "-m", "5", "--cert", certs / "c.pem", "https://127.0.0.1:8443/"])
    assert done.stdout == "tls"
    assert one.run(["curl", "-skS", "-m", "5", "https://127.0.0.1:8443/"], check=False).returncode != 0
    assert one.run(["curl", "-skS", "-m", "5", "--cert", certs / "b.pem", "https://127.0.0.1:8443/"], check=False).returncode != 0


def test_tls_to_the_server(one, daemon, certs):
    """Server side TLS: verified by default, refused when the certificate is not the CA's."""
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(certs / "a.pem")

    def handle(s, c, n):
        with ctx.wrap_socket(c, server_side=True) as t:
            while read_head(t):
                t.sendall(reply(b"behind"))

    names = []
    ctx.sni_callback = lambda sock, name, context: names.append(name)
    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, f"""
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
    retries 0
listen auto
    bind 127.0.0.1:8004
    server s1 127.0.0.1:9001 ssl ca-file {certs}/a.pem sni-auto
listen good
    bind 127.0.0.1:8001
    server s1 127.0.0.1:9001 ssl ca-file {certs}/a.pem sni str(a.example)
listen bad
    bind 127.0.0.1:8002
    server s1 127.0.0.1:9001 ssl ca-file {certs}/b.pem
listen none
    bind 127.0.0.1:8003
    server s1 127.0.0.1:9001 ssl verify none
""")
    assert one.run("curl -sS -m 5 http://127.0.0.1:8001/").stdout == "behind"
    assert one.run("curl -sS -m 5 http://127.0.0.1:8003/").stdout == "behind"
    assert one.run("curl -sS -m 5 -o /dev/null -w %{http_code} http://127.0.0.1:8002/").stdout == "503"
    # The name is the request's, and the certificate has to have it.
    names.clear()
    assert one.run("curl -sS -m 5 -H Host:A.example:8004 http://127.0.0.1:8004/").stdout == "behind"
    assert one.run("curl -sS -m 5 -o /dev/null -w %{http_code} -H Host:b.example http://127.0.0.1:8004/").stdout == "503"
    assert [n.lower() for n in names] == ["a.example", "b.example"]


def test_maxsslconn(one, daemon, certs):
    """Connections of TLS beyond the limit wait until one has ended; those in clear do not."""
    d = daemon(one, cfg(f"crt {certs}/a.pem", "bind 127.0.0.1:8000\n    http-request return status 200", "maxsslconn 2"))
    first, second = wrap(one), wrap(one)
    assert "MaxSslConns: 2\nCurrSslConns: 2\n" in d.cli("show info")
    third = connect(one, "127.0.0.1", 8443)
    raw_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    raw_tls.check_hostname, raw_tls.verify_mode = False, ssl.CERT_NONE
    third.settimeout(0.3)
    with pytest.raises(TimeoutError):
        raw_tls.wrap_socket(third, do_handshake_on_connect=True)
    assert one.run("curl -sS -m 5 http://127.0.0.1:8000/").returncode == 0
    fourth = connect(one, "127.0.0.1", 8443)
    first.close()
    second.close()
    with raw_tls.wrap_socket(fourth) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(c)[0] == 200
