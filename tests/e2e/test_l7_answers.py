# SPDX-License-Identifier: BSD-2-Clause
"""Answers of our own: return, deny, redirect, error files and sections; byte for byte what HAProxy says."""

import pytest
from conftest import HEADGATED, ScriptedServer, connect, keepalive_server, read_response
from peer import Pair

RULES = """
global
    nbthread 1
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
http-errors site
    errorfile 404 {dir}/404.http
    errorfile 503 {dir}/503.http
frontend web
    bind 127.0.0.1:{port}
    http-request set-var(txn.path) path
    http-request deny status 429 if { path /status }
    http-request deny deny_status 429 if { path /deny_status }
    http-request deny hdr X-Why because if { path /hdr }
    http-request deny errorfile {dir}/404.http if { path /errorfile }
    http-request deny status 404 errorfiles site if { path /errorfiles }
    http-request deny if { path /deny }
    http-request return if { path /return }
    http-request return status 404 if { path /return404 }
    http-request return status 404 default-errorfiles if { path /default404 }
    http-request return status 204 if { path /204 }
    http-request return content-type text/plain string "100% hello" hdr x-a "%[path]" if { path /string }
    http-request return status 418 content-type text/plain lf-string "at %[path]" if { path /lf-string }
    http-request return content-type text/x file {dir}/body if { path /file }
    http-request return content-type text/x lf-file {dir}/body if { path /lf-file }
    http-request redirect location /to code 301 if { path /301 }
    http-request redirect location /to if { path /302 }
    http-request redirect location /to code 303 if { path /303 }
    http-request redirect location /to code 307 set-cookie a=b if { path /307 }
    http-request redirect location /to code 308 clear-cookie a if { path /308 }
    http-request redirect prefix http://b drop-query append-slash if { path /prefix }
    http-request redirect prefix / if { path /slash }
    http-request redirect location "%[req.hdr(x-none)]" ignore-empty if { path /empty }
    http-request redirect scheme https if { path /scheme }
    http-request auth realm "a b" if { path /auth }
    http-response return status 203 content-type text/plain string "instead of %" if { res.hdr(x-swap) -m found }
    http-response deny status 500 if { res.hdr(x-deny) -m found }
    http-after-response set-header x-after %[status]
    http-after-response del-header cache-control if { var(txn.path) -m str /after }
    http-after-response set-status 410 if { var(txn.path) -m str /return404 }
    errorloc302 502 /loc
    errorloc303 403 /loc3
    errorfiles site 503
    http-error status 400 content-type text/plain lf-string "bad %[path]" hdr x-e y
    use_backend swap if { path_beg /swap }
    use_backend denied if { path_beg /rspdeny }
    default_backend none
backend none
    errorfile 503 {dir}/backend503.http
backend swap
    http-response set-header x-swap yes
    server s 127.0.0.1:9001
backend denied
    http-response set-header x-deny yes
    server s 127.0.0.1:9001
frontend plain
    bind 127.0.0.1:{port1}
    http-request deny deny_status 500 if { path /500 }
    errorfiles site
    default_backend nowhere
backend nowhere
"""
PATHS = ["/status", "/deny_status", "/hdr", "/errorfile", "/errorfiles", "/deny", "/return", "/return404",
         "/default404", "/204", "/string", "/lf-string", "/file", "/lf-file", "/301", "/302", "/303", "/307", "/308",
         "/prefix?a=b", "/slash?a", "/scheme?q", "/auth", "/empty", "/swap", "/rspdeny", "/after", "/none"]


def files(directory):
    (directory / "404.http").write_text(
        "HTTP/1.1 404 Gone Fishing\nContent-Type: text/plain\nX-File: site\nContent-Length: 5\n\nnone\n")
    (directory / "503.http").write_text(
        "HTTP/1.1 503 Site\r\nContent-Type: text/html\r\nX-File: site\r\nContent-Length: 5\r\n\r\n<p>!\n")
    (directory / "backend503.http").write_text("HTTP/1.1 503 Backend\r\nX-File: backend\r\nContent-Length: 0\r\n\r\n")
    (directory / "body").write_text("path %[path] 100%%\n")


@pytest.fixture
def pair(one, daemon):
    files(one.lab.dir)
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"from the server"))
    return Pair(one, daemon, RULES)


def get(path, method="GET", version="1.1", extra=""):
    return f"{method} {path} HTTP/{version}\r\nHost: a.example\r\n{extra}\r\n".encode()


