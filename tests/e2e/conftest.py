# SPDX-License-Identifier: BSD-2-Clause
"""What the end-to-end tests share: networks, the daemon as a process, small servers and clients."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "lab"))
from lab import BUILD, Lab, make_cert, readable, start_nginx, wait_for  # noqa: E402,F401

HEADGATED = BUILD / "headgated"
HEADGATE = BUILD / "headgate"
# Sanitizer builds are slower; one factor stretches every time limit of the tests.
SLOW = 4.0 if re.search(r"asan|tsan", str(BUILD)) else 1.0


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs root: namespaces and XDP"))


class Daemon:
    """headgated on one host of a lab."""

    def __init__(self, host, text, name="headgated", args=(), env=None, exe=HEADGATED):
        self.host, self.name, self.exe = host, name, exe
        self.dir = host.lab.dir
        self.cfg = self.dir / f"{name}.cfg"
        self.sock = self.dir / f"{name}.sock"
        self.log = self.dir / f"{name}.log"
        self.args, self.env = list(args), {**os.environ, "HG_DIR": str(self.dir), **(env or {})}
        self.env.setdefault("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
        self.proc = None
        self.write(text)

    def write(self, text):
        """Writes the configuration; {dir} and {sock} are filled in, a stats socket is added when there is none."""
        text = text.replace("{dir}", str(self.dir)).replace("{sock}", str(self.sock))
        if "stats socket" not in text:
            text = f"global\n    stats socket {self.sock} level admin\n\n" + text
        self.cfg.write_text(text, encoding="utf-8")

    def start(self, wait=True):
        self.proc = self.host.popen([self.exe, *self.args, "-f", self.cfg], log=f"{self.name}.log", env=self.env)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self):
        def ready():
            if self.proc.poll() is not None:
                raise RuntimeError(f"headgated ended with {self.proc.returncode}:\n{self.output()}")
            return self.sock.exists() and "Name:" in self.cli("show info", check=False)

        wait_for("headgated to answer", ready, timeout=60 * SLOW)

    def output(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def cli(self, command, check=True, timeout=10.0):
        """One command of the runtime API, over its Unix socket; the answer as text."""
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout * SLOW)
        try:
            s.connect(str(self.sock))
            s.sendall(command.encode() + b"\n")
            out = b""
            while chunk := s.recv(65536):
                out += chunk
            return out.decode(errors="replace")
        except OSError:
            if check:
                raise
            return ""
        finally:
            s.close()

    def stat(self, px, sv):
        """One row of `show stat` as a dict."""
        for row in self.stats():
            if row["pxname"] == px and row["svname"] == sv:
                return row
        raise KeyError(f"{px}/{sv}")

    def settle(self):
        """
        Counters and states as they are when all that clients have seen so far is done. A worker counts an exchange at its
        end, and that may be after the client has read the answer: asked for its streams twice, each worker has finished
        what it was doing when the question came, and what it had put off.
        """
        self.cli("show sess 1; show sess 1")
        return self

    def stats(self):
        """All rows of `show stat`, after settle()."""
        out = self.cli("show sess 1; show sess 1; show stat")
        lines = out[out.index("# pxname"):].lstrip("# ").strip().splitlines()
        names = lines[0].split(",")
        return [dict(zip(names, line.split(","))) for line in lines[1:] if line]

    def wait_server(self, px, sv, status, timeout=20.0):
        wait_for(f"{px}/{sv} {status}", lambda: self.stat(px, sv)["status"].startswith(status),
                 timeout=timeout * SLOW)
        self.settle()  # what the control thread has put off is done, too: the kernel's tables follow

    def signal(self, sig):
        self.proc.send_signal(sig)

    def stop(self, sig=15):
        """Ends it; a sanitizer report or a crash fails the test."""
        if self.proc is None:
            return 0
        rc = self.host.stop(self.proc, sig, timeout=20 * SLOW)
        self.proc = None
        out = self.output()
        assert "Sanitizer" not in out and "runtime error:" not in out, out[-8000:]
        return rc


@pytest.fixture
def lab(request):
    with Lab("e2e") as the_lab:
        the_lab.daemons = []
        yield the_lab
        try:
            for d in the_lab.daemons:
                d.stop()
        finally:
            if request.node.stash.get(FAILED, False):
                for f in sorted(the_lab.dir.glob("*.log")):
                    print(f"---- {f.name}\n{f.read_text(errors='replace')[-6000:]}")


FAILED = pytest.StashKey()


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if outcome.get_result().failed:
        item.stash[FAILED] = True


@pytest.fixture
def one(lab):
    """The smallest network: one host, everything on its loopback."""
    host = lab.host("edge")
    host.addr("lo", "127.0.0.2/8", "127.0.0.3/8", "10.0.1.10/32", "10.0.1.11/32", "172.31.36.194/32")
    return host


@pytest.fixture
def daemon(lab):
    """Factory: daemon(host, text, …) starts one; stopped, and checked for sanitizer reports, at the end."""

    def make(host, text, start=True, **kw):
        d = Daemon(host, text, name=f"headgated{len(lab.daemons) or ''}", **kw)
        lab.daemons.append(d)
        return d.start() if start else d

    return make


class HostSocket:
    """Sockets that live in a host's network namespace, made from this process."""

    _lock = threading.Lock()

    @staticmethod
    def make(host, family=socket.AF_INET, kind=socket.SOCK_STREAM, proto=0):
        libc_setns = getattr(os, "setns", None)
        result = {}

        def run():
            try:
                fd = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY)
                try:
                    if libc_setns:
                        libc_setns(fd, 0)
                    else:
                        import ctypes
                        if ctypes.CDLL(None, use_errno=True).setns(fd, 0) != 0:
                            raise OSError(ctypes.get_errno(), "setns")
                finally:
                    os.close(fd)
                result["sock"] = socket.socket(family, kind, proto)
            except OSError as e:
                result["error"] = e

        # A thread of its own: the namespace of the main thread stays what it is.
        t = threading.Thread(target=run)
        t.start()
        t.join()
        if "error" in result:
            raise result["error"]
        return result["sock"]


