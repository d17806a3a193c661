# SPDX-License-Identifier: BSD-2-Clause
"""The statistics page and the metrics exporter, as browsers, scripts and scrapers see them."""

import base64
import json
import re
import socket
import time

import pytest
from conftest import (ROOT, SLOW, ScriptedServer, Syslog, connect, keepalive_server, make_cert, read_response, reply,
                      wait_for)
from browser import CHROMIUM, Browser

CFG = """
global
    stats socket {sock} level admin
    nbthread 2
    log 127.0.0.1:5140 local0
defaults
    mode http
    log global
    option httplog
    timeout client 5s
    timeout server 5s
    timeout connect 1s
frontend web
    bind 127.0.0.1:8000
    http-request deny if { req.hdr(x-deny) -m found }
    http-request use-service prometheus-exporter if { path /metrics }
    stats uri /stats
    stats realm Edge\\ statistics
    stats auth admin:se:cret
    stats auth other:pw
    stats refresh 7s
    stats admin if { req.hdr(x-admin) yes }
    default_backend app
backend app
    server s1 127.0.0.1:9001
    server s2 127.0.0.1:9002 weight 3
    server s3 127.0.0.1:9003 disabled
listen plain
    bind 127.0.0.1:8001
    stats enable
    stats hide-version
    server x 127.0.0.1:9001
"""

AUTH = "Authorization: Basic " + base64.b64encode(b"admin:se:cret").decode()


def ask(host, path, *headers, method="GET", body=b"", port=8000):
    with connect(host, "127.0.0.1", port) as s:
        head = [f"{method} {path} HTTP/1.1", "Host: edge", "Connection: close", *headers]
        if body:
            head.append(f"Content-Length: {len(body)}")
        s.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        return read_response(s, head_only=method == "HEAD")


def series(text):
    """Checks the exposition format; {'name{labels}': value}."""
    out, types, current = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current not in types, f"{current} twice"
            types[current] = kind
        elif not line.startswith("#"):
            m = re.fullmatch(r'(\w+)((?:\{(?:\w+="(?:[^"\\\n]|\\.)*",?)+\})?) (NaN|-?\d+(?:\.\d+)?)', line)
            assert m, line
            more = {"summary": ("_sum", "_count"), "histogram": ("_sum", "_count", "_bucket")}.get(types[current], ())
            assert m[1] == current or m[1] in [current + suffix for suffix in more]
            assert m[1] + m[2] not in out, line
            out[m[1] + m[2]] = float(m[3])
    return out


def post(host, form, *headers, path="/stats"):
    status, h, _ = ask(host, path, AUTH, "Content-Type: application/x-www-form-urlencoded", *headers,
                       method="POST", body=form.encode())
    assert status == 303
    return re.search(r";st=(\w+)", h["location"])[1]


@pytest.fixture
def edge(one, daemon):
    servers = [ScriptedServer(one, "127.0.0.1", p, keepalive_server(b"hello")) for p in (9001, 9002)]
    yield one, daemon(one, CFG)
    for s in servers:
        s.close()


def test_page_needs_a_password(edge):
    host, _ = edge
    status, h, _ = ask(host, "/stats")
    assert status == 401 and h["www-authenticate"] == 'Basic realm="Edge statistics"'
    for wrong in ("admin:wrong", "admin:se:cre", "nobody:se:cret", ""):
        status, _, _ = ask(host, "/stats", "Authorization: Basic " + base64.b64encode(wrong.encode()).decode())
        assert status == 401
    assert ask(host, "/stats", "Authorization: Bearer x")[0] == 401
    assert ask(host, "/stats", "Authorization: basic " + base64.b64encode(b"other:pw").decode())[0] == 200
    # Rules of the section guard the page too.
    assert ask(host, "/stats", AUTH, "X-Deny: 1")[0] == 403


