# SPDX-License-Identifier: BSD-2-Clause
"""Options of HTTP sections: what servers are told, what is refused, how connections end; beside HAProxy where it can."""

import re
import socket
import struct
import time

import pytest
from conftest import SLOW, ScriptedServer, Syslog, connect, keepalive_server, raw, read_head, read_response, recv_all, reply, wait_for
from peer import Pair

DEFAULTS = """
global
    nbthread 1
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
"""


def get(path="/", extra="", method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: a.example\r\n{extra}\r\n".encode()


def fields(head):
    """A request's fields in order, names in lower case."""
    return [(k.lower(), v.strip()) for k, v in (x.split(":", 1) for x in head.decode().split("\r\n")[1:] if x)]


def send(host, port, data):
    with connect(host, "127.0.0.1", port) as c:
        c.sendall(data)
        return read_response(c)


def test_original_destination_as_haproxy(one, daemon):
    server = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    pair = Pair(one, daemon, DEFAULTS + """
listen a
    bind 127.0.0.1:{port}
    option originalto
    option forwardfor
    server s 127.0.0.1:9001
listen b
    bind 127.0.0.1:{port1}
    option originalto header X-Dst
    http-request set-dst ipv4(10.1.2.3) if { path /set }
    server s 127.0.0.1:9001
listen c
    bind 127.0.0.1:{port2}
    option originalto except 127.0.0.0/8
    server s 127.0.0.1:9001
""")
    for i, path in ((0, "/"), (1, "/"), (1, "/set"), (2, "/")):
        start = len(server.received)
        pair.same(get(path), i)
        ours, theirs = (sorted(fields(h)) for h in server.received[start:start + 2])
        assert ours == theirs, (i, path)
    assert ("x-original-to", "127.0.0.1") in fields(server.received[0])


FORWARDED = [
    ("", "proto=http;for=127.0.0.1"),
    ("proto", "proto=http"),
    ("for for_port", 'for="127.0.0.1:PORT"'),
    ("proto host by by_port for", 'proto=http;host="a.example";by="127.0.0.1:8000";for=127.0.0.1'),
    ("host-expr str(x.example)", 'host="x.example"'),
    ("for-expr str(_hidden)", "for=_hidden"),
    ("for-expr str(nonsense)", "for=unknown"),
    ("for-expr req.hdr(x-none)", "for=unknown"),
    ("for-expr ipv6(2001:db8::1)", 'for="[2001:db8::1]"'),
    ("for-expr ipv6(2001:db8::1) for_port-expr int(99)", 'for="[2001:db8::1]:99"'),
    ("by-expr str(_edge) by_port-expr str(_p)", 'by="_edge:_p"'),
]


@pytest.mark.parametrize("words,want", FORWARDED)
def test_forwarded(one, daemon, words, want):
    server = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    daemon(one, DEFAULTS + f"""
listen a
    bind 127.0.0.1:8000
    option forwarded {words}
    server s 127.0.0.1:9001
""")
    with connect(one, "127.0.0.1", 8000) as c:
        port = c.getsockname()[1]
        c.sendall(get(extra="Forwarded: for=1.2.3.4\r\n"))
        read_response(c)
    values = [v for k, v in fields(server.received[0]) if k == "forwarded"]
    assert values == ["for=1.2.3.4", want.replace("PORT", str(port))]


# HAProxy's documentation says when a response with Set-Cookie is refused (its version 2.6 lets all of them pass).
CACHE = [
    ("", "200 OK", "GET", True), ("Cache-Control: public", "200 OK", "GET", True),
    ("Cache-Control: private", "200 OK", "GET", False), ("Cache-Control: no-store", "200 OK", "GET", False),
    ("Cache-Control: a, max-age=0", "200 OK", "GET", False), ("Cache-Control: max-age=10", "200 OK", "GET", True),
    ("Cache-Control: s-maxage=0", "200 OK", "GET", False), ('Cache-Control: no-cache="set-cookie"', "200 OK", "GET", False),
    ("Pragma: no-cache", "200 OK", "GET", False), ("", "302 Found", "GET", False),
    ("Cache-Control: public", "302 Found", "GET", True), ("", "404 Not Found", "GET", True), ("", "200 OK", "POST", False),
    ("Cache-Control: public", "200 OK", "POST", True), ("", "500 Oops", "GET", False),
]


def test_cookie_nocache(one, daemon):
    """`nocache`: a cacheable response becomes private when a cookie is inserted, and only then."""
    now = []
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: read_head(c) and c.sendall(
        reply(status=now[1], headers=[now[0]] if now[0] else [])))
    daemon(one, DEFAULTS + """
listen a
    bind 127.0.0.1:8000
    cookie SRV insert indirect nocache
    option httpclose
    server s 127.0.0.1:9001 cookie one
""")
    # How long it may be kept is said: caches keep that whatever the status, which the list of checkcache leaves out.
    explicit = [("Cache-Control: max-age=10", "302 Found", "GET", True), ("Expires: Thu, 01 Jan 2060 00:00:00 GMT", "200 OK", "POST", True)]
    for line, status, method, is_cacheable in CACHE + explicit:
        now[:] = [line, status]
        for cookie in ("", "Cookie: SRV=one\r\n"):
            head = raw(one, "127.0.0.1", 8000, get(method=method, extra=cookie + ("Content-Length: 0\r\n" if method == "POST" else "")))
            got = [v for k, v in fields(head.split(b"\r\n\r\n")[0] + b"\r\n\r\n") if k == "cache-control"]
            was = [line.split(": ", 1)[1]] if line.startswith("Cache-Control") else []
            assert got == was + (["private"] if is_cacheable and not cookie else []), (line, status, method, cookie)
            assert (b"et-cookie: SRV=one" in head) == (not cookie)


