# SPDX-License-Identifier: BSD-2-Clause
"""State files: what `show servers state` printed is where the servers of the next process begin."""

import re

import pytest
from conftest import start_nginx, wait_for

CFG = """
global
    stats socket {sock} level admin
    server-state-base {dir}
    server-state-file all.state
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
    load-server-state-from-file global
listen web
    bind 127.0.0.1:8000
    server kept 127.0.0.1:9001 weight 10
    server maint 127.0.0.1:9001 weight 10
    server drained 127.0.0.1:9001 weight 10
    server heavier 127.0.0.1:9001 weight 10
    server reweighted 127.0.0.1:9001 weight WEIGHT
    server down 127.0.0.1:9009 weight 10 check inter 1m fall 1
    server quiet 127.0.0.1:9001 check inter 100ms
backend own
    load-server-state-from-file local
    server one 127.0.0.1:9001 weight 3
backend none
    load-server-state-from-file none
    server one 127.0.0.1:9001 weight 3
backend named
    server one NAME:80 init-addr last,libc
"""


def fields_of(printed):
    """By backend and server: the fields of what `show servers state` printed."""
    lines = printed.split("\n")
    names = lines[1][2:].split()
    return {(f["be_name"], f["srv_name"]): f
            for f in (dict(zip(names, line.split())) for line in lines[2:] if line)}


def state(d):
    return fields_of(d.cli("show servers state"))


def aged(printed, seconds):
    """The same, all of it longer ago."""
    return re.sub(r"^((?:\S+ ){9})(\d+)", lambda m: f"{m[1]}{int(m[2]) + seconds}", printed, flags=re.M)


@pytest.fixture
def edge(one):
    start_nginx(one, ["127.0.0.1:9001"])
    return one


def text(weight="10", name="localhost"):
    return CFG.replace("WEIGHT", weight).replace("NAME", name)


def test_states_outlive_the_process(edge, daemon):
    """Maintenance, drain, weights, disabled checks and what checks had found; not what the configuration changed since."""
    d = daemon(edge, text())
    for cmd in ("set server web/maint state maint", "set server web/drained state drain", "set server web/heavier weight 77",
                "set server web/reweighted weight 66", "disable health web/quiet", "set server own/one weight 9",
                "set server none/one weight 9"):
        assert d.cli(cmd).strip() == "", cmd
    wait_for("the check to find the server down", lambda: d.stat("web", "down")["status"] == "DOWN", timeout=20)
    saved = aged(d.cli("show servers state"), 1000)
    (edge.lab.dir / "all.state").write_text(saved)
    (edge.lab.dir / "own").write_text("\n".join(line for line in saved.split("\n") if " web " not in line))
    before = fields_of(saved)
    d.stop()

    # `gone.invalid` has no address but the one in the file.
    (edge.lab.dir / "all.state").write_text(saved.replace(" localhost ", " gone.invalid "))
    d = daemon(edge, text(weight="20", name="gone.invalid"))
    after = state(d)
    web = {name: after["web", name] for be, name in after if be == "web"}
    assert web["maint"]["srv_admin_state"] == "1" and web["drained"]["srv_admin_state"] == "8"
    assert d.stat("web", "maint")["status"] == "MAINT" and d.stat("web", "drained")["status"] == "DRAIN"
    assert web["heavier"]["srv_uweight"] == "77" and web["heavier"]["srv_iweight"] == "10"
    assert web["reweighted"]["srv_uweight"] == "20"
    # No check has run in this process: its first one comes in a minute at most.
    assert web["down"]["srv_op_state"] == "0" and web["down"]["srv_check_health"] == "0"
    assert int(web["down"]["srv_time_since_last_change"]) >= int(before["web", "down"]["srv_time_since_last_change"]) >= 1000
    assert not int(web["quiet"]["srv_check_state"]) & 4 and d.stat("web", "quiet")["status"] == "no check"
    since = "srv_time_since_last_change"
    assert {**web["kept"], since: ""} == {**before["web", "kept"], since: ""}
    assert after["own", "one"]["srv_uweight"] == "9" and after["none", "one"]["srv_uweight"] == "3"
    assert after["named", "one"]["srv_addr"] == before["named", "one"]["srv_addr"] == "127.0.0.1"
    # A reload keeps states by itself, and reads no old ones.
    assert d.cli("set server web/maint state ready").strip() == ""
    assert "Success=1" in d.cli("reload")
    assert state(d)["web", "maint"]["srv_admin_state"] == "0"


def test_a_file_that_is_no_state_file(edge, daemon):
    """Warnings with their place, and servers as configured."""
    (edge.lab.dir / "all.state").write_text("1\n# header\n4 web 1 kept 127.0.0.1 2 1 300 10\n\n")
    (edge.lab.dir / "own").write_text("2\n")
    d = daemon(edge, text())
    log = d.cli("show startup-logs")
    assert "all.state:3:1: warning: not a line of 'show servers state': it is ignored" in log
    assert "own:1:1: warning: not a file of server states: '1', its version, was expected" in log
    assert state(d)["web", "kept"]["srv_uweight"] == "10"
    (edge.lab.dir / "all.state").unlink()
    d.stop()
    d = daemon(edge, text())
    assert "cannot open" in d.cli("show startup-logs") and "all.state" in d.cli("show startup-logs")