def test_page(edge):
    host, _ = edge
    status, h, body = ask(host, "/stats", AUTH)
    text = body.decode()
    assert status == 200 and h["content-type"].startswith("text/html")
    nonce = re.search(r"'nonce-([0-9a-f]{32})'", h["content-security-policy"])[1]
    assert f'<script nonce="{nonce}">' in text
    assert 'http-equiv=refresh content="7"' in text
    assert "s1" in text and "plain" in text and "<form method=post" not in text
    assert not re.search(r'(src|href)="?(https?:)?//', text)
    assert "http-equiv=refresh" not in ask(host, "/stats;norefresh", AUTH)[2].decode()
    assert "<form method=post" in ask(host, "/stats", AUTH, "X-Admin: yes")[2].decode()
    status, h, _ = ask(host, "/stats", AUTH, method="HEAD")
    assert status == 200 and int(h["content-length"]) > 1000
    assert ask(host, "/stats", AUTH, method="PUT")[0] == 405
    # The page of another section, at the default URI, without a version.
    status, _, body = ask(host, "/haproxy?stats", port=8001)
    assert status == 200 and b"0.1" not in re.search(b"<h1>.*?</h1>", body)[0]
    assert ask(host, "/other", port=8001)[0] == 200
    assert ask(host, "/haproxy?stats&scope=app", port=8001)[2].count(b"<section>") == 2


def test_page_escapes(edge):
    host, _ = edge
    for evil in ("/stats?scope=%3Cscript%3Ealert(1)%3C/script%3E", '/stats;st=%22%3E%3Cscript%3E',
                 "/stats?scope=%22%20onfocus=%22x"):
        text = ask(host, evil, AUTH)[2].decode()
        assert text.count("<script") == 1 and 'onfocus="' not in text


def test_other_forms(edge):
    host, d = edge
    status, h, body = ask(host, "/stats;csv", AUTH)
    assert status == 200 and h["content-type"] == "text/plain"
    lines = body.decode().splitlines()
    assert lines[0] == d.cli("show stat").splitlines()[0]
    assert [line.split(",")[:2] for line in lines[1:]] == [
        ["web", "FRONTEND"], ["app", "s1"], ["app", "s2"], ["app", "s3"], ["app", "BACKEND"],
        ["plain", "FRONTEND"], ["plain", "x"], ["plain", "BACKEND"]]
    assert "app,s3" not in ask(host, "/stats;csv;no-maint", AUTH)[2].decode()
    assert "app,s3" not in ask(host, "/stats;csv;up", AUTH)[2].decode()
    assert len(ask(host, "/stats;csv?scope=plain", AUTH)[2].splitlines()) == 4
    rows = json.loads(ask(host, "/stats;json", AUTH)[2])
    assert len(rows) == 8 and rows[0][0]["value"]["value"] == "web"
    status, h, body = ask(host, "/stats;json-schema", AUTH)
    assert status == 200 and h["content-type"] == "application/json"
    assert body.decode() == d.cli("show schema json").rstrip("\n") + "\n"
    schema = json.loads(body)
    kinds = [v["$ref"].rsplit("/", 1)[1] for v in schema["definitions"]["typedValue"]["oneOf"]]
    assert {f"{f['value']['type']}Value" for row in rows for f in row} <= set(kinds)
    item = schema["oneOf"][1]["items"]["items"]
    assert set(item["required"]) == set(item["properties"]) == set(rows[0][0])
    tags = schema["definitions"]["tags"]
    assert all(f["tags"][k] in tags[k]["enum"] for row in rows for f in row for k in ("origin", "nature", "scope"))
    assert re.match(r"F\.\d+\.0\.0\.pxname\.1:", ask(host, "/stats;typed", AUTH)[2].decode())


def test_actions(edge):
    host, d = edge
    admin = "X-Admin: yes"
    assert post(host, "b=app&s=s1&action=drain") == "DENY"
    assert d.stat("app", "s1")["status"] != "DRAIN"
    assert post(host, "b=app&s=s1&s=s2&action=drain", admin) == "DONE"
    assert d.stat("app", "s1")["status"] == d.stat("app", "s2")["status"] == "DRAIN"
    assert post(host, "b=app&s=s1&action=drain", admin) == "NONE"
    assert post(host, "b=app&s=s1&s=s2&action=ready", admin) == "DONE"
    assert post(host, "b=app&s=s3&s=zz&action=enable", admin) == "PART"
    assert d.stat("app", "s3")["status"] == "no check"
    assert post(host, "b=nosuch&s=s1&action=maint", admin) == "ERRP"
    assert post(host, "b=app&s=s1&action=maint", admin, "Origin: http://evil.example") == "DENY"
    assert post(host, "b=app&s=s1&action=maint", admin, "Origin: http://edge") == "DONE"
    assert post(host, "b=app&" + "s=s1&" * 20000 + "action=ready", admin) == "EXCD"
    assert d.stat("app", "s1")["status"] == "MAINT"
    status, h, _ = ask(host, "/stats;up;norefresh", AUTH, admin, method="POST", body=b"b=app&s=s1&action=ready")
    assert status == 303 and h["location"] == "/stats;st=DONE;up;norefresh"