def test_checkcache(one, daemon):
    now = []
    log = Syslog(one)
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: read_head(c) and c.sendall(
        reply(status=now[1], headers=[x for x in (now[0], "Set-Cookie: a=b" if now[2] else "") if x])))
    d = daemon(one, DEFAULTS.replace("nbthread 1", "nbthread 1\n    log 127.0.0.1:5140 local0") + """
listen a
    bind 127.0.0.1:8000
    log global
    option httplog
    option checkcache
    option httpclose
    server s 127.0.0.1:9001
""")
    for line, status, method, is_refused in CACHE:
        for has_cookie in (True, False):
            now[:] = [line, status, has_cookie]
            got = send(one, 8000, get(method=method, extra="Content-Length: 0\r\n" if method == "POST" else ""))[0]
            assert got == (502 if is_refused and has_cookie else int(status[:3])), (line, status, method, has_cookie)
    log.wait(r" a/s .* 502 .* PH-- ")
    assert int(d.stat("a", "s")["dresp"]) == sum(x[3] for x in CACHE)
    log.close()


@pytest.mark.parametrize("how", ["preserve", "delete", "reject"])
def test_restricted_names_as_haproxy(one, daemon, how):
    server = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    pair = Pair(one, daemon, DEFAULTS + f"""
listen a
    bind 127.0.0.1:{{port}}
    option http-restrict-req-hdr-names {how}
    server s 127.0.0.1:9001
""")
    pair.same(get(extra="X-Good-1: x\r\n"))
    start = len(server.received)
    answer = pair.same(get(extra="X-Good: x\r\nX_Bad: y\r\nx.y: z\r\n"))
    assert answer[0] == (403 if how == "reject" else 200)
    if how != "reject":
        ours, theirs = (sorted(fields(h)) for h in server.received[start:start + 2])
        assert ours == theirs and (("x_bad", "y") in ours) == (how == "preserve")


