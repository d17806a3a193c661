# SPDX-License-Identifier: BSD-2-Clause
"""Certificates while the daemon runs: replaced, added, deleted; OCSP responses; ticket keys; faults that are let pass."""

import base64
import os
import re
import ssl
import subprocess
import threading

import pytest
from conftest import ScriptedServer, keepalive_server, make_cert, read_response, wait_for
from test_l7_tls import cfg, cn, wrap


@pytest.fixture
def certs(one):
    d = one.lab.dir / "crt"
    d.mkdir()
    make_cert(d / "a.pem", ["a.example"])
    make_cert(d / "b.pem", ["b.example"])
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"tls"))
    return d


def ask(one, sni):
    with wrap(one, sni) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_response(c)[2] == b"tls"
        return cn(c), c.getpeercert(True)


def put(d, name, pem):
    """`set ssl cert` with a payload; blank lines would end it."""
    text = "\n".join(line for line in pem.splitlines() if line.strip())
    return d.cli(f"set ssl cert {name} <<\n{text}\n")


def put_file(d, command, name, pem):
    return d.cli(f"{command} {name} <<\n" + "\n".join(line for line in pem.splitlines() if line.strip()) + "\n")


def openssl(*args, cwd=None, **kw):
    return subprocess.run(["openssl", *args], cwd=cwd, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **kw).stdout


def test_replace_under_load(one, daemon, certs, tmp_path):
    d = daemon(one, cfg(f"crt {certs}/a.pem"))
    path = certs / "a.pem"
    assert str(path) in d.cli("show ssl cert")
    failed, seen, stop = [], set(), threading.Event()

    def load():
        while not stop.is_set():
            try:
                with wrap(one, "a.example") as c:
                    c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    assert read_response(c)[2] == b"tls"
                    seen.add(c.getpeercert(True))
                stop.wait(0.005)  # the main thread has work to do, too
            except OSError as e:
                failed.append(e)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        wait_for("load", lambda: seen or failed, timeout=20)
        old = ask(one, "a.example")[1]
        for n in range(6):
            make_cert(tmp_path / "new.pem", ["a.example"], key="rsa" if n % 2 else "ec")
            assert "Transaction created" in put(d, path, (tmp_path / "new.pem").read_text())
            assert "Success!" in d.cli(f"commit ssl cert {path}")
            der = ssl.PEM_cert_to_DER_cert((tmp_path / "new.pem").read_text().split("-----BEGIN PRIVATE")[0])
            assert ask(one, "a.example")[1] == der
            wait_for("the same under load", lambda: der in seen or failed, timeout=20)
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not failed and old in seen and len(seen) == 7
    # Files are the truth again after a reload.
    d.cli("reload")
    assert ask(one, "a.example")[1] == old


