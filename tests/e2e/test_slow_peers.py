# SPDX-License-Identifier: BSD-2-Clause
"""Clients that send or read a little now and then: ended by their rate or by a total, and of no cost to others."""

import os
import resource
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import (SLOW, HostSocket, ScriptedServer, Syslog, connect, keepalive_server, read_head,
                      read_response, recv_all, reply, start_nginx, wait_for)

CFG = """
global
    stats socket {sock} level admin
    log 127.0.0.1:5140 local0
    nbthread 2
    maxconn 20000
defaults
    mode http
    log global
    option httplog
    timeout client 20s
    timeout server 20s
    timeout connect 5s
"""
WEB = """
listen web
    bind 127.0.0.1:8000
    server s1 127.0.0.1:9001
"""
BIG = 1 << 20


def body_reader(server, c, n):
    """Answers when the body of Content-Length has come."""
    while head := read_head(c):
        text, _, body = head.partition(b"\r\n\r\n")
        length = int(text.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        while len(body) < length:
            chunk = c.recv(65536)
            if not chunk:
                return
            body += chunk
        server.received.append(body)
        c.sendall(reply(b"thanks"))


def post(s, length):
    s.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length)


def drip(s, chunk, pause, limit):
    """Sends chunk after chunk until the peer has had enough; the seconds that took."""
    began = time.monotonic()
    s.setblocking(False)
    while time.monotonic() - began < limit:
        try:
            s.send(chunk)
        except OSError:
            break
        time.sleep(pause)
        try:
            if s.recv(1, socket.MSG_PEEK) is not None:
                break
        except BlockingIOError:
            continue
        except OSError:
            break
    s.setblocking(True)
    return time.monotonic() - began


def test_trickled_body_is_ended(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, body_reader)
    log = Syslog(one)
    daemon(one, CFG + "    min-rate request 200/s after 1s\n" + WEB)
    s = connect(one, "127.0.0.1", 8000, 30)
    post(s, 100000)
    took = drip(s, b"x", 0.05, 15)
    assert 0.8 < took < 10 * SLOW
    assert b"HTTP/1.1 408 " in recv_all(s)
    log.wait(r" 408 .* cD-- ")


def test_body_total(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, body_reader)
    log = Syslog(one)
    daemon(one, CFG + "    timeout http-body 1s\n" + WEB)
    s = connect(one, "127.0.0.1", 8000, 30)
    post(s, 10_000_000)
    took = drip(s, b"x" * 1000, 0.05, 15)
    assert 0.8 < took < 10 * SLOW
    assert b"HTTP/1.1 408 " in recv_all(s)
    log.wait(r" 408 .* cD-- ")
    s = connect(one, "127.0.0.1", 8000, 30)
    post(s, 3)
    s.sendall(b"abc")
    assert read_response(s)[0] == 200


def test_honest_slow_clients_are_served(one, daemon):
    """Twice the rate asked for, in pieces; a server that is slow to read or answer is not the client's fault."""
    def slow_server(server, c, n):
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        time.sleep(3)
        body_reader(server, c, n)

    ScriptedServer(one, "127.0.0.1", 9001, body_reader)
    ScriptedServer(one, "127.0.0.1", 9002, slow_server)
    daemon(one, CFG + "    min-rate request 1000/s after 1s\n" + WEB +
           "listen slow\n    bind 127.0.0.1:8001\n    server s1 127.0.0.1:9002\n")
    def held_up():
        # The server reads nothing for three times the window: what does not move waits for it.
        s = connect(one, "127.0.0.1", 8001, 30)
        post(s, 8_000_000)
        s.sendall(b"x" * 8_000_000)
        return read_response(s)[0]

    with ThreadPoolExecutor(1) as beside:
        other = beside.submit(held_up)
        s = connect(one, "127.0.0.1", 8000, 30)
        post(s, 8000)
        for _ in range(16):
            s.sendall(b"x" * 500)
            time.sleep(0.25)
        assert read_response(s)[0] == 200
        assert other.result() == 200


def slow_reader(host, port, rcvbuf=4096):
    s = HostSocket.make(host)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.settimeout(60)
    s.connect(("127.0.0.1", port))
    s.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    return s


def read_slowly(s, size, pause, limit):
    """Bytes read until the end, or until the time is over; and whether the end came."""
    until, total = time.monotonic() + limit, 0
    while time.monotonic() < until:
        try:
            chunk = s.recv(size)
        except OSError:
            return total, True
        if not chunk:
            return total, True
        total += len(chunk)
        time.sleep(pause)
    return total, False


def test_readers(one, daemon):
    """One that takes 20 bytes a second is cut off; one ten times faster than asked gets all of it."""
    # Send buffers as they are on a busy host: otherwise the kernel takes whole answers from the daemon.
    one.run(["sh", "-c", "echo 4096 16384 65536 > /proc/sys/net/ipv4/tcp_wmem"])
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"x" * (3 * BIG)))
    log = Syslog(one)
    d = daemon(one, CFG + "    min-rate response 50k/s after 1s\n" + WEB)
    bad = slow_reader(one, 8000)
    results = {}
    t = threading.Thread(target=lambda: results.update(bad=read_slowly(bad, 1, 0.05, 8 * SLOW)))
    t.start()
    good = slow_reader(one, 8000, 65536)
    total, ended = read_slowly(good, 65536, 0.1, 60 * SLOW)
    assert ended and total > 3 * BIG
    t.join()
    log.wait(r" 200 .* cD-- ", timeout=10)
    wait_for("its stream to be gone", lambda: d.stat("web", "BACKEND")["scur"] == "0", timeout=5 * SLOW)