def test_trailers_are_dropped(one, daemon):
    got = []

    def serve(server, c, n):
        buf = b""
        while not buf.endswith(b"\r\n\r\n") or b"0\r\n" not in buf:
            buf += c.recv(65536)
        got.append(buf)
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Tail: server\r\n\r\n")

    ScriptedServer(one, "127.0.0.1", 9001, serve)
    daemon(one, DEFAULTS + """
listen keep
    bind 127.0.0.1:8000
    server s 127.0.0.1:9001
listen drop
    bind 127.0.0.1:8001
    option http-drop-request-trailers
    option http-drop-response-trailers
    server s 127.0.0.1:9001
""")
    for port, is_there in ((8000, True), (8001, False)):
        with connect(one, "127.0.0.1", port) as c:
            c.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                      b"2\r\nhi\r\n0\r\nX-Tail: client\r\n\r\n")
            out = recv_all(c)
        assert (b"x-tail: server" in out.lower()) == is_there and (b"x-tail: client" in got[-1].lower()) == is_there
        out = one.run(["curl", "-s", "-D", "-", "--http2-prior-knowledge", "-H", "Transfer-Encoding: chunked", "-d", "hi",
                       f"http://127.0.0.1:{port}/"], check=False).stdout
        assert ("x-tail" in out) == is_there


def test_nolinger_resets(one, daemon):
    """The client's connection ends with a reset instead of TIME_WAIT; so does the server's."""
    ends = []

    def serve(server, c, n):
        read_head(c)
        c.sendall(reply())
        try:
            ends.append(c.recv(100))
        except ConnectionResetError:
            ends.append("reset")

    ScriptedServer(one, "127.0.0.1", 9001, serve)
    daemon(one, DEFAULTS + """
listen soft
    bind 127.0.0.1:8000
    option httpclose
    server s 127.0.0.1:9001
listen hard
    bind 127.0.0.1:8001
    option httpclose
    option nolinger
    server s 127.0.0.1:9001
""")
    for port, want in ((8000, b""), (8001, "reset")):
        with connect(one, "127.0.0.1", port) as c:
            c.sendall(get())
            wait_for("the server's end", lambda n=port: len(ends) == n - 7999, timeout=10 * SLOW)
            out = recv_all(c)
        assert ends[-1] == want
        assert out.endswith(b"<RESET>") == (want == "reset"), out


def test_prefer_last_server(one, daemon):
    for port in (9001, 9002, 9003):
        ScriptedServer(one, "127.0.0.1", port, keepalive_server(str(port).encode()))
    daemon(one, DEFAULTS + "".join(f"""
listen l{port}
    bind 127.0.0.1:{port}
    balance roundrobin
    {option}
    server a 127.0.0.1:9001
    server b 127.0.0.1:9002
    server c 127.0.0.1:9003
""" for port, option in ((8000, ""), (8001, "option prefer-last-server"))))
    for port, want in ((8000, 3), (8001, 1)):
        with connect(one, "127.0.0.1", port) as c:
            seen = set()
            for _ in range(9):
                c.sendall(get())
                seen.add(read_response(c)[2])
        assert len(seen) == want
    first = {send(one, 8001, get())[2] for _ in range(9)}
    assert len(first) == 3, "other connections go round"


def test_bind_maxconn(one, daemon):
    """One address is full, the other is not; the third connection waits for an end."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, DEFAULTS + """
listen a
    bind 127.0.0.1:8000 maxconn 2
    bind 127.0.0.1:8001
    server s 127.0.0.1:9001
