# SPDX-License-Identifier: BSD-2-Clause
"""Rings of the log: `show events`, waiting for lines, forwarding by TCP through broken connections and reloads."""

import re
import socket

from conftest import SLOW, ScriptedServer, raw, run_cli, wait_for

CONFIG = """
global
    nbthread 1
    log-tag tag
ring kept
    description "what happened"
    format rfc3164
    size {size}
ring sent
    size 32k
    timeout connect 5s
    timeout server 5s
    server counted 127.0.0.1:6514 log-proto octet-count
    server legacy 127.0.0.1:6515
frontend f
    mode http
    log ring@kept format rfc5424 local0
    log ring@sent local0
    log-format "%HM %HU"
    timeout client 5s
    bind 127.0.0.1:8000
    http-request return status 200
"""


def get(one, path):
    assert raw(one, "127.0.0.1", 8000, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 200")


def test_show_events(one, daemon):
    d = daemon(one, CONFIG.replace("{size}", "16k"))
    assert "    kept       : type=buffer, 0 dropped, what happened\n" in d.cli("show events")
    for i in range(3):
        get(one, f"/{i}")
    wait_for("three lines", lambda: d.cli("show events kept").count("GET /") == 3, timeout=5 * SLOW)
    lines = d.cli("show events kept").splitlines()
    # The ring says how its lines look, not the log line.
    assert re.fullmatch(r"<134>[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d localhost tag\[\d+\]: GET /0", lines[0]), lines
    assert [x[-2:] for x in lines if x] == ["/0", "/1", "/2"]
    assert d.cli("show events kept -n") == "\n"
    assert d.cli("show events sent -0").startswith("GET /0\0GET /1\0GET /2\0")
    assert run_cli(one, "-s", str(d.sock), "show", "events", "kept").stdout == "\n".join(lines[:-1]) + "\n"
    assert d.cli("show events none") == "No such event sink\n\n"
    assert d.cli("show events kept -x") == "unknown option\n\n"

    # Two that wait: one for all lines, whose key ends it, one for new ones until the ring is gone.
    waiting = []
    for command in (b"show events kept -w\n", b"show events kept -nw\n"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10 * SLOW)
        s.connect(str(d.sock))
        s.sendall(b"prompt\n" + command)
        waiting.append(s)
    seen = [b"", b""]

    def until(i, text):
        while text not in seen[i]:
            chunk = waiting[i].recv(65536)
            assert chunk, seen[i]
            seen[i] += chunk

    until(0, b"GET /2\n")
    get(one, "/late")
    until(0, b"GET /late\n")
    until(1, b"GET /late\n")
    assert b"GET /2" not in seen[1]
    waiting[0].sendall(b"\n")
    until(0, b"GET /late\n\n> ")

    # A reload keeps what fits, and whoever waits.
    d.write(CONFIG.replace("{size}", "1k"))
    d.cli("reload")
    get(one, "/after")
    until(1, b"GET /after\n")
    assert "GET /0" in d.cli("show events kept")
    d.write(CONFIG.replace("{size}", "1k").replace("ring kept", "ring other").replace("ring@kept", "ring@other"))
    d.cli("reload")
    until(1, b"GET /after\n\n> ")
    for s in waiting:
        s.close()


def test_forwarding(one, daemon):
    conns = {"counted": [], "legacy": []}

    def collect(name):
        def handle(server, c, n):
            conns[name].append(c)
            while chunk := c.recv(65536):
                server.received.append(chunk)
        return handle

    def text(server):
        return b"".join(server.received).decode()

    # Nobody listens yet: lines wait in the ring.
    d = daemon(one, CONFIG.replace("{size}", "16k"))
    for i in range(3):
        get(one, f"/{i}")
    counted = ScriptedServer(one, "127.0.0.1", 6514, collect("counted"))
    legacy = ScriptedServer(one, "127.0.0.1", 6515, collect("legacy"))
    wait_for("three frames", lambda: text(counted) == "6 GET /06 GET /16 GET /2", timeout=10 * SLOW)
    wait_for("three lines", lambda: text(legacy) == "GET /0\nGET /1\nGET /2\n", timeout=10 * SLOW)
    get(one, "/more")
    wait_for("one more", lambda: text(counted).endswith("9 GET /more"), timeout=5 * SLOW)

    # The server ends the connection: the next one goes on where it was.
    conns["counted"][0].shutdown(socket.SHUT_RDWR)
    wait_for("another connection", lambda: counted.count == 2, timeout=10 * SLOW)
    get(one, "/again")
    wait_for("both", lambda: text(counted).endswith("9 GET /more10 GET /again") and text(legacy).endswith("/again\n"), timeout=5 * SLOW)

    # A reload keeps connections.
    d.cli("reload")
    get(one, "/reloaded")
    wait_for("a line", lambda: text(legacy).endswith("/reloaded\n"), timeout=5 * SLOW)
    assert legacy.count == 1
    counted.close()
    legacy.close()


def test_backing_file(one, daemon):
    """What was logged is there after a crash; the next process begins a new file and keeps the other."""
    path = one.lab.dir / "kept.ring"
    d = daemon(one, CONFIG.replace("size {size}", f"size 16k\n    backing-file {path}"))
    get(one, "/last-words")
    wait_for("the line", lambda: "/last-words" in d.cli("show events kept"), timeout=5 * SLOW)
    d.proc.kill()
    d.proc.wait()
    d.proc = None  # it did not end by itself: nothing to complain about
    assert run_cli(one, "ring", str(path)).stdout.rstrip().endswith("GET /last-words")
    daemon(one, CONFIG.replace("size {size}", f"size 16k\n    backing-file {path}"))
    assert run_cli(one, "ring", str(path)).stdout == ""
    assert "/last-words" in run_cli(one, "ring", f"{path}.bak").stdout
    assert "not a log ring" in run_cli(one, "ring", "/etc/passwd", check=False).stderr
