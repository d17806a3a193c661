# SPDX-License-Identifier: BSD-2-Clause
"""Servers that close, die, hang and reset under load; a process that runs out of descriptors."""

import os
import random
import resource
import socket
import threading
import time

from conftest import (SLOW, HostSocket, ScriptedServer, connect, keepalive_server, read_head, read_response, reply,
                      start_nginx, wait_for)

CFG = """
global
    stats socket {sock} level admin
    nbthread 2
defaults
    mode http
    timeout client 20s
    timeout server 2s
    timeout connect 500ms
    timeout queue 10s
"""


class Load:
    """Threads that send requests over kept connections and note everything that is not 200."""

    def __init__(self, host, n, make, pause=0.0, port=8000):
        self.host, self.make, self.pause, self.port = host, make, pause, port
        self.done, self.failures, self._stop = 0, [], threading.Event()
        self._lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n)]
        for t in self.threads:
            t.start()

    def _run(self, i):
        s, rng = None, random.Random(i)
        n = 0
        while not self._stop.is_set():
            name = f"{i}-{n}"
            n += 1
            try:
                s = s or connect(self.host, "127.0.0.1", self.port, 30)
                s.sendall(self.make(name))
                status, headers, _ = read_response(s)
                if status != 200:
                    with self._lock:
                        self.failures.append((name, status))
                if headers.get("connection") == "close":
                    s.close()
                    s = None
            except (OSError, EOFError) as e:
                with self._lock:
                    self.failures.append((name, e))
                s = None
            with self._lock:
                self.done += 1
            if self.pause:
                time.sleep(self.pause * rng.uniform(0.5, 1.5))
        if s:
            s.close()

    def until(self, n, limit=60):
        wait_for(f"{n} requests", lambda: self.done >= n, timeout=limit * SLOW)
        return self

    def stop(self):
        self._stop.set()
        for t in self.threads:
            t.join()
        return self


def get(name):
    return f"GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def post(name):
    return f"POST /{name} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody".encode()


def test_server_that_closes_after_20_ms(one, daemon):
    """Requests meet connections that close at that very moment: no GET fails; no POST arrives twice."""
    seen, lock = [], threading.Lock()

    def handle(server, c, n):
        # A keep-alive timeout: it runs between requests, not before the first one.
        c.settimeout(10)
        while True:
            try:
                head = read_head(c)
            except TimeoutError:
                return
            if not head:
                return
            with lock:
                seen.append(head.split(b" ", 2)[:2])
            c.sendall(reply(b"ok"))
            c.settimeout(0.02)

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, CFG + "listen web\n    bind 127.0.0.1:8000\n    server s1 127.0.0.1:9001\n")
    gets = Load(one, 10, get, pause=0.02)
    posts = Load(one, 6, post, pause=0.02)
    gets.until(4000)
    posts.until(2000)
    gets.stop()
    posts.stop()
    assert not gets.failures, gets.failures[:5]
    names = [target for method, target in seen if method == b"POST"]
    assert len(names) == len(set(names)), "a POST was sent twice"
    # What failed had gone out on a connection that was closed: 502, never cut or hung.
    assert all(status == 502 for _, status in posts.failures), posts.failures[:5]
    assert int(d.stat("web", "s1")["reuse"]) > 100, "no connection was used again: nothing was tested"


class Moody:
    """A server with a mood: well, refuse, hang, reset, cut, full."""

    def __init__(self, host, port):
        self.host, self.port, self.mood, self.hits, self.server = host, port, "well", 0, None
        self.be("well")

    def be(self, mood):
        self.mood = mood
        if mood in ("refuse", "full"):
            if self.server:
                self.server.close()
            self.server = None
            if mood == "full":
                self._fill()
            return
        if not self.server:
            self.server = ScriptedServer(self.host, "127.0.0.1", self.port, self._handle)

    def _fill(self):
        """A backlog of one that nobody accepts from."""
        self.plug = HostSocket.make(self.host)
        self.plug.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.plug.bind(("127.0.0.1", self.port))
        self.plug.listen(0)
        self.fillers = []
        for _ in range(4):
            s = HostSocket.make(self.host)
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", self.port))
            self.fillers.append(s)

    def unplug(self):
        for s in [self.plug, *self.fillers]:
            s.close()

    def _handle(self, server, c, n):
        while read_head(c):
            self.hits += 1
            if self.mood in ("refuse", "full"): # connections from better days
                return
            if self.mood == "hang":
                time.sleep(3)
                return
            if self.mood == "reset":
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                return
            if self.mood == "cut":
                c.sendall(b"HTTP/1.1 200 OK\r\nConte")
                return
            c.sendall(reply(b"ok"))


