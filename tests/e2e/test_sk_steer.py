# SPDX-License-Identifier: BSD-2-Clause
"""`sk-steer`: new connections go to the worker of the CPU that took their SYN, or to the least loaded one."""

import os
import re
import time

import pytest
from conftest import HEADGATED, SLOW, ScriptedServer, connect, keepalive_server, start_nginx, wait_addresses, wait_for
from load import Clients

EDGE, EDGE6 = "10.40.0.1", "fd00:40::1"
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
CONF = """
global
    stats socket {sock} level admin
    nbthread 2
    cpu-map 1 0
    cpu-map 2 1
    xdp interface eth0 mode native
    EXTRA

defaults
    mode http
    timeout client 60s
    timeout server 20s
    timeout connect 5s

listen web
    bind 10.40.0.1:80
    bind [fd00:40::1]:80
    server s1 127.0.0.1:9001
"""


@pytest.fixture
def net(lab):
    if os.cpu_count() < 2:
        pytest.skip("needs two CPUs")
    client, edge = lab.host("client"), lab.host("edge")
    lab.cable(client, "eth0", edge, "eth0")
    lab.xdp_pass(client, "eth0")
    client.addr("eth0", "10.40.0.2/24", "fd00:40::2/64")
    edge.addr("eth0", f"{EDGE}/24", f"{EDGE6}/64")
    lab.client, lab.edge = client, edge
    lab.origin = ScriptedServer(edge, "127.0.0.1", 9001, keepalive_server())
    wait_addresses(edge, client)
    yield lab
    lab.origin.close()


def steering(d):
    """What `show steering` says: the first line, and rows by worker: connections, and those given for each reason."""
    head, *rows = d.cli("show steering").strip().splitlines()
    assert rows[0] == "# worker cpu conns by_cpu by_load migrated"
    return head, [dict(zip(("worker", "cpu", "conns", "by_cpu", "by_load", "migrated"), map(int, r.split())))
                  for r in rows[1:]]


def conns(d):
    return [r["conns"] for r in steering(d)[1]]


def opened(net, d, addr, n):
    """n more connections, each accepted and served before the next one; they stay open."""
    made = []
    for _ in range(n):
        made.append(connect(net.client, addr, 80))
        made[-1].sendall(GET)
        assert made[-1].recv(1000).startswith(b"HTTP/1.1 200")
    return made


def let_go(d, made):
    for s in made:
        s.close()
    made.clear()
    wait_for("the connections to end", lambda: sum(conns(d)) == 0)


def reload(d, extra):
    d.write(CONF.replace("EXTRA", extra))
    assert "Success=1" in d.cli("reload", timeout=20)


@pytest.mark.parametrize("cookies", ["", "\n    xdp guard syn-cookies on"])
def test_the_worker_of_the_syns_cpu(net, daemon, cookies):
    """`xdp steer` says which CPU takes the SYNs. A cookie's connection has no SYN for the kernel: the hash, and none is lost."""
    d = daemon(net.edge, CONF.replace("EXTRA", "sk-steer cpu\n    xdp steer 0" + cookies))
    for cpu in (0, 1):
        for addr in (EDGE, EDGE6):
            made = opened(net, d, addr, 8)
            assert sum(conns(d)) == 8
            if not cookies:
                assert conns(d)[cpu] == 8, steering(d)
            let_go(d, made)
        if not cookies:
            assert steering(d)[1][cpu]["by_cpu"] == 16
        assert steering(d)[0] == "sk-steer: cpu, 2 of 2 addresses"
        reload(d, "sk-steer cpu\n    xdp steer 1" + cookies)