def test_transactions(one, daemon, certs, tmp_path):
    d = daemon(one, cfg(f"crt {certs}/a.pem crt {certs}/b.pem"))
    a, b = certs / "a.pem", certs / "b.pem"
    make_cert(tmp_path / "n.pem", ["n.example"])
    new = (tmp_path / "n.pem").read_text()
    assert "does not exist" in put(d, "/nowhere.pem", new)
    assert "No ongoing transaction" in d.cli(f"commit ssl cert {a}")
    assert "Transaction created" in put(d, a, new)
    assert "ongoing transaction" in put(d, b, new)
    assert d.cli("show ssl cert").startswith(f"# transaction\n*{a}\n# filename\n")
    assert "DNS:n.example" in d.cli(f"show ssl cert *{a}")
    text = d.cli(f"show ssl cert {a}")
    assert "Status: Used" in text and "DNS:a.example" in text and "Algorithm: EC256" in text
    assert re.search(r"^SHA1 FingerPrint: [0-9A-F]{40}$", text, re.M)
    assert "aborted" in d.cli(f"abort ssl cert {a}")
    assert ask(one, "a.example")[0] == "a.example"
    # A key that does not belong to the certificate is refused, and nothing has changed.
    key = b.read_text().split("-----END CERTIFICATE-----")[1]
    assert "Transaction created" in put(d, f"{a}.key", key)
    out = d.cli(f"commit ssl cert {a}")
    assert "does not match" in out and "Failed!" in out
    assert ask(one, "a.example")[0] == "a.example"
    d.cli(f"abort ssl cert {a}")
    assert "Can't update" in put(d, a, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----")
    assert "in use" in d.cli(f"del ssl cert {a}")


def test_crt_list_edits(one, daemon, certs, tmp_path):
    lst = certs / "list"
    lst.write_text(f"# comment\n{certs}/a.pem\n{certs}/b.pem b.example\n")
    d = daemon(one, cfg(f"crt-list {lst}"))
    make_cert(tmp_path / "n.pem", ["n.example"])
    new = "/live/n.pem"
    assert ask(one, "n.example")[0] == "a.example"
    assert "New empty" in d.cli(f"new ssl cert {new}")
    assert "already exists" in d.cli(f"new ssl cert {new}")
    assert "Can't edit" in d.cli(f"add ssl crt-list {lst} {new}")  # still empty
    assert "Transaction created" in put(d, new, (tmp_path / "n.pem").read_text())
    assert "Success!" in d.cli(f"commit ssl cert {new}")
    assert "Status: Unused" in d.cli(f"show ssl cert {new}")
    assert "Success!" in d.cli(f"add ssl crt-list {lst} {new}")
    assert ask(one, "n.example")[0] == "n.example"
    shown = d.cli(f"show ssl crt-list -n {lst}")
    assert shown.strip().splitlines() == [f"# {lst}", f"{certs}/a.pem:2", f"{certs}/b.pem:3 b.example", f"{new}:4"]
    assert d.cli("show ssl crt-list").strip() == str(lst)
    assert "Success!" in d.cli(f"add ssl crt-list {lst} <<\n{new} [alpn http/1.1] other.example\n")
    assert ask(one, "other.example")[0] == "n.example"
    assert "2 times" in d.cli(f"del ssl crt-list {lst} {new}")
    assert "deleted in crtlist" in d.cli(f"del ssl crt-list {lst} {new}:5")
    assert "in use" in d.cli(f"del ssl cert {new}")
    assert "deleted in crtlist" in d.cli(f"del ssl crt-list {lst} {new}")
    assert ask(one, "n.example")[0] == "a.example"
    assert "deleted!" in d.cli(f"del ssl cert {new}")
    assert new not in d.cli("show ssl cert")
    assert "not found" in d.cli(f"del ssl crt-list {lst} {new}")


# --- ticket keys ---


def resumes(one, port, sess, out=None):
    cmd = (f"printf 'GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n' | "
           f"openssl s_client -connect 127.0.0.1:{port} -ign_eof ")
    done = one.run(cmd + (f"-sess_out {out}" if out else f"-sess_in {sess}"), check=False)
    assert "HTTP/1.1 200" in done.stdout, done.stdout[-2000:]
    return "Reused, TLS" in done.stdout


@pytest.mark.parametrize("size", [48, 80])
def test_ticket_keys_of_a_fleet(one, daemon, certs, size):
    """Two hosts with one file of keys; then the keys are turned over while they run."""
    keys = certs / "keys"
    lines = [base64.b64encode(os.urandom(size)).decode() for _ in range(4)]
    keys.write_text("\n".join(lines) + "\n")
    text = cfg(f"crt {certs}/a.pem tls-ticket-keys {keys}")
    d1 = daemon(one, text)
    d2 = daemon(one, text.replace(":8443", ":8444"))
    sess = one.lab.dir / "sess"
    resumes(one, 8443, None, out=sess)
    assert resumes(one, 8444, sess)
    assert d1.cli("show tls-keys").strip().splitlines() == ["# id (file)", f"0 ({keys})"]
    assert lines[3] in d1.cli("show tls-keys *") and lines[0] not in d1.cli("show tls-keys *")
    extra = [base64.b64encode(os.urandom(size)).decode() for _ in range(2)]
    assert "updated" in d2.cli(f"set ssl tls-key {keys} {extra[0]}")
    assert resumes(one, 8444, sess)  # the oldest of three decrypts
    assert "updated" in d2.cli(f"set ssl tls-key #0 {extra[1]}")
    assert not resumes(one, 8444, sess)
    assert "48 or 80" in d2.cli(f"set ssl tls-key {keys} AAAA")
    assert "unknown" in d2.cli(f"set ssl tls-key /no/such {extra[0]}")


def test_ticket_key_file_errors(one, certs):
    def fails(text):
        (certs / "keys").write_text(text)
        (one.lab.dir / "t.cfg").write_text(cfg(f"crt {certs}/a.pem tls-ticket-keys {certs}/keys").replace(
            "{sock}", str(one.lab.dir / "s.sock")))
        done = one.run([os.environ["HG_BUILD"] + "/headgated" if "HG_BUILD" in os.environ else "build/headgated", "-c", "-f",
                        one.lab.dir / "t.cfg"], check=False)
        assert done.returncode != 0
        return done.stdout + (done.stderr or "")

    key = base64.b64encode(bytes(80)).decode()
    assert "2 keys found, at least 3" in fails(f"{key}\n{key}\n")
    assert "keys:2: a ticket key is 48 or 80 bytes" in fails(f"{key}\nhello\n{key}\n{key}\n")
    assert "keys:3: this key has 48 bytes" in fails(f"{key}\n{key}\n{base64.b64encode(bytes(48)).decode()}\n")


# --- OCSP ---


@pytest.fixture
def authority(one):
    """A CA with a database, and a certificate of it in site.pem with its chain."""
    d = one.lab.dir / "ca"
    d.mkdir()
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=Test CA", "-days", "30", "-keyout", "ca.key",
            "-out", "ca.crt", cwd=d)
    openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=site.example", "-keyout", "site.key", "-out", "site.csr",
            cwd=d)
    openssl("x509", "-req", "-in", "site.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", "0x4711", "-days", "20",
            "-out", "site.crt", cwd=d)
    (d / "site.pem").write_text("".join((d / f).read_text() for f in ("site.crt", "ca.crt", "site.key")))
    return d