def test_keepalive_and_log(edge):
    host, _ = edge
    log = Syslog(host)
    with connect(host, "127.0.0.1", 8000) as s:
        for path, want in (("/stats;csv", 200), ("/x", 200), ("/metrics", 200), ("/stats", 200), ("/y", 200)):
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: e\r\n{AUTH}\r\n\r\n".encode())
            assert read_response(s)[0] == want
        # Pipelined.
        s.sendall("GET /metrics HTTP/1.1\r\nHost: e\r\n\r\nGET /z HTTP/1.1\r\nHost: e\r\n\r\n".encode())
        data = b""
        while not data.endswith(b"hello"):
            data += s.recv(65536)
        assert data.count(b"HTTP/1.1 200") == 2
    log.wait(r' web web/<STATS> \S+ 200 \d+ - - LR-- .*"GET /stats;csv HTTP/1.1"')
    log.wait(r' web web/<STATS> \S+ 200 \d+ - - LR-- .*"GET /metrics HTTP/1.1"')
    log.wait(r' web app/s\d \S+ 200 .*"GET /z HTTP/1.1"')
    log.close()


def test_metrics(edge):
    host, d = edge
    for _ in range(4):
        assert ask(host, "/")[0] == 200
    d.settle()
    status, h, body = ask(host, "/metrics")
    assert status == 200 and h["content-type"] == "text/plain; version=0.0.4"
    m = series(body.decode())
    assert m["haproxy_process_nbthread"] == 2
    assert m['haproxy_backend_http_responses_total{proxy="app",code="2xx"}'] == 4
    assert sum(m[f'haproxy_server_sessions_total{{proxy="app",server="s{i}"}}'] for i in (1, 2, 3)) == 4
    assert m['haproxy_server_weight{proxy="app",server="s2"}'] == 3
    assert m['haproxy_server_status{proxy="app",server="s3",state="MAINT"}'] == 1
    assert m['haproxy_frontend_status{proxy="web",state="UP"}'] == 1
    assert m['headgate_backend_total_time_seconds_count{proxy="app"}'] == 4
    only = series(ask(host, "/metrics?scope=server&no-maint")[2].decode())
    assert only and all("_server_" in k and 's3"' not in k for k in only)
    assert ask(host, "/metrics?scope")[0] == 400
    assert ask(host, "/metrics?scope=")[2] == b""
    assert ask(host, "/metrics", method="POST", body=b"x=y")[0] == 405


def many_servers(n):
    text = CFG
    for b in range(n // 100):
        text += f"backend b{b}\n" + "".join(f"    server srv{s} 10.9.{b}.{s}:80\n" for s in range(100))
    return text


def test_large_bodies_and_slow_readers(one, daemon):
    """Megabytes go to a reader that takes its time; others are served meanwhile; who leaves is forgotten."""
    server = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"hello"))
    d = daemon(one, many_servers(3000).replace("timeout client 5s", "timeout client 60s"))
    want = ask(one, "/metrics")[2]
    assert len(want) > 10_000_000
    slow = []
    for _ in range(4):
        s = connect(one, "127.0.0.1", 8000)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: e\r\n\r\n")
        slow.append(s)
    for s in slow:
        s.recv(1, socket.MSG_PEEK)
    for _ in range(50):
        assert ask(one, "/", port=8001)[2] == b"hello"
    slow.pop().close()
    status, _, body = read_response(slow[0])
    assert status == 200 and len(body) > 10_000_000 and body.count(b"\n") == want.count(b"\n")
    for s in slow:
        s.close()
    # Nothing was left behind.
    wait_for("streams to end", lambda: "/metrics" not in d.cli("show sess all"), timeout=5 * SLOW)
    assert len(ask(one, "/metrics")[2]) > 10_000_000
    server.close()