def test_a_busy_worker_and_other_modes(net, daemon):
    d = daemon(net.edge, CONF.replace("EXTRA", "sk-steer cpu\n    xdp steer 0"))
    made = opened(net, d, EDGE, 40)
    own, other = conns(d)
    # The CPU's worker until it has a quarter and 8 more than the other, whose latest ones may count twice.
    assert own + other == 40 and other > 5 and own - other >= 7 and own <= 2 * other * 1.25 + 10, steering(d)
    assert steering(d)[1][1]["by_load"] == other
    # The least loaded until they have as many; connections that are open stay where they are.
    reload(d, "sk-steer least\n    xdp steer 0")
    assert conns(d) == [own, other]
    time.sleep(0.15)  # what was given lately counts twice for so long
    made += opened(net, d, EDGE6, (own - other) // 2)
    assert conns(d)[0] == own
    made += opened(net, d, EDGE, 40)
    level = conns(d)
    assert sum(level) == len(made) and abs(level[0] - level[1]) <= 12, steering(d)
    let_go(d, made)
    # Off: nothing is counted any more, and the hash knows no CPU.
    before = steering(d)[1]
    reload(d, "xdp steer 0")
    made = opened(net, d, EDGE, 40)
    assert min(conns(d)) >= 5
    head, rows = steering(d)
    assert head == "sk-steer: off, 0 of 2 addresses"
    assert [r["by_cpu"] + r["by_load"] for r in rows] == [r["by_cpu"] + r["by_load"] for r in before]
    # And on again, at a new address, too.
    let_go(d, made)
    d.write(CONF.replace("EXTRA", "sk-steer cpu\n    xdp steer 1").replace("[fd00:40::1]:80", "[fd00:40::1]:81"))
    assert "Success=1" in d.cli("reload", timeout=20)
    with connect(net.client, EDGE6, 81) as s:
        s.sendall(GET)
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        wait_for("the new address", lambda: steering(d)[0] == "sk-steer: cpu, 2 of 2 addresses")
        assert conns(d) == [0, 1]


LOAD = """
global
    stats socket {sock} level admin expose-fd listeners
    nbthread 2
    hard-stop-after 30s
    sk-steer MODE
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
    option idle-close-on-response
listen web
    bind 127.0.0.1:8000
    bind 127.0.0.1:8001
    server s1 127.0.0.1:9001
"""
KINDS = [("fresh", 8000, False, 1, 1, 0), ("fresh2", 8001, False, 1, 1, 0), ("kept", 8000, False, 0, 1, 0.001),
         ("idle", 8001, False, 0, 1, 0.1)]


@pytest.mark.parametrize("how", ["sockets", "master", "beside"])
def test_upgrades_lose_nothing(one, daemon, how):
    """
    A new process takes the sockets over, or listens beside the old one, whose waiting connections move; each time the
    choice becomes the new one's. Off at last: what the old one left there goes.
    """
    start_nginx(one, ["127.0.0.1:9001"])
    args = ["-W"] if how == "master" else []
    d = daemon(one, LOAD.replace("MODE", "cpu"), args=args)
    clients = Clients(one, KINDS)
    clients.until(10)
    for mode in ("least", "cpu", "off"):
        old = d
        # A program that goes moves nothing: what waits in the old one's own sockets may be lost with it.
        is_quiet = how == "beside" and mode == "off"
        if is_quiet:
            clients.stop()
            assert not clients.failures, (len(clients.failures), clients.failures[:5])
        d = daemon(one, LOAD.replace("MODE", mode),
                   args=[*args, *(["-x", str(old.sock)] if how != "beside" else []), "-sf", str(old.proc.pid)])
        assert old.proc.wait(30 * SLOW) == 0
        old.proc = None
        if is_quiet:
            clients = Clients(one, KINDS)
        want = f"sk-steer: {mode}, {0 if mode == 'off' else 2} of 2 addresses"
        wait_for("the sockets in the new array", lambda: steering(d)[0] == want)
        before = steering(d)[1]
        clients.until(20)
        after = steering(d)[1]
        grown = {k: sum(r[k] for r in after) - sum(r[k] for r in before) for k in ("by_cpu", "by_load")}
        assert (grown["by_cpu"] > 0) == (mode == "cpu") and (grown["by_load"] > 0 or mode != "least"), grown
        assert mode != "off" or not any(grown.values()), grown
    clients.stop()
    assert not clients.failures, (len(clients.failures), clients.failures[:5])


def test_a_killed_process_leaves_no_sockets_behind(one, daemon):
    """The array of the process that was killed goes, so that the one its master starts gets the sockets."""
    start_nginx(one, ["127.0.0.1:9001"])
    d = daemon(one, LOAD.replace("MODE", "cpu"), args=["-W"])
    for _ in range(2):
        pid = int(re.search(r"^Pid: (\d+)$", d.cli("show info"), re.M)[1])
        os.kill(pid, 9)
        wait_for("another process", lambda: f"\nPid: {pid}\n" not in d.cli("show info", check=False) != "",
                 timeout=20 * SLOW)
        wait_for("its sockets", lambda: steering(d)[0] == "sk-steer: cpu, 2 of 2 addresses")
        clients = Clients(one, KINDS[:2])
        clients.until(5)
        clients.stop()
        assert not clients.failures and sum(r["by_cpu"] for r in steering(d)[1]) > 0, clients.failures


def test_without_privileges(one, daemon):
    d = daemon(one, LOAD.replace("MODE", "cpu"), start=False)
    bare = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all"]
    out = one.run([*bare, HEADGATED, "-f", d.cfg], check=False)
    assert out.returncode == 1, out.stderr
    assert f"{d.cfg}:6:5: error: 'sk-steer': " in out.stderr and "CAP_BPF" in out.stderr, out.stderr
