# SPDX-License-Identifier: BSD-2-Clause
"""How an exchange ended, in the log: every state that can be provoked from outside, as HAProxy calls it."""

import re
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import SLOW, HostSocket, ScriptedServer, Syslog, connect, read_head, recv_all, reply, wait_for
from peer import Pair

CFG = """
global
    nbthread 1
    log 127.0.0.1:{log} local0
defaults
    mode http
    log global
    timeout client 600ms
    timeout server 400ms
    timeout connect 300ms
    timeout http-request 500ms
    timeout queue 200ms
    timeout tarpit 200ms
    retries 0
    option abortonclose
frontend web
    bind 127.0.0.1:{port}
    log-format "state %tsc %ST %b/%s %B"
    http-request deny if { path /deny }
    http-request reject if { path /reject }
    http-request tarpit if { path /tarpit }
    http-request return status 200 if { path /return }
    http-request redirect location / if { path /redirect }
    http-request auth if { path /auth }
    http-response deny if { res.hdr(x-deny) -m found }
    http-response return status 200 if { res.hdr(x-return) -m found }
    use_backend refused if { path /refused }
    use_backend nobody if { path /nobody }
    use_backend full if { path_beg /full }
    use_backend cookie if { path_beg /cookie }
    default_backend app
backend app
    server s 127.0.0.1:9001
backend refused
    server s 127.0.0.1:9
backend nobody
backend full
    server s 127.0.0.1:9001 maxconn 1
backend cookie
    cookie SRV insert indirect
    server a 127.0.0.1:9001 cookie a
    server b 127.0.0.1:9 cookie b disabled
frontend tcp
    mode tcp
    bind 127.0.0.1:{port1}
    log-format "state %ts %b/%s %B"
    tcp-request inspect-delay 200ms
    tcp-request content reject if { req.payload(0,6) -m str reject }
    tcp-request content accept if { req.len gt 0 }
    tcp-request content accept if WAIT_END
    default_backend tcpapp
backend tcpapp
    mode tcp
    tcp-request inspect-delay 200ms
    tcp-request content reject if { req.payload(0,4) -m str back }
    tcp-response inspect-delay 200ms
    tcp-response content reject if { res.payload(0,3) -m str bad }
    tcp-response content close if { res.payload(0,5) -m str close }
    server s 127.0.0.1:9002
frontend tcprefused
    mode tcp
    bind 127.0.0.1:{port2}
    log-format "state %ts %b/%s %B"
    default_backend tcprefused
backend tcprefused
    mode tcp
    server s 127.0.0.1:9
"""
BIG = b"x" * (16 << 20)


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def http_server(server, c, n):
    head = read_head(c)
    path = head.split()[1] if head else b""
    if path == b"/close":
        return
    if path == b"/partial":
        c.sendall(b"HTTP/1.1 200 OK\r\nConte")
        return
    if path == b"/garbage":
        c.sendall(b"!!!\r\n\r\n")
    elif path == b"/cut":
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        return
    elif path == b"/stall":
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        time.sleep(2)
    elif path == b"/chunk":
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    elif path == b"/big":
        c.sendall(reply(BIG))
    elif path in (b"/silent", b"/fullwait", b"/post"):
        time.sleep(1.5)
    elif path == b"/xdeny":
        c.sendall(reply(headers=["X-Deny: 1"]))
    elif path == b"/xreturn":
        c.sendall(reply(headers=["X-Return: 1"]))
    elif path == b"/switch":
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    elif path:
        c.sendall(reply())
    time.sleep(0.3)


def tcp_server(server, c, n):
    data = c.recv(100)
    if data == b"echo":
        c.sendall(data)
    elif data == b"bad":
        c.sendall(b"bad")
        c.recv(1)
    elif data == b"close":
        c.sendall(b"close it")
        c.recv(1)
    elif data == b"reset":
        reset(c)
    elif data == b"silent":
        time.sleep(2)
    elif data == b"flood":
        c.sendall(BIG)


def get(path, extra=""):
    return f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{extra}\r\n".encode()


def ask(path, extra=""):
    def run(host, base):
        with connect(host, "127.0.0.1", base) as c:
            c.sendall(get(path, extra))
            recv_all(c)
    return run


def send(data, after=0.0, how="close", port=0, rcvbuf=0, read=0):
    """Sends, waits, ends in some way; `how` "wait" reads to the end."""
    def run(host, base):
        c = HostSocket.make(host)
        if rcvbuf:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        c.settimeout(10 * SLOW)
        c.connect(("127.0.0.1", base + port))
        if data:
            c.sendall(data)
        if read:
            c.recv(read)
        time.sleep(after)
        if how == "wait":
            recv_all(c)
        if how == "shut":
            c.shutdown(socket.SHUT_WR)
            recv_all(c)
        if how == "reset":
            reset(c)
        else:
            c.close()
    return run


