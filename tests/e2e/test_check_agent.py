# SPDX-License-Identifier: BSD-2-Clause
"""Agent checks: what an agent's line does to its server, and what an agent that fails does not do."""

import time

from conftest import SLOW, ScriptedServer, Syslog, keepalive_server, wait_for

CFG = """
global
    stats socket {sock} level admin
    log 127.0.0.1:5140 local0
    nbthread 1
defaults
    mode http
    log global
    timeout client 5s
    timeout server 5s
    timeout connect 1s
listen web
    bind 127.0.0.1:8000
    balance roundrobin
"""


class Agent:
    """Says `line` to whoever connects, after what it was told; None: nothing, for ever."""

    def __init__(self, host, port=9100):
        self.line, self.told = b"up\n", []
        self.server = ScriptedServer(host, "127.0.0.1", port, self._handle)

    def _handle(self, server, c, n):
        c.settimeout(5)
        line = self.line
        if line is None:
            time.sleep(5)
            return
        if line == b"endless":
            while True:
                c.sendall(b"x" * 4096)
        self.told.append(c.recv(100))
        c.sendall(line)


def test_every_word(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    agent, log = Agent(one), Syslog(one)
    d = daemon(one, CFG + "    server s1 127.0.0.1:9001 weight 100 agent-check agent-port 9100 agent-inter 100ms "
               "agent-send hello\\n\n    server s2 127.0.0.1:9001\n")

    def row():
        return d.stat("web", "s1")

    def says(line, what, key, value):
        agent.line = line
        wait_for(what, lambda: row()[key].removeprefix("* ") == value, timeout=15 * SLOW)

    says(b"up\n", "up", "agent_status", "L7OK")
    assert row()["status"] == "UP" and agent.told[0] == b"hello\n"
    says(b"50%\r\n", "half the weight", "weight", "50")
    says(b"75%,maxconn:30\n", "three quarters", "weight", "75")
    says(b"maxconn:31 # busy\n", "a limit", "slim", "31")
    says(b"down # disk full\n", "down", "status", "DOWN (agent)")
    assert (row()["agent_status"].removeprefix("* "), row()["last_agt"]) == ("L7STS", "via agent : down (disk full)")
    assert row()["agent_health"] == "0"
    log.wait(r"Server web/s1 is DOWN, reason: Layer7 wrong status, code: 0, info: \"via agent : down")
    # It says nothing about up or down: the server stays where it is.
    says(b"80%\n", "its weight", "weight", "80")
    assert row()["status"] == "DOWN (agent)"
    for word in (b"UP\n", b"stopped\n", b"up\n", b"fail\n", b"up 100%\n"):
        says(word, word, "status", "UP" if b"up" in word.lower() else "DOWN (agent)")
    says(b"drain\n", "drain", "status", "DRAIN")
    says(b"maint\n", "maintenance", "status", "MAINT")
    says(b"ready\n", "ready", "status", "UP")
    log.wait(r"Server web/s1 is UP, reason: Layer7 check passed")


def test_an_agent_that_fails_says_nothing(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    agent = Agent(one)
    d = daemon(one, CFG + "    server s1 127.0.0.1:9001 agent-check agent-port 9100 agent-inter 200ms agent-send x\n"
               "    server s2 127.0.0.1:9001 agent-check agent-port 9199 agent-inter 200ms\n")
    for line, status in ((b"endless", "L7RSP"), (b"no end of line", "L7RSP"), (None, "L7TOUT"),
                         (b"dwon\n", "L7RSP"), (b"\n", "CHECKED"), (b"300000%\n", "L7RSP")):
        agent.line = line
        wait_for(f"{line}: {status}", lambda: d.stat("web", "s1")["agent_status"].removeprefix("* ") == status,
                 timeout=15 * SLOW)
        assert d.stat("web", "s1")["status"] == "UP"
    wait_for("refused", lambda: d.stat("web", "s2")["agent_status"].removeprefix("* ") == "L4CON", timeout=5 * SLOW)
    assert d.stat("web", "s2")["status"] == "UP"


def test_agent_and_check_have_to_agree(one, daemon):
    origin = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    agent = Agent(one)
    d = daemon(one, CFG + "    server s1 127.0.0.1:9001 check inter 100ms rise 1 fall 1 agent-check agent-port 9100 "
               "agent-inter 100ms agent-send x\n    server s2 127.0.0.1:9001\n")
    agent.line = b"down\n"
    d.wait_server("web", "s1", "DOWN (agent)")
    seen = origin.count
    wait_for("checks", lambda: origin.count > seen + 3, timeout=10 * SLOW)
    # Checks pass all the time; they alone do not bring it up.
    assert d.stat("web", "s1")["check_status"].removeprefix("* ") == "L4OK"
    assert d.stat("web", "s1")["status"] == "DOWN (agent)"
    agent.line = b"up\n"
    d.wait_server("web", "s1", "UP")
    assert d.cli("set server web/s1 agent sideways").strip() == "'set server <srv> agent' expects 'up' or 'down'."
    assert d.cli("disable agent web/s1").strip() == ""
    agent.line = b"down\n"
    time.sleep(0.5)
    assert d.stat("web", "s1")["status"] == "UP"
    assert d.cli("set server web/s1 agent down").strip() == "agent checks are not enabled on this server."
    assert d.cli("enable agent web/s1").strip() == ""
    d.wait_server("web", "s1", "DOWN (agent)")
    assert "not configured" in d.cli("enable agent web/s2")
    assert origin.count > 3