def connect(host, addr, port, timeout=5.0):
    """A connected TCP socket in the host's namespace."""
    s = HostSocket.make(host, socket.AF_INET6 if ":" in addr else socket.AF_INET)
    s.settimeout(timeout * SLOW)
    s.connect((addr, port))
    return s


def recv_all(s):
    out = b""
    try:
        while chunk := s.recv(65536):
            out += chunk
    except ConnectionResetError:
        out += b"<RESET>"
    return out


def raw(host, addr, port, data, timeout=5.0, shut=False):
    """Sends bytes, returns all that comes back until the end of the connection."""
    try:
        with connect(host, addr, port, timeout) as s:
            s.sendall(data)
            if shut:
                s.shutdown(socket.SHUT_WR)
            return recv_all(s)
    except ConnectionResetError:  # before we had sent everything, or were told that we are connected
        return b"<RESET>"


def http_status(host, addr, timeout=5.0):
    """Of a GET to port 80 on a connection of its own; 0: nothing came."""
    try:
        return int(raw(host, addr, 80, b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
                       timeout=timeout).split()[1])
    except (OSError, IndexError):
        return 0


def wait_addresses(*hosts):
    """Until the kernel has made sure that nobody else has the hosts' IPv6 addresses."""
    wait_for("IPv6 addresses", lambda: not any("tentative" in h.run("ip -6 addr").stdout for h in hosts))


