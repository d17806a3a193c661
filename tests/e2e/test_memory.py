# SPDX-License-Identifier: BSD-2-Clause
"""What connections cost in memory, by the process's resident size: promises that are easily broken unseen."""

import re
import threading
import time

import pytest
from conftest import SLOW, ScriptedServer, connect, make_cert, read_head, read_response, reply, wait_for

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
    maxconn 9000
defaults
    mode http
    timeout client 300s
    timeout server 300s
    timeout connect 5s
    timeout http-request 300s
    timeout http-keep-alive 300s
frontend web
    bind 127.0.0.1:8000
    http-request return status 200
"""
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Long: ab"


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) * 1024


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's memory is not ours")
@pytest.mark.parametrize("data, limit", [(GET, 560), (HALF, 4096)], ids=["idle", "half a head"])
def test_per_connection(one, daemon, data, limit):
    """A connection that waits for its next request: 512 bytes; in the middle of a head: 128 more, and those it sent.

    Of the second, RSS also tells how many heads arrived at once: up to 256 streams and buffers stay for the next ones.
    """
    d = daemon(one, CFG)
    conns = []

    def grow(n):
        for _ in range(n):
            c = connect(one, "127.0.0.1", 8000, timeout=30)
            c.sendall(data)
            if data == GET:
                assert read_response(c)[0] == 200
            conns.append(c)
        # All of what was sent has been taken in: a connection behind the others is answered.
        with connect(one, "127.0.0.1", 8000, timeout=30) as c:
            c.sendall(GET)
            read_response(c)
        wait_for("all connections", lambda: int(d.stat("web", "FRONTEND")["scur"]) == len(conns), timeout=20 * SLOW)
        return rss(d.proc.pid)

    before = grow(300)
    after = grow(1500)
    for c in conns:
        c.close()
    assert (after - before) / 1500 <= limit, f"{(after - before) / 1500:.0f} bytes per connection"


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's memory is not ours")
def test_old_configurations_give_their_memory_back(one, daemon):
    """Ten generations held by ten requests, then let go: the process is as large as it was with one."""
    free = threading.Event()
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: read_head(c) and (free.wait(60), c.sendall(reply(b"ok"))))
    d = daemon(one, CFG.replace("frontend web", "listen held\n    bind 127.0.0.1:8001\n    server s 127.0.0.1:9001\nfrontend web") +
               "".join(f"backend b{b}\n" + "".join(f"    server s{s} 10.0.{b}.{s}:80\n" for s in range(100)) for b in range(20)))

    def alone():
        return len(re.findall(r"^\s*\d+", d.cli("show snapshots"), re.M)) == 1

    for _ in range(3):
        assert "Success=1" in d.cli("reload")
        wait_for("one configuration", alone)
    before, held = rss(d.proc.pid), []
    for i in range(10):
        held.append(connect(one, "127.0.0.1", 8001, 60))
        held[-1].sendall(GET)
        wait_for("the stream", lambda: d.stat("held", "s")["scur"] == str(i + 1))  # noqa: B023
        assert "Success=1" in d.cli("reload")
    most = rss(d.proc.pid)
    assert most - before > 4 << 20, "too small to see anything"
    free.set()
    for c in held:
        assert read_response(c)[0] == 200
        c.close()
    wait_for("one configuration", alone)
    wait_for(f"the memory of nine: {before}, {most}", lambda: rss(d.proc.pid) - before < (most - before) // 4)


MANY = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
frontend web
    bind 127.0.0.1:8000
    bind 127.0.0.1:8443 ssl crt {dir}/site.pem
    acl a path_beg /a /b
    http-request set-header x-a %[req.hdr(host),lower] if a
    use_backend b if { path_reg ^/x[0-9]+$ }
backend b
    stick-table type ipv6 size 1k expire 10m store gpc0,http_req_rate(10s)
    stick on src
    option httpchk GET /health
""" + "".join(f"    server t{i} 127.0.0.1:{20000 + i} ssl verify required ca-file {{dir}}/site.pem check inter 1h\n" for i in range(100))


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's memory is not ours")
def test_reloads_take_no_memory(one, daemon):
    """A hundred more reloads: the heap holds what it held, and the process is as large."""
    make_cert(one.lab.dir / "site.pem", ["a.example"])
    d = daemon(one, MANY)

    def after(n):
        for _ in range(n):
            assert "Success=1" in d.cli("reload")
        # Old configurations go as workers let go of them; memory is given back within a second of the last.
        time.sleep(1.2)
        wait_for("one configuration", lambda: len(re.findall(r"^\s*\d+", d.cli("show snapshots"), re.M)) == 1)
        return int(re.search(r"in use: (\d+) bytes", d.cli("show pools"))[1]), rss(d.proc.pid)

    (used, size), (used_after, size_after) = after(30), after(100)
    assert used_after - used < 65536, f"{used_after - used} bytes more are in use"
    assert size_after < 1.03 * size, f"{size} bytes have become {size_after}"