def ocsp_response(d, status="V", name="out.der", days=2):
    revoked = "261101000000Z" if status == "R" else ""
    (d / "index").write_text(f"{status}\t391231235959Z\t{revoked}\t4711\tunknown\t/CN=site.example\n")
    openssl("ocsp", "-index", "index", "-CA", "ca.crt", "-rsigner", "ca.crt", "-rkey", "ca.key", "-issuer", "ca.crt", "-cert",
            "site.crt", "-ndays", str(days), "-respout", name, cwd=d)
    return (d / name).read_bytes()


def stapled(one, flag="-tls1_3"):
    done = one.run(f"openssl s_client -connect 127.0.0.1:8443 -status {flag} </dev/null", check=False)
    m = re.search(r"Cert Status: (\w+)", done.stdout)
    return m[1] if m else None


def test_ocsp_stapling(one, daemon, certs, authority):
    pem = authority / "site.pem"
    ocsp_response(authority, name="site.pem.ocsp")
    d = daemon(one, cfg(f"crt {pem} crt {certs}/a.pem"))
    assert stapled(one) == "good" and stapled(one, "-tls1_2") == "good"
    assert stapled(one, "-servername a.example") is None
    out = d.cli("show ssl ocsp-response")
    key = re.search(r"Certificate ID key : ([0-9a-f]+)\n", out)[1]
    assert f"Certificate path : {pem}\n" in out and "Serial Number: 4711\n" in out and key.endswith("02024711")
    assert "Cert Status: good" in d.cli(f"show ssl ocsp-response {pem}")
    assert "Cert Status: good" in d.cli(f"show ssl ocsp-response text {key}")
    assert "Cert Status: good" in d.cli(f"show ssl cert {pem}.ocsp")
    der = base64.b64decode(d.cli(f"show ssl ocsp-response base64 {key}"))
    assert der == (authority / "site.pem.ocsp").read_bytes()
    assert "does not match any" in d.cli(f"show ssl ocsp-response {key[:-2]}00")
    assert "OCSP Response: good" in d.cli(f"show ssl cert {pem}")
    revoked = base64.b64encode(ocsp_response(authority, "R")).decode()
    assert "Transaction created" in put(d, f"{pem}.ocsp", revoked)
    assert "Success!" in d.cli(f"commit ssl cert {pem}")
    assert stapled(one) == "revoked"
    # At once, without a transaction; what is not about one of ours changes nothing.
    good = base64.b64encode(der).decode()
    assert "OCSP Response updated!" in d.cli(f"set ssl ocsp-response {good}")
    assert stapled(one) == "good"
    lines = "\n".join(re.findall(".{1,64}", revoked))
    assert "OCSP Response updated!" in d.cli(f"set ssl ocsp-response <<\n{lines}\n")
    assert stapled(one) == "revoked"
    assert "not base64" in d.cli("set ssl ocsp-response !!")
    assert "not an OCSP response" in d.cli("set ssl ocsp-response AAAA")
    assert "expects response" in d.cli("set ssl ocsp-response")
    assert "another certificate" in put(d, f"{certs}/a.pem.ocsp", revoked)
    assert "not base64" in put(d, f"{pem}.ocsp", "!!!!")
    assert "not an OCSP response" in put(d, f"{pem}.ocsp", "AAAA")
    # A new file is taken by a reload; a faulty one leaves the certificate without, and says so.
    (authority / "site.pem.ocsp").write_bytes(b"junk")
    d.cli("reload")
    assert stapled(one) is None
    assert "goes without OCSP response" in d.output()
    ocsp_response(authority, name="site.pem.ocsp")
    d.cli("reload")
    assert stapled(one) == "good"


