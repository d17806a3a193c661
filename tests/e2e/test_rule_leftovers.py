# SPDX-License-Identifier: BSD-2-Clause
"""Actions in places where few expect them: names by expression, marks, variables and counters everywhere."""

import pytest
from conftest import ScriptedServer, connect, keepalive_server, read_response, wait_for
from peer import Pair

CONF = """
global
    nbthread 1
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
backend table
    stick-table type string len 64 size 100 store gpc0,gpt0,conn_cnt,http_req_cnt,http_err_cnt
frontend web
    bind 127.0.0.1:{port}
    tcp-request connection set-var(sess.a) int(1)
    tcp-request connection set-var(sess.b) int(2)
    tcp-request connection unset-var(sess.a)
    tcp-request connection set-mark 7
    tcp-request session unset-var(sess.none)
    http-request set-tos 0x10
    http-request set-nice -5
    http-request del-header ^x-(one|two)$ -m reg
    http-request set-header x-vars "%[var(sess.a)]|%[var(sess.b)]"
    http-request set-var(txn.path) path
    http-request set-header x-names %[req.hdr_names(:)] if { path /names }
    http-request track-sc1 path table table if { path /req }
    http-response track-sc0 var(txn.path) table table
    http-response sc-inc-gpc0(0)
    http-response sc-set-gpt0(0) 3
    http-response set-mark 9
    http-response set-header x-sc "%[sc0_conn_cnt] %[sc0_http_req_cnt] %[sc0_http_err_cnt] %[sc0_get_gpc0] %[sc0_get_gpt0]"
    default_backend app
backend app
    server s 127.0.0.1:9001
listen raw
    mode tcp
    bind 127.0.0.1:{port1}
    tcp-request content set-tos 8
    tcp-request content track-sc0 src table ips
    tcp-response content sc-inc-gpc0(0)
    tcp-response content set-var(sess.x) int(1)
    tcp-response content unset-var(sess.x)
    tcp-response content set-log-level info
    server s 127.0.0.1:9001
backend ips
    stick-table type ip size 10 store gpc0
"""


def get(path, extra=""):
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{extra}\r\n".encode()


def echo(server, c, n):
    while True:
        buf = b""
        while b"\r\n\r\n" not in buf:
            chunk = c.recv(65536)
            if not chunk:
                return
            buf += chunk
        fields = "\n".join(sorted(line.lower() for line in buf.decode().split("\r\n")[1:]
                                  if line.lower().startswith("x-"))).encode()
        status = b"404 No" if b" /err" in buf else b"200 OK"
        c.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(fields)) + fields)


@pytest.fixture
def pair(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, echo)
    return Pair(one, daemon, CONF)


def test_same_as_haproxy(pair):
    seen = pair.same(get("/a", "X-One: 1\r\nx-TWO: 2\r\nX-Three: 3\r\nx-onetwo: 4\r\n"))
    assert seen[2] == b"x-onetwo: 4\nx-three: 3\nx-vars: |2"
    assert seen[1]["x-sc"] == "1 1 0 1 3"
    assert pair.same(get("/a"))[1]["x-sc"] == "2 2 0 2 3"
    assert pair.same(get("/err"))[1]["x-sc"] == "1 1 1 1 3", "the answer that is tracked is counted"
    assert pair.same(get("/err"))[1]["x-sc"] == "2 2 2 2 3"
    pair.same(get("/tcp"), 1)
    wait_for("the counter", lambda: "gpc0=1" in pair.daemon.cli("show table ips"))


def test_marks_reach_the_socket(pair):
    """The kernel shows the mark of a socket to ss; the TOS is in the packets' headers, and ss shows it, too."""
    with connect(pair.host, "127.0.0.1", 8000) as c:
        c.sendall(get("/a"))
        assert read_response(c)[0] == 200
        port = c.getsockname()[1]
        out = pair.host.run(["ss", "-tnOe", "state", "established", f"( dport = :{port} )"]).stdout
        assert "fwmark:0x9" in out, out
        out = pair.host.run(["ss", "-tnO", "--tos", "state", "established", f"( dport = :{port} )"]).stdout
        assert "tos:0x10" in out, out
