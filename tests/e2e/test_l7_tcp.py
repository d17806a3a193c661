# SPDX-License-Identifier: BSD-2-Clause
"""mode tcp: bytes both ways, half-closes, limits of memory, many connections."""

import hashlib
import os
import socket
import threading
import time

from conftest import SLOW, ScriptedServer, connect, raw, recv_all, wait_for

CFG = """
defaults
    mode tcp
    timeout client 10s
    timeout server 10s
    timeout connect 1s
listen db
    bind 127.0.0.1:8000
    {options}
    server s1 127.0.0.1:9001
"""


def cfg(options=""):
    return CFG.replace("{options}", options)


def read_all(c):
    out = bytearray()
    while chunk := c.recv(1 << 18):
        out += chunk
    return bytes(out)


def test_client_half_close(one, daemon):
    """The server sees the end of the request and still answers."""
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: c.sendall(hashlib.sha256(read_all(c)).hexdigest().encode()))
    d = daemon(one, cfg())
    data = os.urandom(3 << 20)
    out = raw(one, "127.0.0.1", 8000, data, shut=True)
    assert out.decode() == hashlib.sha256(data).hexdigest()
    row = d.stat("db", "s1")
    assert (row["bin"], row["bout"]) == (str(len(data)), "64")


def test_end_of_stream_at_any_place(one, daemon):
    """A transfer may end exactly where a worker turns to others; its end is passed on all the same."""
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: c.sendall(str(len(read_all(c))).encode()))
    daemon(one, cfg())
    data = bytes(3 << 20)
    for i in range(150):
        assert raw(one, "127.0.0.1", 8000, data, shut=True) == str(len(data)).encode(), i


def test_server_half_close(one, daemon):
    """The server ends its direction first and goes on reading."""
    got = []
    done = threading.Event()

    def handle(s, c, n):
        c.sendall(b"bye")
        c.shutdown(socket.SHUT_WR)
        got.append(read_all(c))
        done.set()

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        assert recv_all(c) == b"bye"
        for _ in range(5):
            c.sendall(b"x" * 1000)
            time.sleep(0.02)
        c.shutdown(socket.SHUT_WR)
        assert done.wait(5 * SLOW)
    assert got == [b"x" * 5000]


def test_server_speaks_first(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: (c.sendall(b"220 ready\r\n"), c.sendall(c.recv(100)[::-1])))
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        assert c.recv(100) == b"220 ready\r\n"
        c.sendall(b"olleh")
        assert recv_all(c) == b"hello"


def test_both_directions_at_once(one, daemon):
    def handle(s, c, n):
        while data := c.recv(1 << 17):
            c.sendall(data)

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    data = os.urandom(1 << 20) * 16
    with connect(one, "127.0.0.1", 8000, timeout=20) as c:
        def send():
            c.sendall(data)
            c.shutdown(socket.SHUT_WR)

        t = threading.Thread(target=send)
        t.start()
        out = read_all(c)
        t.join()
    assert hashlib.sha256(out).digest() == hashlib.sha256(data).digest()


def test_slow_reader_holds_the_sender_back(one, daemon):
    sent = [0]

    def handle(s, c, n):
        c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        block = bytes(65536)
        for _ in range(1024):
            c.sendall(block)
            sent[0] += len(block)

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg())
    with connect(one, "127.0.0.1", 8000) as c:
        last = -1
        while sent[0] != last:
            last = sent[0]
            time.sleep(0.2)
        assert last < 32 << 20
        assert len(read_all(c)) == 64 << 20


def test_reset_is_passed_on(one, daemon):
    gone = threading.Event()

    def handle(s, c, n):
        try:
            while c.recv(1000):
                pass
        finally:
            gone.set()

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg())
    c = connect(one, "127.0.0.1", 8000)
    c.sendall(b"x")
    wait_for("the session", lambda: d.stat("db", "s1")["scur"] == "1")
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    c.close()
    assert gone.wait(5 * SLOW)
    wait_for("no session", lambda: d.stat("db", "s1")["scur"] == "0")


