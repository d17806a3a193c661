# SPDX-License-Identifier: BSD-2-Clause
"""Clients of every kind that count: requests, refused connections, connections closed under a request."""

import re
import ssl
import threading
import time
from collections import Counter

from conftest import SLOW, connect, wait_for

GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"
CONTEXT = ssl.create_default_context()
CONTEXT.check_hostname, CONTEXT.verify_mode = False, ssl.CERT_NONE


class Reader:
    """Responses of one connection, one after the other, whatever the segments."""

    def __init__(self, sock):
        self.sock, self.buf = sock, b""

    def response(self):
        while True:
            head, mark, rest = self.buf.partition(b"\r\n\r\n")
            if mark:
                length = int(re.search(rb"(?i)\ncontent-length: *(\d+)", head)[1])
                if len(rest) >= length:
                    self.buf = rest[length:]
                    last = re.search(rb"(?i)\nconnection: *close", head) is not None
                    return int(head.split(b" ", 2)[1]), last
            more = self.sock.recv(65536)
            if not more:
                raise EOFError(f"closed under a request after {self.buf[:60]!r}")
            self.buf += more


class Clients:
    """One thread per client. `kinds`: (name, port, is_tls, requests per connection or 0, at once, pause in s)."""

    def __init__(self, host, kinds):
        self.host, self.done, self.failures, self._lock = host, Counter(), [], threading.Lock()
        self._stop, self.names = threading.Event(), [k[0] for k in kinds]
        self.threads = [threading.Thread(target=self._run, args=k) for k in kinds]
        for t in self.threads:
            t.start()

    def _open(self, port, is_tls):
        s = connect(self.host, "127.0.0.1", port, 20)
        return CONTEXT.wrap_socket(s) if is_tls else s

    def _run(self, name, port, is_tls, limit, at_once, pause):
        s, n = None, 0
        while not self._stop.is_set():
            what = "connect"
            try:
                if not s:
                    s, n = self._open(port, is_tls), 0
                    reader = Reader(s)
                what = f"request {n}"
                s.sendall(b"".join(GET % i for i in range(at_once)))
                for _ in range(at_once):
                    status, last = reader.response()
                    n += 1
                    if status != 200:
                        self._failed(name, n, status)
                    with self._lock:
                        self.done[name] += 1
                    if last:
                        break
                if last or (limit and n >= limit):
                    s.close()
                    s = None
            except (OSError, EOFError) as e:
                self._failed(name, what, repr(e))
                s = None
            if pause:
                self._stop.wait(pause)
        if s:
            s.close()

    def _failed(self, *what):
        with self._lock:
            self.failures.append(what)

    def stop(self):
        self._stop.set()
        for t in self.threads:
            t.join()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def until(self, n, timeout=60):
        """Every kind has done `n` more requests."""
        before = self.done.copy()
        wait_for(f"{n} requests of each kind", lambda: all(self.done[k] >= before[k] + n for k in self.names),
                 timeout=timeout * SLOW)


def h2load(host, url, seconds, clients=2, streams=8, extra=()):
    """Starts h2load; h2load_failures() ends it."""
    return host.popen(["h2load", "-D", str(seconds), "-c", str(clients), "-m", str(streams), *extra, url],
                      log=f"h2load-{re.sub('[^a-z0-9]', '', url)}{len(extra)}.log")


def h2load_result(host, proc, url, extra=()):
    """(done, failed + errored + timed out + not 2xx)"""
    proc.wait(60 * SLOW)
    log = host.lab.dir / f"h2load-{re.sub('[^a-z0-9]', '', url)}{len(extra)}.log"
    text = log.read_text()
    m = re.search(r"requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, "
                  r"(\d+) timeout", text)
    assert m, text
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    done, _, failed, errored, timed_out = map(int, m.groups())
    return done, failed + errored + timed_out + sum(map(int, codes.groups()[1:])), text


def during(seconds, every, call):
    """Calls `call(i)` each `every` seconds; how often it did."""
    end, n = time.monotonic() + seconds, 0
    while (now := time.monotonic()) < end:
        call(n)
        n += 1
        time.sleep(max(0.0, every - (time.monotonic() - now)))
    return n