def timestamps(one, flag=""):
    """The list of timestamps that a client is shown (s_client asks for them with TLS 1.2 only)."""
    out = one.run(f"openssl s_client -connect 127.0.0.1:8443 -tls1_2 {flag} -serverinfo 18 </dev/null", check=False).stdout
    m = re.search(r"BEGIN SERVERINFO FOR EXTENSION 18-----\n(.*?)-----END", out, re.S)
    return base64.b64decode(m[1])[4:] if m else None


def test_what_belongs_to_a_certificate(one, daemon, certs, authority):
    """Timestamps, DH parameters and the issuer: from files, and at run time. Names of listeners."""
    pem = authority / "site.pem"
    sct = b"\0\x0a\0\x08" + b"\0timest."
    (authority / "site.pem.sctl").write_bytes(sct)
    openssl("genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe3072", "-out", "dh.pem", cwd=authority)
    pem.write_text(pem.read_text() + (authority / "dh.pem").read_text())
    lst = certs / "list"
    lst.write_text(f"{certs}/w.pem !no.w.example *.w.example\n")
    make_cert(certs / "w.pem", ["*.w.example"])
    d = daemon(one, cfg(f"crt {pem} crt {certs}/a.pem crt-list {lst}"))
    assert timestamps(one) == sct
    assert timestamps(one, "-servername a.example") is None
    out = one.run("openssl s_client -connect 127.0.0.1:8443 -tls1_2 -cipher DHE-RSA-AES128-GCM-SHA256 </dev/null", check=False).stdout
    assert "Server Temp Key: DH, 3072 bits" in out
    # Other timestamps, and what is none.
    new = b"\0\x06\0\x04more"
    assert "cut off" in put(d, f"{pem}.sctl", base64.b64encode(b"\0\x06\0\x05more").decode())
    assert "Transaction created" in put(d, f"{pem}.sctl", base64.b64encode(new).decode())
    assert "not the issuer" in put(d, f"{pem}.issuer", (certs / "a.pem").read_text())
    assert "Transaction updated" in put(d, f"{pem}.issuer", (authority / "ca.crt").read_text())
    assert "Subject: /CN=Test CA" in d.cli(f"show ssl cert *{pem}.issuer")
    assert "Success!" in d.cli(f"commit ssl cert {pem}")
    assert timestamps(one) == new
    assert "Subject: /CN=Test CA" in d.cli(f"show ssl cert {pem}.issuer")
    rows = [line.split("\t") for line in d.cli("show ssl sni").strip().splitlines()]
    assert rows[0] == ["# Frontend/Bind", "SNI", "Negative Filter", "Type", "Filename", "NotAfter", "NotBefore"]
    assert [r[1:5] for r in rows[1:]] == [["a.example", "-", "ecdsa", f"{certs}/a.pem"],
                                          ["site.example", "-", "rsa", str(pem)],
                                          ["*.w.example", "!no.w.example", "ecdsa", f"{certs}/w.pem"]]
    assert rows[1][0].startswith("web/") and rows[1][5].endswith(" GMT")
    assert "site.example" not in d.cli("show ssl sni -f web -A") and "site.example" in d.cli("show ssl sni -A -t 21d")
    assert "Didn't find" in d.cli("show ssl sni -f nobody") and "expects -f" in d.cli("show ssl sni -t x")


# --- faults of clients' certificates ---