def in_queue(how):
    def run(host, base):
        first = connect(host, "127.0.0.1", base)
        first.sendall(get("/fullwait"))
        time.sleep(0.1)
        second = connect(host, "127.0.0.1", base)
        second.sendall(get("/full"))
        if how == "abort":
            time.sleep(0.05)
            second.close()
        else:
            recv_all(second)
            second.close()
        recv_all(first)
        first.close()
        time.sleep(1)
    return run


POST = b"POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc"
# name: what the client does, what the log says, and how many lines it takes
HTTP = {
    "normal": (ask("/ok"), ["---- 200 app/s"]),
    "bad request": (send(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", how="wait"), ["PR-- 400 web/<NOSRV>"]),
    "request timeout": (send(b"GET / HT", how="wait"), ["cR-- 408 web/<NOSRV>"]),
    "client leaves in request": (send(b"GET / HT", 0.1), ["CR-- 400 web/<NOSRV>"]),
    "nothing": (send(b"", 0.1), ["CR-- 400 web/<NOSRV>"]),
    "deny": (ask("/deny"), ["PR-- 403 web/<NOSRV>"]),
    "tarpit": (ask("/tarpit"), ["PT-- 500 web/<NOSRV>"]),
    "return": (ask("/return"), ["LR-- 200 web/<NOSRV>"]),
    "redirect": (ask("/redirect"), ["LR-- 302 web/<NOSRV>"]),
    "auth": (ask("/auth"), ["LR-- 401 web/<NOSRV>"]),
    "deny response": (ask("/xdeny"), ["PH-- 502 app/s"]),
    "return response": (ask("/xreturn"), ["LH-- 200 app/s"]),
    "server closes": (ask("/close"), ["SH-- 502 app/s"]),
    "server closes in head": (ask("/partial"), ["SH-- 502 app/s"]),
    "garbage": (ask("/garbage"), ["PH-- 502 app/s"]),
    "server timeout": (ask("/silent"), ["sH-- 504 app/s"]),
    "server cuts body": (ask("/cut"), ["SD-- 200 app/s"]),
    "server stalls in body": (ask("/stall"), ["sD-- 200 app/s"]),
    "client leaves in answer": (send(get("/big"), 0.2, "reset", rcvbuf=4096, read=100), ["CD-- 200 app/s"]),
    "client does not read": (send(get("/big"), 2, "close", rcvbuf=4096, read=100), ["cD-- 200 app/s"]),
    "client leaves before the answer": (send(get("/silent"), 0.1), ["CH-- 400 app/s"]),
    "client leaves in its body": (send(POST, 0.1), ["CD-- 400 app/s"]),
    "client stalls in its body": (send(POST, how="wait"), ["cD-- 408 app/s"]),
    "refused": (ask("/refused"), ["SC-- 503 refused/s"]),
    "no server": (ask("/nobody"), ["SC-- 503 nobody/<NOSRV>"]),
    "queue timeout": (in_queue("wait"), ["sQ-- 503 full/<NOSRV>", "sH-- 504 full/s"]),
    "leaves the queue": (in_queue("abort"), ["CQ-- -1 full/<NOSRV>", "sH-- 504 full/s"]),
    "cookie inserted": (ask("/cookie"), ["--NI 200 cookie/a"]),
    "cookie valid": (ask("/cookie", "Cookie: SRV=a\r\n"), ["--VN 200 cookie/a"]),
    "cookie of a server that is down": (ask("/cookie", "Cookie: SRV=b\r\n"), ["--DI 200 cookie/a"]),
    "cookie unknown": (ask("/cookie", "Cookie: SRV=x\r\n"), ["--II 200 cookie/a"]),
}
TCP = {
    "tcp normal": (send(b"echo", how="wait", port=1), ["-- tcpapp/s"]),
    "tcp refused": (send(b"x", how="wait", port=2), ["SC tcprefused/s"]),
    "tcp reject": (send(b"reject", how="wait", port=1), ["PR tcp/<NOSRV>"]),
    "tcp reject of the backend": (send(b"back", how="wait", port=1), ["PR tcpapp/<NOSRV>"]),
    "tcp response reject": (send(b"bad", how="wait", port=1), ["PD tcpapp/s"]),
    "tcp response close": (send(b"close", how="wait", port=1), ["-- tcpapp/s"]),
    "tcp server timeout": (send(b"silent", how="wait", port=1), ["sD tcpapp/s"]),
    "tcp client reset": (send(b"silent", 0.2, "reset", port=1), ["CD tcpapp/s"]),
    "tcp server reset": (send(b"reset", how="wait", port=1), ["SD tcpapp/s"]),
    "tcp client does not read": (send(b"flood", 2, "close", port=1, rcvbuf=4096, read=10), ["cD tcpapp/s"]),
}
# Where we say it in another way than HAProxy 2.6 on purpose, and why.
OURS = {
    # We answer 400: a client that ended only its own direction can still read it.
    "client leaves in its body": ["CD-- -1 app/s"],
    # The server owes nothing while the request is not whole: the client is the one who is late.
    "client stalls in its body": ["sH-- 504 app/s"],
}


@pytest.fixture
def scene(one, daemon):
    logs = [Syslog(one, port=5140), Syslog(one, port=5141)]
    ScriptedServer(one, "127.0.0.1", 9001, http_server)
    ScriptedServer(one, "127.0.0.1", 9002, tcp_server)
    pair = Pair(one, daemon, CFG)
    yield pair, logs
    for log in logs:
        log.close()


def states(log, start, n):
    def find():
        found = [m[1] for line in log.lines[start:] if (m := re.search(r"state (\S.*) \d+\s*$", line))]
        return found if len(found) >= n else None
    return sorted(wait_for(f"{n} lines", find, 10 * SLOW))


def said_by(host, base, log, client, want):
    """What the log says of the scene. It has to happen at its moment, and a busy machine may miss that: played again then."""
    for _ in range(3):
        start = len(log.lines)
        client(host, base)
        try:
            said = states(log, start, len(want))
        except TimeoutError:
            said = "no line"
        if said == sorted(want):
            break
        time.sleep(2)  # for lines that are still to come of it
    return said


@pytest.mark.parametrize("table", [HTTP, TCP], ids=["http", "tcp"])
def test_states(scene, table):
    pair, logs = scene
    wrong = []
    for name, (client, want) in table.items():
        with ThreadPoolExecutor(2) as both:
            said = list(both.map(lambda x: said_by(pair.host, x[0], x[1], client, x[2]),  # noqa: B023
                                 ((8000, logs[0], want), (8100, logs[1], OURS.get(name, want)))))
        if said[0] != sorted(want) or said[1] != OURS.get(name, said[0]):
            wrong.append(f"{name}: expected {sorted(want)}, Headgate {said[0]}, HAProxy {said[1]}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_logasap_and_separate_errors(one, daemon):
    """The line is there while the body still comes, with '+'; errors have a severity of their own; as HAProxy."""
    logs, go = [Syslog(one, port=5140), Syslog(one, port=5141)], threading.Event()

    def slow(server, c, n):
        if not read_head(c):
            return
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        go.wait(30 * SLOW)
        c.sendall(b"12345")

    ScriptedServer(one, "127.0.0.1", 9001, slow)
    pair = Pair(one, daemon, """
global
    nbthread 1
    log 127.0.0.1:{log} local0
defaults
    log global
    option httplog
    option logasap
    option log-separate-errors
    timeout client 5s
    timeout server 5s
    timeout connect 1s
    retries 0
listen web
    mode http
    bind 127.0.0.1:{port}
    server s 127.0.0.1:9001
listen tcp
    bind 127.0.0.1:{port1}
    option tcplog
    server s 127.0.0.1:9001
listen down
    mode http
    bind 127.0.0.1:{port2}
    server s 127.0.0.1:9
""")
    for base, log in ((8000, logs[0]), (8100, logs[1])):
        for i, pattern in ((0, r"<134>.* web web/s 0/0/\d+/\d+/\+\d+ 200 \+\d+ - - ---- .* \"GET / HTTP/1.1\""),
                           (1, r"<134>.* tcp tcp/s \d+/\d+/\+\d+ \+0 -- "),
                           (2, r"<131>.* down down/s 0/0/-1/-1/\+\d+ 503 \+\d+ - - SC-- ")):
            with connect(pair.host, "127.0.0.1", base + i) as c:
                c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                log.wait(pattern)
                go.set()
                recv_all(c)
                go.clear()
        time.sleep(0.2)
        assert len([x for x in log.lines if " web web/s " in x]) == 1, "one line for each"
    for log in logs:
        log.close()


def test_failed_connection_has_a_date(one, daemon):
    log = Syslog(one)
    daemon(one, """
global
    stats socket {sock}
    log 127.0.0.1:5140 local0
defaults
    mode http
    log global
    option httplog
    timeout client 5s
frontend web
    bind 127.0.0.1:8000 accept-proxy name front
""")
    hours = {time.strftime("%d/%b/%Y:%H:")}
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"GET / HTTP/1.0\r\n\r\n")
        recv_all(c)
    m = log.wait(r"127\.0\.0\.1:\d+ \[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d\.\d{3})\] web/front: \S")
    assert m[1][:15] in hours | {time.strftime("%d/%b/%Y:%H:")}
    log.close()
