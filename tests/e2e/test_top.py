# SPDX-License-Identifier: BSD-2-Clause
"""headgate top: as text, and on a terminal of its own with keys."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import time

import pytest
from conftest import HEADGATE, SLOW, ScriptedServer, keepalive_server, raw, readable, wait_for

CFG = """
global
    nbthread 2
    stats socket {sock} level admin
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
frontend web
    bind 127.0.0.1:8000
    default_backend app
backend app
    server s1 127.0.0.1:9001
    server s2 127.0.0.1:9002 weight 7
    server gone 127.0.0.1:9003 check inter 100ms fall 1
"""
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
def d(one, daemon):
    servers = [ScriptedServer(one, "127.0.0.1", port, keepalive_server(b"x" * 1000)) for port in (9001, 9002)]
    d = daemon(one, CFG)
    d.wait_server("app", "gone", "DOWN")
    yield d
    for s in servers:
        s.close()


def views(text):
    """{view: [line, …]} of the batch form, without titles."""
    out, view = {}, None
    for line in text.splitlines():
        if m := re.fullmatch(r"\[(\w+)\]", line):
            view = m[1]
            out[view] = []
        elif view:
            out[view].append(line)
    return out


def test_as_text(d, one):
    for _ in range(20):
        raw(one, "127.0.0.1", 8000, GET)
    out = one.run([HEADGATE, "-s", d.sock, "top", "-b"]).stdout
    assert out.startswith("headgate ") and " conns " in out.splitlines()[0]
    v = views(out)
    assert set(v) == {"services", "servers", "queues", "workers", "drops"}
    assert v["services"][0].split()[:4] == ["SERVICE", "TYPE", "STATUS", "CONNS"]
    assert [line.split()[:3] for line in v["services"][1:]] == [["app", "backend", "UP"], ["web", "frontend", "OPEN"]]
    servers = {line.split()[0]: line.split()[1:] for line in v["servers"][1:]}
    assert set(servers) == {"app/s1", "app/s2", "app/gone"}
    assert servers["app/gone"][0] == "DOWN" and "L4CON" in servers["app/gone"]
    assert [line.split()[0:2] for line in v["workers"][1:]] == [["control", "0"], ["worker", "0"], ["worker", "1"]]
    # Rates need two looks: a second sample right after requests has them.
    host = one.popen([HEADGATE, "-s", d.sock, "top", "-b", "-n", "2", "-d", "2", "services"], log="top.log")
    wait_for("the first look", lambda: "[services]" in (one.lab.dir / "top.log").read_text())
    for _ in range(30):
        raw(one, "127.0.0.1", 8000, GET)
    assert host.wait(20 * SLOW) == 0
    looks = (one.lab.dir / "top.log").read_text().split("[services]")[1:]
    out_rates = [next(line.split()[6] for line in look.splitlines() if line.startswith("web")) for look in looks]
    assert out_rates[0] == "0" and int(out_rates[1]) > 1000, out_rates
    assert one.run([HEADGATE, "-s", d.sock, "top", "-x"], check=False).returncode == 1
    doc = json.loads(one.run([HEADGATE, "-s", d.sock, "top", "--json", "-d", "0.3"]).stdout)
    assert set(doc) == {"seconds", "services", "servers", "queues", "workers", "drops"} and 0.3 <= doc["seconds"] < 20
    s2 = next(s for s in doc["servers"] if s["name"] == "app/s2")
    assert (s2["status"], s2["weight"], s2["conns"]) == ("no check", 7, 0)
    assert set(s2) == {"name", "status", "check", "weight", "conns", "queue", "req_per_s", "in_per_s", "out_per_s", "5xx_per_s",
                       "err_per_s", "time_ms"}
    assert {w["name"] for w in doc["workers"]} == {"control", "worker 0", "worker 1"}
    assert all(0 <= w["busy_percent"] <= 100 for w in doc["workers"])
    assert {x["name"] for x in doc["drops"]} >= {"TX", "DROP"}
    only = json.loads(one.run([HEADGATE, "-s", d.sock, "top", "--json", "-d", "0.1", "queues"]).stdout)
    assert set(only) == {"seconds", "queues"} and {"now", "limit", "wait_ms", "retry_per_s"} <= set(only["queues"][0])
    lost = one.run([HEADGATE, "-s", "/nonexistent", "top", "-b"], check=False)
    assert lost.returncode == 1 and "no daemon answers at /nonexistent" in lost.stdout
    lost = one.run([HEADGATE, "-s", "/nonexistent", "top", "--json"], check=False)
    assert lost.returncode == 1 and "no daemon answers at /nonexistent" in lost.stderr and lost.stdout == ""


class Screen:
    """A terminal of 30 x 140. text() is what was drawn since the last key; ^L draws all of it again."""

    def __init__(self, d, *args, ignores=()):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for sig in ignores:
                signal.signal(sig, signal.SIG_IGN)
            os.environ["TERM"] = "vt100"
            os.execv(HEADGATE, [str(HEADGATE), "-s", str(d.sock), "top", *args])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def send(self, keys):
        os.write(self.fd, keys)

    def read(self, seconds):
        out, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and readable([self.fd], left):
            try:
                out += os.read(self.fd, 65536)
            except OSError:
                break
        # Without positions, colours and character sets.
        return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][0-9A-B]|[=>78])|[\x0e\x0f]", " ", out.decode(errors="replace"))

    def until(self, wanted):
        seen = []

        def there():
            self.send(b"\x0c")
            # What was drawn before the last whole picture is gone from the screen.
            seen[:] = [self.read(0.3).rsplit("headgate 0", 1)[-1]]
            return re.search(wanted, seen[0])

        try:
            wait_for(wanted, there, timeout=10 * SLOW)
        except Exception:
            print(seen)
            raise
        return seen[0]

    def close(self):
        self.send(b"q")
        end = time.monotonic() + 10 * SLOW
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("top did not end on 'q'")


def test_on_a_terminal(d):
    s = Screen(d, "-d", "0.3")
    s.until(r"SERVICE .*TYPE")
    s.until(r"app +backend +UP")
    s.send(b"2")
    text = s.until(r"app/s2 +no check")
    assert text.index("app/gone") < text.index("app/s1") < text.index("app/s2")
    # Sorted by weight, the third column behind the name: the largest first; then reversed.
    s.send(b">>>")
    s.until(r"app/s2[^/]*app/(gone|s1)")
    s.send(b"r")
    s.until(r"app/s1[^/]*app/s2")
    s.send(b"r")
    # The selection follows its server: the first line is s2 now.
    s.send(b"k" * 5 + b"d")
    s.until(r"set server app/s2 state drain: done")
    d.wait_server("app", "s2", "DRAIN")
    s.until(r"app/s2 +DRAIN")
    s.send(b"u")
    d.wait_server("app", "s2", "no check")
    s.send(b"m")
    d.wait_server("app", "s2", "MAINT")
    s.send(b"u")
    d.wait_server("app", "s2", "no check")
    # Everything about it, and back.
    s.send(b"\n")
    s.until(r"svname|weight +7")
    s.send(b"\n/s1\n")
    text = s.until(r"app/s1 +no check")
    assert "app/gone" not in text
    s.send(b"\x1b")
    s.until(r"app/gone +DOWN")
    s.send(b"4")
    s.until(r"worker 1 ")
    s.send(b"1d")
    s.until(r"select a server first")
    s.send(b"3")
    s.until(r"WAITING FOR")
    assert s.close() == 0


def test_its_terminal_goes_away(d):
    """As under nohup: nothing is left that reads from nowhere for ever."""
    s = Screen(d, "-d", "0.3", ignores=[signal.SIGHUP])
    s.until(r"SERVICE .*TYPE")
    os.close(s.fd)
    wait_for("the end", lambda: os.waitpid(s.pid, os.WNOHANG)[0])