def crowd_main(pid, kinds, out):
    """In the host's network, a process of its own: opens the connections, drips, counts how they end."""
    import ctypes
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    assert ctypes.CDLL(None, use_errno=True).setns(fd, 0) == 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    poll, alive, until = select.epoll(), {}, time.monotonic() + 90
    for port, n, first, drip_byte, reads in kinds:
        for _ in range(n):
            s = socket.socket()
            if reads:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.connect(("127.0.0.1", port))
            s.sendall(first)
            s.setblocking(False)
            alive[s.fileno()] = (s, drip_byte, reads)
            # A reader learns nothing of its end: it has closed its window to everything, a reset included.
            if not reads:
                poll.register(s, select.EPOLLIN)
    os.write(out, b"ready %d\n" % len(alive))
    writers = sum(not reads for _, _, reads in alive.values())
    while time.monotonic() < until:
        for fd, events in poll.poll(0.05):
            s = alive[fd][0]
            try:
                if not events & (select.EPOLLERR | select.EPOLLHUP) and s.recv(4096):
                    continue
            except OSError:
                pass
            poll.unregister(fd)
            del alive[fd]
            s.close()
            writers -= 1
            if not writers:
                os.write(out, b"left 0\n")
        for s, drip_byte, reads in alive.values():
            try:
                if reads:
                    s.recv(1)
                else:
                    s.send(drip_byte)
            except OSError:
                pass # told by the next poll
        time.sleep(0.3)
    os._exit(0)


def test_four_thousand_at_once(one, daemon):
    """Heads, bodies and reads that trickle, 4,000 together: others notice nothing, and all of them are ended."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 12000:
        pytest.skip(f"needs 12,000 descriptors, the limit is {hard}")
    # Send buffers as they are on a busy host: otherwise the kernel takes whole answers from the daemon.
    one.run(["sh", "-c", "echo 4096 16384 65536 > /proc/sys/net/ipv4/tcp_wmem"])
    start_nginx(one, ["127.0.0.1:9001"])
    (one.lab.dir / "files" / "big").write_bytes(b"x" * BIG)
    (one.lab.dir / "files" / "small").write_bytes(b"small")
    # Takes connections and bytes as the kernel does, and never says a word.
    sink = HostSocket.make(one)
    sink.bind(("127.0.0.1", 9002))
    sink.listen(4096)
    # Longer than 4,000 connections take to arrive on a slow machine: otherwise the first of them have left when the last one comes.
    limit = int(12 * SLOW)
    d = daemon(one, CFG + f"    timeout http-request {limit}s\n    min-rate request 200/s after {limit}s\n"
               f"    min-rate response 20k/s after {limit}s\n" + WEB +
               "listen posts\n    bind 127.0.0.1:8001\n    server sink 127.0.0.1:9002\n")
    r, w = os.pipe()
    kinds = [(8000, 1600, b"GET /file/small HTTP/1.1\r\nHost: a\r\nX-A: ", b"a", False),
             (8001, 1200, b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", b"b", False),
             (8000, 1200, b"GET /file/big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"", True)]
    child = os.fork()
    if child == 0:
        crowd_main(one.pid, kinds, w)
    os.close(w)
    failures, done, stop = [], [0], threading.Event()

    def honest():
        s = None
        while not stop.is_set():
            try:
                s = s or connect(one, "127.0.0.1", 8000, 20)
                s.sendall(b"GET /file/small HTTP/1.1\r\nHost: a\r\n\r\n")
                status, _, body = read_response(s)
                if status != 200 or body != b"small":
                    failures.append((status, body))
                done[0] += 1
                time.sleep(0.002)
            except OSError as e:
                failures.append(e)
                time.sleep(0.1)
                s = s and s.close()

    threads = [threading.Thread(target=honest) for _ in range(4)]
    try:
        said = os.fdopen(r)
        assert said.readline() == "ready 4000\n"
        for t in threads:
            t.start()
        # "ready" says that the kernel has all of them; the daemon takes them from the backlog in its own time.
        wait_for("the crowd to be inside", lambda: sum(int(d.stat(p, "FRONTEND")["scur"]) for p in ("web", "posts")) > 3900,
                 timeout=limit)
        assert said.readline() == "left 0\n"
        # The readers go on reading; it is the daemon that has let them go.
        wait_for("nobody left", lambda: int(d.stat("web", "FRONTEND")["scur"]) <= 4, timeout=40 * SLOW)
    finally:
        stop.set()
        for t in threads:
            if t.ident:
                t.join()
        os.kill(child, 9)
        os.waitpid(child, 0)
    sink.close()
    assert not failures, (failures[:5], done)
    assert done[0] >= 2000, done
