# SPDX-License-Identifier: BSD-2-Clause
"""Log targets and envelopes: the same configuration through HAProxy, its datagrams byte for byte but for the clock."""

import re
import time

import pytest
from conftest import SLOW, Syslog, connect, raw, read_response, wait_for
from peer import Pair

FORMATS = ["local", "rfc3164", "rfc5424", "priority", "short", "timed", "iso", "raw"]
FRONTEND = """
frontend f_{name}
    bind 127.0.0.1:{{port{i}}}
    log 127.0.0.1:{{log}} {args} local3{levels}
    log-format "{name} %HM %HU"
    {extra}
    http-request return status 200
"""


def config(lines, head=""):
    """One frontend per (name, arguments of the log line, levels, further line)."""
    text = f"global\n    nbthread 1\n{head}\ndefaults\n    mode http\n    option dontlognull\n    timeout client 5s\n    timeout server 5s\n" \
           "    timeout connect 1s\n"
    for i, (name, args, levels, extra) in enumerate(lines):
        text += FRONTEND.format(name=name, i=i or "", args=args, levels=levels, extra=extra)
    return text


def same(line):
    """What may differ is gone: pid, date."""
    line = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)", "<ISO>", line)
    line = re.sub(r"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d ", "<DATE>", line)
    return re.sub(r"(\btag2?)(\[| )\d+(\]| )", r"\1\2<PID>\3", line)


def run_pair(one, daemon, lines, want, head="", requests=1):
    """Both programs' lines; `want` of them are waited for, and those that should not come have a moment for it."""
    logs = [Syslog(one, port=5140), Syslog(one, port=5141)]
    pair = Pair(one, daemon, config(lines, head))
    seen = []
    for base, log in ((8000, logs[0]), (8100, logs[1])):
        time.sleep(0.1)
        log.lines.clear()
        for i in range(len(lines)):
            for k in range(requests):
                assert raw(one, "127.0.0.1", base + i,
                           f"GET /{k} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 200")
        try:
            wait_for("all lines", lambda n=log: sum("GET" in line for line in n.lines) >= want, timeout=10 * SLOW)
        except TimeoutError:
            pass  # told by what is compared
        time.sleep(0.1)
        seen.append([same(line) for line in log.lines if "GET" in line])
        log.close()
    return seen, pair


@pytest.mark.parametrize("hostname", ["", "    log-send-hostname edge7"])
def test_envelopes(one, daemon, hostname):
    lines = [(f, f"format {f}", "", "") for f in FORMATS] + [("default", "", "", "")]
    ours, theirs = run_pair(one, daemon, lines, len(lines), "    log-tag tag\n" + hostname)[0]
    assert ours == theirs
    assert len(ours) == len(lines)


def test_tag_levels_length_and_structured_data(one, daemon):
    lines = [("tag", "format rfc3164", "", "log-tag tag2"), ("sd", "format rfc5424", "", "log-format-sd [x@1\\ a=\\\"%HM\\\"]"),
             ("max", "format local", " notice", ""), ("min", "format local", " debug err", ""),
             ("len", "len 80 format raw", "", "log-format " + "GET" * 40),
             ("level", "format short", " info notice", ""),
             ("sdsplit", "format rfc5424", "", "log-format-sd '[x@1 c=\"%HV\" d=\"%ST\"][y@2]'")]
    ours, theirs = run_pair(one, daemon, lines, 6, "    log-tag tag")[0]
    assert ours == theirs
    assert len(ours) == 6  # "max" takes nothing that is less than a notice
    assert sum("x@1" in line for line in ours) == 2


def test_samples(one, daemon):
    """Which of several requests are logged; ranges as HAProxy takes them."""
    lines = [("a", "format raw sample 1:2", "", ""), ("b", "format raw sample 2-3,5:6", "", ""),
             ("c", "format raw sample 1,4-5,7:7", "", "")]
    ours, theirs = run_pair(one, daemon, lines, 22, requests=15)[0]
    assert ours == theirs
    assert len([x for x in ours if x.startswith("b ")]) == 8
