# SPDX-License-Identifier: BSD-2-Clause
"""Health checks that speak protocols, against servers that do, refuse, lie, trickle, or never stop talking."""

import time

import pytest
from conftest import SLOW, ScriptedServer, wait_for

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode tcp
    timeout client 10s
    timeout server 10s
    timeout connect 1s
    timeout check 700ms
    default-server inter 200ms rise 1 fall 1
frontend f
    bind 127.0.0.1:8000
"""


def talker(*turns):
    """Handler: says turns[0], then after each thing it hears the next turn; keeps what it heard."""
    def handle(server, c, n):
        for i, text in enumerate(turns):
            if i:
                data = c.recv(65536)
                if not data:
                    return
                server.received.append(data)
            if text:
                c.sendall(text)
        c.recv(65536)
    return handle


def endless(server, c, n):
    while True:
        c.sendall(b"2" * 4096)


def trickle(server, c, n):
    while True:
        c.sendall(b"2")
        time.sleep(0.02)


def silent(server, c, n):
    c.recv(65536)
    time.sleep(30)


GREETING = b"\x0b\0\0\0\x0a8.0.36\0abc"
KINDS = [
    # option, good server, what it hears first, result; bad server, result
    ("ssl-hello-chk", talker(b"", b"\x15\x03\x01\0\x02\x02\x28"), b"\x16\x03\x00\x00\x79\x01", ("L6OK", "0", ""),
     talker(b"", b"SSH-2.0-x\r\n"), ("L6RSP", "0", "")),
    ("smtpchk EHLO edge.example", talker(b"220-mx\r\n220 hi\r\n", b"250-mx\r\n250 HELP\r\n"),
     b"EHLO edge.example\r\n", ("L7OK", "250", "HELP"), talker(b"554 go away\r\n"), ("L7STS", "554", "go away")),
    ("mysql-check", talker(GREETING), None, ("L7OK", "0", "8.0.36"),
     talker(b"\x0b\0\0\0\xff\x10\x04Too many"), ("L7STS", "1040", "Too many")),
    ("mysql-check user hg", talker(GREETING, b"\x07\0\0\x02\0\0\0\x02\0\0\0"), b"\x24\0\0\x01\0\x82",
     ("L7OK", "0", "MySQL server is ok"), talker(GREETING, b"\x09\0\0\x02\xff\x15\x04denied"),
     ("L7STS", "1045", "denied")),
    ("mysql-check user hg pre-41", talker(GREETING, b"\x07\0\0\x02\0\0\0\x02\0\0\0"), b"\x09\0\0\x01\0\x80",
     ("L7OK", "0", "MySQL server is ok"), talker(b""), ("L7TOUT", "0", "")),
    ("pgsql-check user hg", talker(b"", b"R\0\0\0\x0c\0\0\0\x05salt"), b"\0\0\0\x11\0\3\0\0user\0hg\0\0",
     ("L7OK", "0", "PostgreSQL server is ok"), talker(b"", b"E\0\0\0\x20SFATAL\n"), ("L7RSP", "0", "FATAL")),
    ("redis-check", talker(b"", b"+PONG\r\n"), b"*1\r\n$4\r\nPING\r\n", ("L7OK", "0", "Redis server is ok"),
     talker(b"", b"-ERR no\r\n"), ("L7STS", "0", "-ERR no")),
]


def result(d, sv, px="b"):
    row = d.stat(px, sv)
    return row["check_status"].removeprefix("* "), row["check_code"] or "0", row["last_chk"]


@pytest.mark.parametrize("kind", KINDS, ids=[k[0].replace(" ", "-") for k in KINDS])
def test_protocol(one, daemon, kind):
    option, good, heard, is_good, bad, is_bad = kind
    a = ScriptedServer(one, "127.0.0.1", 9001, good)
    ScriptedServer(one, "127.0.0.1", 9002, bad)
    d = daemon(one, CFG + f"backend b\n    option {option}\n    server good 127.0.0.1:9001 check\n"
               "    server bad 127.0.0.1:9002 check\n    server gone 127.0.0.1:9003 check\n")
    want = {"good": ("UP", *is_good), "bad": ("DOWN", *is_bad), "gone": ("DOWN", "L4CON", "0", "")}

    def found():
        return {sv: (d.stat("b", sv)["status"], *result(d, sv)) for sv in want}

    def same():
        # The loader's first results; a check that a busy machine made late is repaired by the next one.
        return all(got[:3] == want[sv][:3] and want[sv][3] in got[3] for sv, got in found().items())

    try:
        wait_for("all results", same, timeout=15 * SLOW)
    except TimeoutError:
        assert found() == want
    if heard:
        assert a.received[0].startswith(heard)


def test_hostile_answers_are_bounded(one, daemon):
    """Endless, trickling and silent servers: each check ends in its time, the process keeps its size and answers."""
    for port, handler in ((9001, endless), (9002, trickle), (9003, silent)):
        ScriptedServer(one, "127.0.0.1", port, handler)
    options = ["smtpchk", "mysql-check user x", "pgsql-check user x", "redis-check", "ssl-hello-chk", "httpchk",
               "tcp-check"]
    tail = ""
    for i, option in enumerate(options):
        tail += f"backend b{i}\n    option {option}\n"
        if option == "tcp-check":
            tail += "    tcp-check expect string never\n"
        for j, name in enumerate(("endless", "trickle", "silent")):
            tail += f"    server {name} 127.0.0.1:{9001 + j} check\n"
    d = daemon(one, CFG + tail)
    names = [(f"b{i}", s) for i in range(len(options)) for s in ("endless", "trickle", "silent")]
    wait_for("every server is down", lambda: all(d.stat(*n)["status"] == "DOWN" for n in names), timeout=20 * SLOW)

    def rss():
        with open(f"/proc/{d.proc.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    before, took = rss(), []
    until = time.monotonic() + 2
    while time.monotonic() < until:
        began = time.monotonic()
        d.cli("show info")
        took.append(time.monotonic() - began)
        time.sleep(0.05)
    # Not the worst of them: that one may have waited for a CPU, as everything on a busy machine does.
    assert sorted(took)[len(took) // 2] < 0.5 * SLOW, "the control thread was held up"
    assert rss() - before < 8192 * SLOW
    for n in names:
        assert d.stat(*n)["check_status"].removeprefix("* ") in ("L7TOUT", "L6TOUT", "L7RSP", "L7STS", "L6RSP"), n


def test_script_of_several_requests(one, daemon):
    """What one port answers is told to another: the server is up as long as both agree."""
    token = ["t1"]

    def login(server, c, n):
        server.received.append(c.recv(4096))
        c.sendall(b"HTTP/1.0 200 OK\r\nX-Token: %s\r\n\r\n9002" % token[0].encode())

    def use(server, c, n):
        server.received.append(c.recv(4096))
        ok = b"X-Token: t1\r\n" in server.received[-1]
        c.sendall(b"HTTP/1.0 %s\r\n\r\nhello s1" % (b"200 OK" if ok else b"403 No"))

    a, b = ScriptedServer(one, "127.0.0.1", 9001, login), ScriptedServer(one, "127.0.0.1", 9002, use)
    d = daemon(one, CFG + """
