# SPDX-License-Identifier: BSD-2-Clause
"""Expressions that need a running process: rates, the clock, variables of the process, the environment."""

import time

from conftest import SLOW, connect, raw, read_response, wait_for

HEAD = """
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
"""


def ask(one, path, port=8000):
    out = raw(one, "127.0.0.1", port, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    return out.split(b"\r\n\r\n", 1)[1].decode()


def test_rates(one, daemon):
    """Requests and connections of the last second; afterwards they are forgotten."""
    daemon(one, HEAD + """
frontend web
    bind 127.0.0.1:8000
    http-request return status 200 content-type text/plain lf-string "%[fe_req_rate] %[fe_sess_rate] %[fe_sess_rate(other)]"
frontend other
    bind 127.0.0.1:8001
    tcp-request connection reject if { fe_sess_rate(web) gt 3 }
    http-request return status 200 content-type text/plain lf-string "%[be_sess_rate(app)]"
backend app
    server s1 127.0.0.1:1
""")
    assert ask(one, "/", 8001) == "0"
    with connect(one, "127.0.0.1", 8000) as c:
        t0 = time.monotonic()
        for i in range(1, 21):
            c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            req, sess, other = map(int, read_response(c)[2].split())
            if time.monotonic() - t0 < 0.5:  # all of them within one window
                assert (req >= 1 or i == 1) and req <= i and sess <= 1 and other <= 1
        assert req >= 5 or SLOW > 1

    def is_refused():
        for _ in range(6):
            ask(one, "/")
        return raw(one, "127.0.0.1", 8001, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") in (b"", b"<RESET>")

    wait_for("more than three sessions a second", is_refused, timeout=20 * SLOW)
    time.sleep(1.5)
    # Looking counts, too: not more than once in a second.
    wait_for("the rates to be forgotten", lambda: int(ask(one, "/").split()[0]) <= 1 or time.sleep(1.5), timeout=10 * SLOW)


def test_uptime(one, daemon):
    daemon(one, HEAD + """
frontend web
    bind 127.0.0.1:8000
    http-request return status 200 content-type text/plain lf-string "%[uptime]"
""")
    assert 0 <= int(ask(one, "/")) < 300


def test_process_variables(one, daemon):
    """One value for all workers, set by the global section and by rules; a reload sets it again."""
    d = daemon(one, """
global
    nbthread 2
    setenv REGION north
    presetenv REGION south
    setenv GONE x
    unsetenv GONE
    set-var proc.start int(40)
    set-var proc.more var(proc.start),add(2)
    set-var-fmt proc.text "r-%[env(REGION)]"
""" + HEAD + """
frontend web
    bind 127.0.0.1:8000
    http-request set-var(proc.start) url_param(to) if { path /set }
    http-request set-var(proc.start,ifnotexists) int(1)
    http-request set-var(proc.more,ifgt) int(5)
    http-request return status 200 content-type text/plain lf-string "%[var(proc.start)] %[var(proc.more)] %[var(proc.text)] [%[env(GONE)]]"
""")
    assert ask(one, "/") == "40 5 r-north []"
    assert ask(one, "/set?to=77") == "77 5 r-north []"
    for _ in range(8):  # whichever worker answers
        assert ask(one, "/").startswith("77 ")
    assert "Success=1" in d.cli("reload")
    assert ask(one, "/").startswith("40 ")
