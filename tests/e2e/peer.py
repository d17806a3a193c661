# SPDX-License-Identifier: BSD-2-Clause
"""The same configuration for Headgate and for the HAProxy of the distribution, side by side: who answers what."""

import shutil

import pytest
from conftest import SLOW, connect, read_response, wait_for

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/sbin:/bin")
# What two programs may say differently: clocks, and the order of fields.
VOLATILE = {"date"}


class Pair:
    """`text` runs twice; {port} is 8000 for Headgate and 8100 for HAProxy, further ports count up from there."""

    def __init__(self, host, daemon, text):
        if not HAPROXY:
            pytest.skip("no haproxy to compare with")
        self.host = host
        self.dir = host.lab.dir
        ours = text.replace("{dir}", str(self.dir)).replace("{log}", "5140")
        theirs = text.replace("{dir}", str(self.dir)).replace("{log}", "5141")
        for i in range(9, -1, -1):
            ours = ours.replace(f"{{port{i or ''}}}", str(8000 + i))
            theirs = theirs.replace(f"{{port{i or ''}}}", str(8100 + i))
        self.daemon = daemon(host, ours)
        cfg = self.dir / "haproxy.cfg"
        cfg.write_text(theirs, encoding="utf-8")
        self.proc = host.popen([HAPROXY, "-db", "-f", cfg], log="haproxy.log")
        wait_for("haproxy to listen", self._is_up, timeout=10 * SLOW)

    def _is_up(self):
        if self.proc.poll() is not None:
            raise RuntimeError((self.dir / "haproxy.log").read_text())
        try:
            connect(self.host, "127.0.0.1", 8100).close()
            return True
        except OSError:
            return False

    def ask(self, request, i=0, head_only=False):
        """Both answers to the same bytes: (status, fields without order, body)."""
        out = []
        for base in (8000, 8100):
            with connect(self.host, "127.0.0.1", base + i) as c:
                c.sendall(request)
                status, headers, body = read_response(c, head_only=head_only)
            out.append((status, {k: v for k, v in headers.items() if k not in VOLATILE},
                        body.replace(str(base + i).encode(), b"PORT")))
            for k, v in out[-1][1].items():
                out[-1][1][k] = v.replace(str(base + i), "PORT")
        return out

    def same(self, request, i=0, head_only=False):
        """The two agree; their answer."""
        ours, theirs = self.ask(request, i, head_only)
        assert ours == theirs, f"{request}\nHeadgate {ours}\nHAProxy  {theirs}"
        return ours