def test_too_many_at_once(one, daemon):
    """Readers that never read hold a bounded number of bodies; more get 503, and all end when they leave."""
    d = daemon(one, many_servers(1000).replace("nbthread 2", "nbthread 1"))
    readers = []
    for _ in range(30):
        s = connect(one, "127.0.0.1", 8000)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(30 * SLOW)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n")
        readers.append(s)
    codes = [s.recv(12).split(b" ")[1] for s in readers]
    assert codes.count(b"503") == 14 and codes.count(b"200") == 16
    for s in readers:
        s.close()
    wait_for("room again", lambda: ask(one, "/metrics?scope=global")[0] == 200, timeout=5 * SLOW)


def test_stop_while_asked(one, daemon):
    """Requests under way when the daemon stops do not keep it, nor crash it."""
    d = daemon(one, many_servers(3000))
    conns = []
    for _ in range(12):
        s = connect(one, "127.0.0.1", 8000)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: e\r\n\r\n")
        conns.append(s)
    assert d.stop() == 0
    for s in conns:
        s.close()


def test_reload_while_asked(edge):
    host, d = edge
    s = connect(host, "127.0.0.1", 8000)
    for _ in range(5):
        s.sendall(b"GET /metrics?scope=global HTTP/1.1\r\nHost: e\r\n\r\n")
        d.cli("reload")
        status, h, _ = read_response(s)
        assert status == 200
        if h.get("connection") == "close":
            s.close()
            s = connect(host, "127.0.0.1", 8000)
    s.close()


@pytest.mark.skipif(not CHROMIUM, reason="needs chromium ('make deps-browser')")
def test_in_a_browser(edge):
    """As Chromium sees it: the script runs under the page's policy, plots go on, what is open stays so; nothing juts out."""
    host, d = edge
    b = Browser(host)
    try:
        b.look(1280, 800)
        b.go("http://127.0.0.1:8001/haproxy?stats;norefresh")
        assert b.ask("document.querySelector('nav button').textContent") == "Live"
        b.go("http://127.0.0.1:8001/haproxy?stats")
        assert b.ask("document.querySelector('nav button').textContent") == "Pause"
        points = "(document.querySelector('main polyline')?.getAttribute('points').split(' ').length ?? 0)"
        b.wait(f"{points} >= 2")
        seen = b.ask(points)
        b.ask("document.querySelector('nav a').click()")  # another look at the page: the plots go on
        b.wait(f"{points} > {seen}")
        captions = b.ask("[...document.querySelectorAll('.plots small')].map(e => e.textContent)")
        assert any(re.fullmatch(r"\d+ per second", c) for c in captions) and any(c.endswith(" ms") for c in captions), captions
        assert b.ask("document.querySelectorAll('.l7 tr').length") >= 8
        for dark in (False, True):
            for width in (320, 390, 1280):
                b.look(width, 800, dark, phone=width < 1000)
                assert b.ask("document.documentElement.scrollWidth") <= width
            assert b.ask("getComputedStyle(document.body).backgroundColor") == ("rgb(18, 22, 28)" if dark else "rgb(246, 247, 249)")
        assert not b.complaints, b.complaints
    finally:
        b.close()


def test_scope_of_a_page(one, daemon):
    daemon(one, """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
frontend pub
    bind 127.0.0.1:8000
    stats uri /stats
    stats scope .
    stats scope app
backend app
    server s1 127.0.0.1:9001
backend unseen
    server s2 127.0.0.1:9002
""")
    text = ask(one, "/stats")[2].decode()
    assert "s1" in text and "s2" not in text and "unseen" not in text
    sections = {line.split(",")[0] for line in ask(one, "/stats;csv")[2].decode().splitlines()[1:]}
    assert sections == {"pub", "app"}
    assert ask(one, "/stats;csv?scope=unseen")[2].decode().count("\n") == 1