""")
    conns = [connect(one, "127.0.0.1", 8000) for _ in range(3)]
    for c in conns:
        c.sendall(get())
    for c in conns[:2]:
        assert read_response(c)[0] == 200
    conns[2].settimeout(0.5)
    with pytest.raises(TimeoutError):
        conns[2].recv(1)
    assert send(one, 8001, get())[0] == 200
    assert d.stat("a", "FRONTEND")["scur"] in ("2", "3")
    conns[0].close()
    conns[2].settimeout(10 * SLOW)
    assert read_response(conns[2])[0] == 200


COOKIE = re.compile(r"SRV=(\w+)(?:\|([A-Za-z0-9+/]{5}))?(?:\|([A-Za-z0-9+/]{5}))?; path=/")
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def date(seconds):
    v = seconds >> 2
    return "".join(DIGITS[v >> shift & 63] for shift in (24, 18, 12, 6, 0))


def test_cookie_ages_as_haproxy(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    logs = [Syslog(one, port=5140), Syslog(one, port=5141)]
    pair = Pair(one, daemon, DEFAULTS.replace("nbthread 1", "nbthread 1\n    log 127.0.0.1:{log} local0") + """
listen idle
    bind 127.0.0.1:{port}
    log global
    log-format "state %tsc %B"
    cookie SRV insert indirect maxidle 60s
    server a 127.0.0.1:9001 cookie a
listen life
    bind 127.0.0.1:{port1}
    log global
    log-format "state %tsc %B"
    cookie SRV insert indirect maxidle 60s maxlife 120s
    server a 127.0.0.1:9001 cookie a
listen none
    bind 127.0.0.1:{port2}
    log global
    log-format "state %tsc %B"
    cookie SRV insert indirect
    server a 127.0.0.1:9001 cookie a
""")
    # The name of a server, and seconds from now: {…} becomes a date as the cookie has it.
    values = [None, "a", "a|{0}", "a|{-40}", "a|{-100}", "a|{90000}", "a|{-20}|{-100}", "a|{-20}|{-200}", "a|!!!!!", "a|", "b|AAAAA",
              "a|{0}|{0}"]
    states = []
    for i in range(3):
        for text in values:
            answers, now = [], int(time.time())
            value = text and re.sub(r"\{(-?\d+)\}", lambda m: date(now + int(m[1])), text)  # noqa: B023
            for base, log in ((8000, logs[0]), (8100, logs[1])):
                start = len(log.lines)
                _, headers, _ = send(one, base + i, get(extra=f"Cookie: SRV={value}\r\n" if value else ""))
                set_cookie = headers.get("set-cookie")
                m = COOKIE.match(set_cookie) if set_cookie else None
                assert not set_cookie or m, set_cookie
                tsc = wait_for("a line", lambda: [x[1] for y in log.lines[start:] if (x := re.search(r"state (\S+)", y))],
                               timeout=10 * SLOW)[0]
                answers.append((tsc, m and m[1], m and bool(m[2]), m and bool(m[3])))
            assert answers[0] == answers[1], (i, value)
            states.append(answers[0][0])
    assert {"--EI", "--OI", "--VU", "--NI"} <= set(states), set(states)
    for log in logs:
        log.close()


def test_redirects_and_captures(one, daemon):
    log = Syslog(one)
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    daemon(one, DEFAULTS.replace("nbthread 1", "nbthread 1\n    log 127.0.0.1:5140 local0") + """
frontend f
    bind 127.0.0.1:8000
    log global
    option httplog
    declare capture request len 4
    declare capture response len 3
    http-request capture req.hdr(x-one) id 0
    http-request redirect location /to keep-query if { path /keep }
    http-request redirect location /to?x=y keep-query if { path /join }
    http-request redirect location /to set-cookie-fmt "c=%[path]" if { path /cookie }
    default_backend b
backend b
    http-response capture str(abcdef) id 0
    server s 127.0.0.1:9001
""")
    for path, where in (("/keep?a=b", "/to?a=b"), ("/keep", "/to"), ("/join?a=b", "/to?x=y&a=b"), ("/join?", "/to?x=y")):
        assert send(one, 8000, get(path))[1]["location"] == where
    assert send(one, 8000, get("/cookie"))[1]["set-cookie"] == "c=/cookie"
    send(one, 8000, get("/cap", "X-One: 123456\r\n"))
    assert "{1234} {abc} " in log.wait(r".*GET /cap.*")[0]
    log.close()
