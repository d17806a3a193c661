# SPDX-License-Identifier: BSD-2-Clause
"""What is only visible from outside: early hints over HTTP/2."""

from conftest import ScriptedServer, keepalive_server

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