def test_same_answers_as_haproxy(pair):
    seen = {path: pair.same(get(path)) for path in PATHS}
    assert seen["/string"][1]["x-a"] == "/string" and seen["/string"][2] == b"100% hello"
    assert seen["/swap"][0] == 203 and seen["/swap"][1]["x-after"] == "203"
    assert seen["/return404"][0] == 410, "http-after-response set-status"
    assert seen["/errorfiles"][1]["x-file"] == "site"
    assert seen["/none"][1]["x-file"] == "backend"
    assert pair.same(get("/500"), 1)[0] == 500
    assert pair.same(get("/"), 1)[1]["x-file"] == "site"


def test_same_answers_to_head_and_old_clients(pair):
    for path in ("/deny_status", "/string", "/return", "/errorfile", "/302", "/auth"):
        status, headers, body = pair.same(get(path, "HEAD"), head_only=True)
        assert body == b"" and "content-length" in headers, path
        pair.same(get(path, version="1.0"))
        pair.same(get(path, version="1.0", extra="Connection: keep-alive\r\n"))


def test_connection_goes_on_after_an_answer(pair):
    """An error file is an answer like others: the connection stays, and over HTTP/2 it is one, too."""
    with connect(pair.host, "127.0.0.1", 8000) as c:
        for path, status in (("/errorfile", 404), ("/string", 200), ("/deny", 303), ("/none", 503)):
            c.sendall(get(path))
            assert read_response(c)[0] == status
        c.sendall(b"POST /string HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
        assert read_response(c)[2] == b"100% hello"
    for path, status in (("/errorfile", 404), ("/302", 302), ("/none", 503), ("/204", 204)):
        out = pair.host.run(["curl", "-s", "-i", "--http2-prior-knowledge", f"http://127.0.0.1:8000{path}"]).stdout
        assert out.startswith(f"HTTP/2 {status}"), out
        assert "x-after: " in out and "transfer-encoding" not in out
        if path == "/errorfile":
            assert out.endswith("none\n") and "content-length: 5" in out


BAD = [
    ("    errorfiles nosuch", "no section 'http-errors nosuch'"),
    ("    errorfiles sit", "did you mean 'site'?"),
    ("    errorfiles site 500", "no errorfile for status 500"),
    ("    http-request deny status 500 errorfiles site", "no errorfile for status 500"),
    ("    errorfile 418 /dev/null", "no errorfile for status 418"),
    ("    errorfile 500 /dev/full", "larger than 64 MiB"),
    ("    errorfile 500 {dir}/chunked.http", "without Transfer-Encoding"),
    ("    errorfile 500 {dir}/nohead.http", "no empty line"),
    ("    errorfile 500 {dir}/bad.http", "no HTTP answer"),
    ("    errorfile 500 {dir}/body", "does not begin with 'HTTP/1.'"),
    ("    http-error content-type a/b string x", "status <number>"),
    ("    http-error status 418 content-type a/b string x", "no error page for status 418"),
    ("    http-error status 500 string x", "needs 'content-type'"),
    ("    errorloc 503", "expects a URL"),
    ("    http-request deny deny_status 418", "has no text of its own"),
]


@pytest.mark.parametrize("line,message", BAD)
def test_refused_lines(one, daemon, line, message):
    files(one.lab.dir)
    (one.lab.dir / "chunked.http").write_text("HTTP/1.1 500 a\nTransfer-Encoding: chunked\n\n0\r\n\r\n")
    (one.lab.dir / "nohead.http").write_text("HTTP/1.1 500 a\nA: b\n")
    (one.lab.dir / "bad.http").write_text("HTTP/1.1 500 a\nA b: c\n\n")
    d = daemon(one, f"""
defaults
    mode http
http-errors site
    errorfile 404 {{dir}}/404.http
    errorfile 503 {{dir}}/503.http
frontend f
    bind 127.0.0.1:8000
{line}
""", start=False)
    out = one.run([HEADGATED, "-c", "-f", d.cfg], check=False)
    assert out.returncode == 1, out
    assert message in out.stdout + out.stderr, out.stdout + out.stderr


def test_silent_errorfile_and_wrong_length(one, daemon):
    (one.lab.dir / "long.http").write_text("HTTP/1.1 500 a\nContent-Length: 100\n\nshort")
    d = daemon(one, """
defaults
    mode http
    timeout client 5s
frontend f
    bind 127.0.0.1:8000
    errorfile 403 /dev/null
    errorfile 500 {dir}/long.http
    http-request deny deny_status 500 if { path /500 }
    http-request deny
""")
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(get("/"))
        assert c.recv(100) == b""
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(get("/500"))
        status, headers, body = read_response(c)
        assert (status, headers["content-length"], body) == (500, "5", b"short")
    assert "Content-Length of" in one.run([HEADGATED, "-c", "-f", d.cfg]).stderr