def test_timeout_of_an_idle_session(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: recv_all(c))
    daemon(one, cfg("timeout client 800ms\n    timeout server 800ms"))
    with connect(one, "127.0.0.1", 8000) as c:
        t = time.monotonic()
        for _ in range(4):  # traffic in one direction keeps it alive
            c.sendall(b"x")
            time.sleep(0.25)
        assert recv_all(c) == b""
        assert 1.5 < time.monotonic() - t < 8 * SLOW


def test_maxconn_of_the_frontend_waits(one, daemon):
    """Connections beyond the limit stay in the backlog and are served when others end."""

    def handle(s, c, n):
        while data := c.recv(100):
            c.sendall(data)

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, cfg("maxconn 2"))
    first = [connect(one, "127.0.0.1", 8000) for _ in range(2)]
    for c in first:
        c.sendall(b"a")
        assert c.recv(10) == b"a"
    with connect(one, "127.0.0.1", 8000) as third:
        third.sendall(b"b")
        third.settimeout(0.4)
        try:
            assert third.recv(10) == "nothing yet"
        except TimeoutError:
            pass
        assert d.stat("db", "FRONTEND")["scur"] == "2"
        first[0].close()
        third.settimeout(15 * SLOW)
        assert third.recv(10) == b"b"
    first[1].close()


def test_balance_over_tcp_servers(one, daemon):
    """roundrobin with weights 3:1, leastconn by open connections, source sticks."""
    for port, name in ((9001, b"a"), (9002, b"b")):
        ScriptedServer(one, "127.0.0.1", port, lambda s, c, n, name=name: (c.sendall(name), recv_all(c)))
    text = """
global
    nbthread 1
    stats socket {sock} level admin
defaults
    mode tcp
    timeout client 10s
    timeout server 10s
    timeout connect 1s
listen rr
    bind 127.0.0.1:8001
    balance roundrobin
    server a 127.0.0.1:9001 weight 3
    server b 127.0.0.1:9002 weight 1
listen lc
    bind 127.0.0.1:8002
    balance leastconn
    server a 127.0.0.1:9001
    server b 127.0.0.1:9002
listen src
    bind 127.0.0.1:8003
    balance source
    server a 127.0.0.1:9001
    server b 127.0.0.1:9002
"""
    d = daemon(one, text)

    def ask(port):
        with connect(one, "127.0.0.1", port) as c:
            return c.recv(10)

    names = [ask(8001) for _ in range(16)]
    assert names.count(b"a") == 12
    held = []
    for _ in range(8):
        c = connect(one, "127.0.0.1", 8002)
        held.append((c, c.recv(10)))
    assert [n for _, n in held].count(b"a") == 4
    for c, n in held:  # all of one server's go: the next four go there
        if n == b"a":
            c.close()
    wait_for("a to be empty", lambda: d.stat("lc", "a")["scur"] == "0", timeout=10 * SLOW)
    again = []
    for _ in range(4):
        c = connect(one, "127.0.0.1", 8002)
        again.append((c, c.recv(10)))
    assert [n for _, n in again] == [b"a"] * 4
    for c, _ in held + again:
        c.close()
    assert len({ask(8003) for _ in range(6)}) == 1


def test_unix_socket_on_both_sides(one, daemon):
    path = one.lab.dir / "back.sock"
    srv = socket.socket(socket.AF_UNIX)
    srv.bind(str(path))
    srv.listen(5)

    def serve():
        c, _ = srv.accept()
        c.sendall(c.recv(100).upper())
        c.close()

    threading.Thread(target=serve, daemon=True).start()
    daemon(one, f"""
defaults
    mode tcp
    timeout client 5s
    timeout server 5s
    timeout connect 1s
listen u
    bind unix@{one.lab.dir}/front.sock mode 666
    server s1 {path}
""")
    with socket.socket(socket.AF_UNIX) as c:
        c.settimeout(5)
        c.connect(str(one.lab.dir / "front.sock"))
        c.sendall(b"unix")
        assert recv_all(c) == b"UNIX"
    srv.close()