def read_response(s, head_only=False):
    """One HTTP/1 response from a socket: (status, headers as dict in lower case, body)."""
    buf = b""
    while b"\r\n\r\n" not in buf:
        chunk = s.recv(65536)
        if not chunk:
            raise EOFError(f"closed after {buf!r}")
        buf += chunk
    head, body = buf.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1])
    headers = {}
    for line in lines[1:]:
        k, v = line.split(":", 1)
        headers[k.lower()] = v.strip()
    if head_only or status in (204, 304) or 100 <= status < 200:
        return status, headers, body
    if "content-length" in headers:
        while len(body) < int(headers["content-length"]):
            chunk = s.recv(65536)
            if not chunk:
                raise EOFError(f"body cut at {len(body)}")
            body += chunk
    elif headers.get("transfer-encoding") == "chunked":
        while not body.endswith(b"0\r\n\r\n"):
            chunk = s.recv(65536)
            if not chunk:
                raise EOFError(f"chunked body cut at {len(body)}")
            body += chunk
        out, rest = b"", body
        while True:
            size, rest = rest.split(b"\r\n", 1)
            n = int(size, 16)
            if n == 0:
                break
            out, rest = out + rest[:n], rest[n + 2:]
        body = out
    else:
        body += recv_all(s)
    return status, headers, body


@contextlib.contextmanager
def bounded_memory(d, kib):
    """What happens inside costs the daemon at most so much at any moment: the kernel keeps the peak. A sanitizer's memory
    says nothing."""
    proc = Path(f"/proc/{d.proc.pid}")

    def field(name):
        return int((proc / "status").read_text().split(name + ":")[1].split()[0])

    with contextlib.suppress(OSError):
        (proc / "clear_refs").write_text("5")  # the peak begins anew (proc(5)); where that is not allowed the bound is laxer
    before = field("VmRSS")
    yield
    grown = field("VmHWM") - before
    assert SLOW > 1 or grown <= kib, f"grew by {grown} KiB, more than {kib}"


class ScriptedServer:
    """A TCP server whose connections are handled by a Python function; what it received is kept."""

    def __init__(self, host, addr, port, handler):
        self.sock = HostSocket.make(host, socket.AF_INET6 if ":" in addr else socket.AF_INET)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((addr, port))
        self.sock.listen(512)
        self.handler, self.received, self.count = handler, [], 0
        self._stop = False
        host.at_close.append(self.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self._stop:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            c.settimeout(20 * SLOW)
            self.count += 1
            threading.Thread(target=self._serve, args=(c, self.count), daemon=True).start()

    def _serve(self, c, n):
        try:
            self.handler(self, c, n)
        except OSError:
            pass
        finally:
            c.close()

    def close(self):
        self._stop = True
        try:
            # A thread that sleeps in accept() holds what is only closed, and the host's network with it.
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


def read_head(c):
    """Bytes of one HTTP head (and what came with it)."""
    buf = b""
    while b"\r\n\r\n" not in buf:
        chunk = c.recv(65536)
        if not chunk:
            return buf
        buf += chunk
    return buf


def reply(body=b"ok", status="200 OK", headers=()):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def keepalive_server(body=b"ok"):
    """Handler: answers every request of a connection with the same body."""

    def handle(server, c, n):
        while head := read_head(c):
            server.received.append(head)
            c.sendall(reply(body))

    return handle


class Syslog:
    """A UDP syslog target in a host's namespace."""

    def __init__(self, host, addr="127.0.0.1", port=5140):
        self.sock = HostSocket.make(host, kind=socket.SOCK_DGRAM)
        self.sock.bind((addr, port))
        self.sock.settimeout(0.1)
        self.lines = []
        self._stop = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self._stop:
            try:
                self.lines.append(self.sock.recv(65536).decode(errors="replace"))
            except TimeoutError:
                continue
            except OSError:
                return

    def wait(self, pattern, timeout=15.0):
        """The first line that matches, as a re.Match."""
        def find():
            for line in self.lines:
                if m := re.search(pattern, line):
                    return m
            return None

        try:
            return wait_for(f"a log line like {pattern}", find, timeout * SLOW)
        except TimeoutError as e:
            raise AssertionError(f"{e}; got:\n" + "\n".join(self.lines)) from None

    def close(self):
        self._stop = True
        self.thread.join()
        self.sock.close()


def now():
    return time.monotonic()


def together(*calls):
    """Runs them at the same time; raises what one of them raised."""
    with ThreadPoolExecutor(4) as pool:
        for f in [pool.submit(c) for c in calls]:
            f.result()


def run_cli(host, *args, check=True, **kw):
    """The headgate command on a host."""
    return host.run([HEADGATE, *args], check=check, **kw)