def test_ignored_errors(one, daemon, certs, authority):
    """verify optional refuses a bad certificate as HAProxy does, unless its fault is named."""
    openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=old", "-keyout", "old.key", "-out", "old.csr", cwd=authority)
    (authority / "ca.cnf").write_text("[ca]\ndefault_ca = x\n[x]\ndatabase = db\nnew_certs_dir = .\nrand_serial = yes\n"
                                      "default_md = sha256\npolicy = p\n[p]\ncommonName = supplied\n")
    (authority / "db").touch()
    openssl("ca", "-batch", "-config", "ca.cnf", "-cert", "ca.crt", "-keyfile", "ca.key", "-in", "old.csr", "-out", "old.crt",
            "-notext", "-startdate", "200101000000Z", "-enddate", "210101000000Z", cwd=authority)
    (authority / "old.pem").write_text((authority / "old.crt").read_text() + (authority / "old.key").read_text())
    head = "http-request return status 200 content-type text/plain lf-string \"%[ssl_c_verify] %[ssl_c_err] %[ssl_c_ca_err] %[ssl_c_used]\""
    common = f"ssl crt {certs}/a.pem ca-file {authority}/ca.crt verify optional"
    daemon(one, cfg(f"crt {certs}/a.pem", f"""
    bind 127.0.0.1:8001 {common}
    bind 127.0.0.1:8002 {common} crt-ignore-err 10
    bind 127.0.0.1:8003 {common} crt-ignore-err 18,19 ca-ignore-err all
    bind 127.0.0.1:8004 {common} crt-ignore-err all ca-ignore-err all no-ca-names
    {head}"""))

    def get(port, crt):
        done = one.run(["curl", "-sk", "-m", "5", *(["--cert", str(crt)] if crt else []), f"https://127.0.0.1:{port}/"], check=False)
        return done.stdout

    old, stranger = authority / "old.pem", certs / "b.pem"
    assert get(8001, None) == "0 0 0 0" and get(8001, old) == "" and get(8001, stranger) == ""
    assert get(8002, old) == "10 10 0 1" and get(8002, stranger) == ""
    assert get(8003, old) == "" and get(8003, stranger).endswith(" 18 0 1")
    assert get(8004, old) == "10 10 0 1" and get(8004, stranger).endswith(" 18 0 1")
    named = one.run("openssl s_client -connect 127.0.0.1:8003 </dev/null", check=False).stdout
    unnamed = one.run("openssl s_client -connect 127.0.0.1:8004 </dev/null", check=False).stdout
    assert "Acceptable client certificate CA names" in named and "No client certificate CA names sent" in unnamed


def crl(authority, name, days="10"):
    openssl("ca", "-config", "ca.cnf", "-cert", "ca.crt", "-keyfile", "ca.key", "-gencrl", "-crldays", days, "-out", name, cwd=authority)
    return authority / name