backend app
    mode http
    option httpchk GET /login
    http-check set-var(check.who) str(probe)
    http-check connect
    http-check send ver HTTP/1.0 hdr X-Who %[var(check.who)]
    http-check expect status 200
    http-check set-var(check.token) res.hdr(x-token)
    http-check set-var-fmt(check.port) "%[res.body]"
    http-check connect port var(check.port) linger
    http-check send meth PUT uri-lf "/use/%[srv_name]" hdr X-Token %[var(check.token)] body-lf "%[var(check.who)]"
    http-check expect status-code int(42) on-success "token %[var(check.token)]" on-error "no %[status]" string-lf "hello %[srv_name]"
    http-check expect status-code status on-error "no %[status]" status 200
    server s1 127.0.0.1:9001 check inter 100
""")
    d.wait_server("app", "s1", "UP")
    wait_for("a check", lambda: d.stat("app", "s1")["check_status"].endswith("L7OK"))
    assert a.received[0] == b"GET /login HTTP/1.0\r\nX-Who: probe\r\nConnection: close\r\n\r\n"
    assert b.received[0].startswith(b"PUT /use/s1 HTTP/1.0\r\nX-Token: t1\r\nContent-Length: 5\r\n")
    assert b.received[0].endswith(b"\r\n\r\nprobe")
    token[0] = "t2"
    d.wait_server("app", "s1", "DOWN")
    wait_for("its code", lambda: d.stat("app", "s1")["check_code"] == "403")
    assert d.stat("app", "s1")["last_chk"] == "no 403"