def test_every_metric_of_ours_is_explained(one, daemon):
    daemon(one, """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
listen px
    bind 127.0.0.1:8000
    http-request use-service prometheus-exporter
    server s1 127.0.0.1:9001
""")
    text = ask(one, "/metrics")[2].decode()
    printed = set(re.findall(r"^# TYPE (headgate_\S+) ", text, re.M))
    docs = (ROOT / "docs" / "OPERATIONS.md").read_text()
    explained = set(re.findall(r"^\| `(headgate_\w+)` \| ", docs, re.M))
    # Those of the kernel tier are printed where there is one; their names come from the counter tables.
    counters = (ROOT / "include" / "headgate" / "counters.h").read_text()

    def table(name):
        body = re.search(rf"#define {name}\(X\)(.*?)\n\n", counters, re.S)[1]
        return set(re.findall(r"X\((\w+),", body))

    kernel = {f"headgate_xdp_service_{n}_total" for n in table("HG_SERVICE_COUNTERS")}
    kernel |= {f"headgate_xdp_backend_{n}_total" for n in table("HG_BACKEND_COUNTERS")}
    source = (ROOT / "userspace" / "ctl" / "prom_own.c").read_text()
    kernel |= {a + b for a, b in re.findall(r'"(headgate_xdp_\w*)",\s*"(\w+)"', source)}
    assert len(printed) > 20 and len(kernel) > 20
    assert explained == printed | kernel
    # What is said about drop reasons and commands exists.
    names = set(re.findall(r"X\((\w+), \"", counters))
    for reason in re.findall(r"`([A-Z][A-Z_]{4,})`", docs):
        assert reason in names or reason == "MAINT" or reason.startswith("CAP_"), reason


def test_times_as_histograms(one, daemon):
    slow = ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: [time.sleep(0.3), c.sendall(reply(b"x")), c.recv(1)])
    quick = ScriptedServer(one, "127.0.0.1", 9002, keepalive_server())
    make_cert(one.lab.dir / "site.pem", "edge")
    d = daemon(one, """
global
    nbthread 2
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
frontend web
    bind 127.0.0.1:8000
    bind 127.0.0.1:8443 ssl crt {dir}/site.pem
    http-request use-service prometheus-exporter if { path /metrics }
    stats uri /stats
    use_backend slow if { path /slow }
    default_backend app
backend app
    server s1 127.0.0.1:9002
backend slow
    server s1 127.0.0.1:9001
""")

    def buckets(metric, proxy):
        d.settle()
        text = ask(one, "/metrics")[2].decode()
        assert f"# TYPE {metric} histogram\n" in text
        rows = re.findall(rf'^{metric}_bucket{{proxy="{proxy}",le="([^"]+)"}} (\d+)$', text, re.M)
        counts = [int(n) for _, n in rows]
        assert counts == sorted(counts) and rows[-1][0] == "+Inf" and len(rows) == 18
        assert [float(b) for b, _ in rows] == sorted(float(b) for b, _ in rows)
        count = int(re.search(rf'^{metric}_count{{proxy="{proxy}"}} (\d+)$', text, re.M)[1])
        assert count == counts[-1]
        return {float(b): int(n) for b, n in rows}, float(
            re.search(rf'^{metric}_sum{{proxy="{proxy}"}} ([\d.]+)$', text, re.M)[1])

    for _ in range(20):
        assert ask(one, "/")[0] == 200
    assert ask(one, "/slow")[0] == 200
    total, seconds = buckets("headgate_backend_total_time_seconds", "slow")
    assert total[0.25] == 0 and total[float("inf")] == 1 and seconds >= 0.3
    answer, _ = buckets("headgate_backend_response_time_seconds", "slow")
    assert answer[0.25] == 0 and answer[30.0] == 1
    assert buckets("headgate_backend_total_time_seconds", "app")[0][float("inf")] == 20
    # Connections that were used again took no time to connect, and are not among these.
    connects = buckets("headgate_backend_connect_time_seconds", "app")[0][float("inf")]
    assert connects == int(d.stat("app", "s1")["connect"]) < 20
    assert buckets("headgate_frontend_tls_handshake_seconds", "web")[0][float("inf")] == 0
    one.run(["curl", "-sk", "https://127.0.0.1:8443/"])
    assert buckets("headgate_frontend_tls_handshake_seconds", "web")[0][float("inf")] == 1
    page = ask(one, "/stats")[2].decode()
    assert len(re.findall(r">p50 \d+(\.\d)? p95 \d+(\.\d)? p99 \d+(\.\d)?<", page)) == 2
    slow.close()
    quick.close()