def test_ca_and_crl_files(one, daemon, certs, authority):
    """Whom clients and servers are verified with changes while the daemon runs."""
    (authority / "ca.cnf").write_text("[ca]\ndefault_ca = x\n[x]\ndatabase = db\nnew_certs_dir = .\nrand_serial = yes\n"
                                      "default_md = sha256\npolicy = p\n[p]\ncommonName = supplied\n")
    (authority / "db").touch()
    none_revoked = crl(authority, "none.crl")
    openssl("ca", "-config", "ca.cnf", "-cert", "ca.crt", "-keyfile", "ca.key", "-revoke", "site.crt", cwd=authority)
    revoked = crl(authority, "some.crl").read_text()
    ca, site = (authority / "ca.crt").read_text(), authority / "site.pem"
    wrong = certs / "wrong.crt"
    wrong.write_text((certs / "b.pem").read_text())
    d = daemon(one, cfg(f"crt {certs}/a.pem", f"""
    bind 127.0.0.1:8001 ssl crt {certs}/a.pem ca-file {wrong} verify required
    bind 127.0.0.1:8002 ssl crt {certs}/a.pem ca-file {authority}/ca.crt crl-file {none_revoked} verify required""") + f"""
listen up
    bind 127.0.0.1:8003
    retries 0
    server s1 127.0.0.1:8443 ssl verifyhost a.example ca-file {wrong}
listen other
    bind 127.0.0.1:8004
    http-reuse never
    http-response return content-type text/plain lf-string %[ssl_bc_is_resumed]
    server s1 127.0.0.1:8443 ssl verify none
""")

    def get(url, *args):
        return one.run(["curl", "-sk", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", *args, url], check=False).stdout

    def as_client(port):
        return get(f"https://127.0.0.1:{port}/", "--cert", str(site))

    def resumed(n):
        """Of n requests, each on a connection of its own: both workers have sessions."""
        return one.run("curl -s -m 20 -H Connection:close" + " http://127.0.0.1:8004/" * n).stdout

    assert as_client(8001) == "000" and as_client(8002) == "200" and get("http://127.0.0.1:8003/") == "503"
    assert resumed(16).count("0") <= 2
    assert d.cli("show ssl ca-file").strip().splitlines() == \
        ["# filename", f"{authority}/ca.crt - 1 certificate(s)", f"{wrong} - 1 certificate(s)"]
    assert d.cli("show ssl crl-file").strip().splitlines() == ["# filename", str(none_revoked)]
    assert "No ongoing transaction" in d.cli(f"commit ssl ca-file {wrong}")
    assert "does not exist" in put_file(d, "set ssl ca-file", "/nowhere", ca)
    assert "no CA certificate" in put_file(d, "set ssl ca-file", wrong, revoked)
    # Added to, taken back, then replaced.
    assert f"Transaction created for CA {wrong}!" in put_file(d, "add ssl ca-file", wrong, ca)
    assert f"*{wrong} - 2 certificate(s)" in d.cli("show ssl ca-file")
    assert f"Transaction updated for CA {wrong}!" in put_file(d, "add ssl ca-file", wrong, (certs / "a.pem").read_text())
    text = d.cli(f"show ssl ca-file *{wrong}:2")
    assert f"Filename: *{wrong}\nStatus: Unused\n\nCertificate #2:\nSerial: " in text and "Subject: /CN=Test CA" in text
    assert "#1" not in text and "#3" not in text
    assert "Success!" in d.cli(f"commit ssl ca-file {wrong}")
    assert as_client(8001) == "200" and get("http://127.0.0.1:8003/") == "200"
    # Whoever has nothing to do with it keeps its sessions.
    assert resumed(8) == "11111111"
    assert "Transaction created" in put_file(d, "set ssl ca-file", wrong, (certs / "b.pem").read_text())
    assert "aborted" in d.cli(f"abort ssl ca-file {wrong}")
    assert "Status: Used" in d.cli(f"show ssl ca-file {wrong}") and as_client(8001) == "200"
    assert "in use, can't be deleted!" in d.cli(f"del ssl ca-file {wrong}")
    # Revoked from the next handshake on, also for those that would resume.
    assert f"Transaction created for CRL {none_revoked}!" in put_file(d, "set ssl crl-file", none_revoked, revoked)
    text = d.cli(f"show ssl crl-file *{none_revoked}")
    assert "Certificate Revocation List #1:\nVersion " in text and "Revoked Certificates:\n    Serial Number: 4711\n" in text
    assert "Success!" in d.cli(f"commit ssl crl-file {none_revoked}") and as_client(8002) == "000"
    # Made, filled, used by a crt-list, and deleted.
    assert "New CA file created '/live/ca'!" in d.cli("new ssl ca-file /live/ca")
    assert "already exists!" in d.cli("new ssl ca-file /live/ca")
    assert "Status: Empty" in d.cli("show ssl ca-file /live/ca")
    assert "CA file '/live/ca' deleted!" in d.cli("del ssl ca-file /live/ca")
    assert "doesn't exist!" in d.cli("del ssl ca-file /live/ca")
    assert "New CRL file created '/live/crl'!" in d.cli("new ssl crl-file /live/crl")
    assert "CRL file '/live/crl' deleted!" in d.cli("del ssl crl-file /live/crl")
    # Files are the truth again after a reload.
    d.cli("reload")
    assert as_client(8001) == "000" and as_client(8002) == "200"


# --- where certificates come from ---


def test_crt_store(one, daemon, certs, authority):
    """Parts in files of any name, by a name of their own; intermediates and DH parameters from elsewhere."""
    (authority / "keys").mkdir()
    (authority / "chains").mkdir()
    os.rename(authority / "site.key", authority / "keys" / "private")
    (authority / "chains" / "test-ca").write_text((authority / "ca.crt").read_text())
    openssl("genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe3072", "-out", "dh.pem", cwd=authority)
    lst = certs / "list"
    lst.write_text("@web/site site.example\n")
    d = daemon(one, f"""crt-store web
    crt-base {authority}
    key-base {authority}/keys
    load crt site.crt key private alias site
""" + cfg(f"crt {certs}/a.pem crt-list {lst}", glob=f"issuers-chain-path {authority}/chains\n    ssl-dh-param-file {authority}/dh.pem"))
    out = one.run("openssl s_client -connect 127.0.0.1:8443 -servername site.example -showcerts -tls1_2 "
                  "-cipher DHE-RSA-AES128-GCM-SHA256 </dev/null", check=False).stdout
    assert out.count("BEGIN CERTIFICATE") == 2 and "subject=CN = site.example" in out
    assert "Server Temp Key: DH, 3072 bits" in out
    assert ask(one, "a.example")[0] == "a.example"
    assert "@web/site" in d.cli("show ssl cert") and "Filename: @web/site\nStatus: Used\n" in d.cli("show ssl cert @web/site")
