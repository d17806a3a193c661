# SPDX-License-Identifier: BSD-2-Clause
"""Persistence: dynamic cookies, force-persist, ignore-persist, option persist, http-send-name-header; HAProxy says the same."""

import re

from conftest import ScriptedServer, read_head, reply
from peer import Pair

CONFIG = """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
    retries 0
frontend dynamic
    bind 127.0.0.1:{port}
    default_backend dyn
frontend ruled
    bind 127.0.0.1:{port1}
    default_backend rules
frontend persist
    bind 127.0.0.1:{port2}
    default_backend insist
backend dyn
    balance roundrobin
    dynamic-cookie-key SECRET-KEY
    cookie ID insert dynamic
    http-send-name-header X-Server
    server one 127.0.0.1:9001
    server two 127.0.0.1:9002
    server own 127.0.0.1:9003 cookie mine weight 0
backend rules
    balance roundrobin
    cookie ID insert indirect
    ignore-persist if { path_beg /static }
    force-persist if { req.hdr(X-Test) yes }
    server a 127.0.0.1:9001 cookie a
    server b 127.0.0.1:9002 cookie b disabled
backend insist
    option persist
    cookie ID insert indirect
    server a 127.0.0.1:9001 cookie a
    server b 127.0.0.1:9002 cookie b disabled
    server gone 127.0.0.1:9009 cookie gone disabled
"""


def request(path="/", cookie=None, headers=""):
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\n{headers}"
    return (head + (f"Cookie: ID={cookie}\r\n" if cookie else "") + "\r\n").encode()


def test_persistence(one, daemon):
    def handle(name):
        def serve(server, c, n):
            while head := read_head(c):
                server.received.append(head)
                told = re.findall(rb"(?i)^x-server: (.*)\r$", head, re.M)
                c.sendall(reply(name + b" " + b",".join(told)))
        return serve

    servers = [ScriptedServer(one, "127.0.0.1", port, handle(name)) for port, name in ((9001, b"1"), (9002, b"2"), (9003, b"3"))]
    pair = Pair(one, daemon, CONFIG)

    # The same key and the same servers: the same cookies, from either.
    ids = {}
    for _ in range(2):
        status, headers, body = pair.same(request(headers="X-Server: forged\r\n"))
        assert status == 200
        ids[body] = re.match(r"ID=([0-9a-f]{16}); path=/", headers["set-cookie"])[1]
    assert sorted(ids) == [b"1 one", b"2 two"]
    for body, cookie in ids.items():
        for _ in range(2):
            status, headers, got = pair.same(request(cookie=cookie))
            assert (got, "set-cookie" in headers) == (body, False)
    assert pair.same(request(cookie="mine"))[2] == b"3 own"
    assert "set-cookie" in pair.same(request(cookie="0" * 16))[1]
    assert pair.daemon.stat("dyn", "one")["cookie"] == ids[b"1 one"]
    pair.daemon.cli("set server dyn/one addr 127.0.0.2")
    assert pair.daemon.stat("dyn", "one")["cookie"] not in ids.values()

    # While it runs, until a reload: another key, none, and back.
    d = pair.daemon

    def two():
        got = [pair.ask(request())[0] for _ in range(2)]
        return next(headers for _, headers, body in got if body == b"2 two").get("set-cookie", "")[3:19]

    assert d.cli("set dynamic-cookie-key backend dyn OTHER").strip() == ""
    other = two()
    assert re.fullmatch("[0-9a-f]{16}", other) and other != ids[b"2 two"]
    assert pair.ask(request(cookie=other))[0][2] == b"2 two"
    d.cli("disable dynamic-cookie backend dyn")
    assert two() == "" and d.stat("dyn", "two")["cookie"] == "" and d.stat("dyn", "own")["cookie"] == "mine"
    d.cli("enable dynamic-cookie backend dyn")
    assert two() == other
    d.cli("set dynamic-cookie-key backend dyn SECRET-KEY")
    assert two() == ids[b"2 two"]
    d.cli("disable dynamic-cookie backend dyn")
    d.cli("reload")
    assert two() == ids[b"2 two"]
    for bad in ("set dynamic-cookie-key backend dyn", "set dynamic-cookie-key backend none x", "enable dynamic-cookie backend"):
        assert d.cli(bad, check=False).strip()

    # The first rule that holds counts; a server in maintenance is reached by force only.
    for path, cookie, headers, server in (("/", "b", "", b"1 "), ("/", "b", "X-Test: yes\r\n", b"2 "), ("/static", "b", "X-Test: yes\r\n", b"1 "),
                                          ("/", None, "X-Test: yes\r\n", b"1 ")):
        assert pair.same(request(path, cookie, headers), i=1)[2] == server
    assert pair.same(request(cookie="b"), i=2)[2] == b"2 "
    assert pair.same(request(cookie="gone"), i=2)[0] == 503
    for s in servers:
        s.close()
