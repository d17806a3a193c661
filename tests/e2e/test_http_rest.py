# SPDX-License-Identifier: BSD-2-Clause
"""What is only visible from outside: early hints over HTTP/2, who sees the statistics page, log lines, grace."""

import signal
import time

from conftest import ScriptedServer, Syslog, keepalive_server, raw, wait_for

CFG = """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
listen web
    bind 127.0.0.1:8000 proto h2
    http-request early-hint Link "</a.css>; rel=preload"
    http-request early-hint Link "</b.css>; rel=preload"
    server s 127.0.0.1:9001
"""


def test_early_hints_over_http2(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    daemon(one, CFG)
    # curl 7.88 breaks a connection on which it has seen a 103; two requests on one are nghttp's part.
    out = one.run(["curl", "-sS", "-i", "-m", "20", "--http2-prior-knowledge", "http://127.0.0.1:8000/"]).stdout
    hint = "HTTP/2 103 \nlink: </a.css>; rel=preload\nlink: </b.css>; rel=preload\n\n"
    assert out.replace("\r", "") == f"{hint}HTTP/2 200 \ncontent-length: 2\n\nok", out
    out = one.run(["nghttp", "-nv", "-m", "3", "http://127.0.0.1:8000/"]).stdout
    assert out.count(":status: 103") == 3 and out.count(":status: 200") == 3, out


REST = """
global
    log 127.0.0.1:5140 local0
    grace 1500ms
    tune.http.logurilen 12
    tune.http.cookielen 4
defaults
    mode http
    log global
    timeout client 5s
    timeout server 5s
    timeout connect 5s
listen web
    bind 127.0.0.1:8000
    capture cookie ID= len 20
    log-format "<%r> <%CC>"
    stats enable
    stats uri /stats
    stats auth a:b
    stats http-request allow if { path /stats/open }
    http-request return status 503 if { stopping }
    server s 127.0.0.1:9001
"""


def test_stats_rules_log_lengths_and_grace(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    log = Syslog(one)
    d = daemon(one, REST)

    def get(path):
        return raw(one, "127.0.0.1", 8000, f"GET {path} HTTP/1.1\r\nHost: a\r\nCookie: ID=abcdefgh\r\n"
                                           "Connection: close\r\n\r\n".encode()).split()[1]

    # `allow` stands in front of the passwords, which hold for the rest.
    assert get("/stats/open") == b"200" and get("/stats") == b"401"
    assert get("/some/long/path") == b"200"
    log.wait("<GET /some/lo> <ID=a>")
    began = time.monotonic()
    d.signal(signal.SIGUSR1)
    wait_for("it to say that it stops", lambda: get("/") == b"503")
    wait_for("the end", lambda: d.proc.poll() is not None)
    assert time.monotonic() - began > 1.45