def test_sick_servers_cost_no_request(one, daemon):
    """One of three servers falls ill in every way there is, while requests come: the others take them."""
    sick = Moody(one, 9001)
    for port in (9002, 9003):
        ScriptedServer(one, "127.0.0.1", port, keepalive_server())
    d = daemon(one, CFG + "    retry-on all-retryable-errors\n    option redispatch 1\n    timeout server 400ms\n"
               "listen web\n    bind 127.0.0.1:8000\n    balance roundrobin\n"
               "    default-server inter 1s\n"
               "    server sick 127.0.0.1:9001\n    server b 127.0.0.1:9002\n    server c 127.0.0.1:9003\n")
    load = Load(one, 8, lambda name: post(name) if hash(name) % 4 == 0 else get(name), pause=0.004)
    try:
        for mood in ("well", "reset", "cut", "hang", "refuse", "well", "full"):
            before, hits, retries = load.done, sick.hits, int(d.stat("web", "BACKEND")["wretr"])
            sick.be(mood)
            # Some of them cost their time limit each.
            load.until(before + (150 if mood in ("hang", "full") else 500))
            assert not load.failures, (mood, load.failures[:5])
            if mood in ("reset", "cut", "hang"):
                assert sick.hits > hits, f"{mood}: the sick server was not asked"
            if mood != "well":
                assert int(d.stat("web", "BACKEND")["wretr"]) > retries, f"{mood}: nothing was retried"
        sick.unplug()
    finally:
        load.stop()
    assert load.done >= 2800 and not load.failures


def test_killed_server(one, daemon):
    """SIGKILL in the middle of requests: the other server answers all of them."""
    procs = [start_nginx(one, [f"127.0.0.1:{port}"], name=f"n{port}") for port in (9001, 9002)]
    daemon(one, CFG + "    retry-on conn-failure empty-response junk-response\n    option redispatch 1\n"
           "listen web\n    bind 127.0.0.1:8000\n    balance roundrobin\n    default-server check inter 200ms\n"
           "    server a 127.0.0.1:9001\n    server b 127.0.0.1:9002\n")
    load = Load(one, 8, get)
    try:
        load.until(1000)
        one.stop(procs[0], 9)
        # The worker goes with its master only when somebody says so.
        one.run(["sh", "-c", "for p in $(ss -ltnpH sport = :9001 | grep -o 'pid=[0-9]*' | cut -d= -f2); do kill -9 $p; done"],
                check=False)
        load.until(load.done + 2000)
    finally:
        load.stop()
    assert not load.failures, load.failures[:5]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_out_of_descriptors(one, daemon):
    """Accepting stops, without spinning; those who wait are served as soon as others leave."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, CFG + "listen web\n    bind 127.0.0.1:8000\n    server s1 127.0.0.1:9001\n")
    pid = d.proc.pid
    have = max(int(n) for n in os.listdir(f"/proc/{pid}/fd")) + 1
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (have + 40, hard))
    crowd = [connect(one, "127.0.0.1", 8000) for _ in range(200)]
    wait_for("all descriptors in use", lambda: len(os.listdir(f"/proc/{pid}/fd")) >= have + 30, timeout=10 * SLOW)
    late = connect(one, "127.0.0.1", 8000, 30)
    late.sendall(get("late"))
    time.sleep(0.5)
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(1.5)
    spent, took = cpu_seconds(pid) - before, time.monotonic() - began
    assert spent / took < 0.15 * SLOW, f"{spent:.2f} s of CPU in {took:.1f} s"
    for s in crowd:
        s.close()
    assert read_response(late)[0] == 200
    load = Load(one, 4, get).until(2000).stop()
    assert not load.failures, load.failures[:5]
