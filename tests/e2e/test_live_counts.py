# SPDX-License-Identifier: BSD-2-Clause
"""Connections by source, counted by the kernel, and `xdp guard max-conn`: the next SYN is refused in XDP."""

import json
import os
import random
import signal
import socket
import struct

import pytest
from conftest import SLOW, connect, raw, run_cli, wait_for
from test_guard import GET, VIP, VIP6, attached, conf, denied, drops, get, net, service_rows  # noqa: F401

MAX = 5


def source(edge, addr=None):
    return json.loads(run_cli(edge, "show", "source", *([addr] if addr else []), "--json").stdout)


def count(edge, addr):
    return source(edge, addr)["connections"]


def wait_count(edge, addr, n):
    wait_for(f"{n} connections of {addr}", lambda: count(edge, addr) == n, timeout=10 * SLOW)


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def refused(host, addr=VIP):
    try:
        connect(host, addr, 80, timeout=0.5).close()
        return False
    except TimeoutError:
        return True


@pytest.mark.parametrize("vip, own", [(VIP, "10.20.0.2"), (VIP6, "fd00:20::2")])
def test_max_conn(net, daemon, vip, own):  # noqa: F811
    """The limit is met in XDP, others are served, an end by either side makes room; a reload changes it."""
    d = daemon(net.edge, conf(extra=f"xdp guard max-conn {MAX} per source"))
    assert attached(net.edge)
    held = [connect(net.mallory, vip, 80) for _ in range(MAX)]
    wait_count(net.edge, own, MAX)
    assert refused(net.mallory, vip)
    assert drops(net.edge, "SOURCE_CONNS") > 0
    if vip == VIP:  # of IPv6 the other client is in the same /64: one source
        assert get(net.alice, vip) == 200
    row = next(r for r in service_rows(d)["services"] if r["limited"])
    assert row["limited"] == row["dropped"]
    assert any(e["drop"] == "SOURCE_CONNS"
               for e in json.loads(run_cli(net.edge, "show", "events", "--json").stdout))
    held.pop().close()
    wait_count(net.edge, own, MAX - 1)
    held.append(connect(net.mallory, vip, 80))
    reset(held.pop())
    wait_count(net.edge, own, MAX - 1)
    d.write(conf(extra=f"xdp guard max-conn {MAX + 1} per source"))
    d.cli("reload", timeout=20)
    held += [connect(net.mallory, vip, 80) for _ in range(2)]
    wait_count(net.edge, own, MAX + 1)
    assert refused(net.mallory, vip)
    d.write(conf())
    d.cli("reload", timeout=20)
    assert get(net.mallory, vip) == 200
    for s in held:
        s.close()
    wait_count(net.edge, own, 0)
    assert source(net.edge)["connections"] == 0


def test_counts_outlive_the_daemon(net, daemon):  # noqa: F811
    """Killed, its connections end in the kernel and are given back; a restart, an upgrade of the maps go on counting."""
    text = conf(extra=f"xdp guard max-conn {MAX} per source")
    d = daemon(net.edge, text)
    held = [connect(net.mallory, VIP, 80) for _ in range(3)]
    wait_count(net.edge, "10.20.0.2", 3)
    d.proc.send_signal(signal.SIGKILL)
    d.proc.wait()
    wait_count(net.edge, "10.20.0.2", 0)  # nobody but the kernel is there to count
    d.start()
    held += [connect(net.mallory, VIP, 80) for _ in range(MAX)]
    wait_count(net.edge, "10.20.0.2", MAX)
    # Far more services than the maps have room for: new maps, the program counts in those.
    d.write(text + "\nfrontend many\n" + "".join(f"    bind 127.0.0.1:{p}\n" for p in range(10000, 10100)) +
            "    default_backend counts\n")
    d.proc.send_signal(signal.SIGKILL)
    d.proc.wait()
    d.start()
    assert "with what they hold" in d.output().replace("\n", " ")
    wait_count(net.edge, "10.20.0.2", 0)
    more = [connect(net.mallory, VIP, 80) for _ in range(MAX)]
    wait_count(net.edge, "10.20.0.2", MAX)
    assert refused(net.mallory)
    service = next(r for r in service_rows(d)["services"] if "10.20.0.1" in r["service"])
    assert service["conns"] == MAX
    for s in held + more:
        s.close()
    wait_count(net.edge, "10.20.0.2", 0)


def test_random_ends(net, daemon):  # noqa: F811
    """Requests, resets, half-closes, timeouts of the daemon, killed workers: at the end nothing is left over."""
    total = int(os.environ.get("HG_E2E_CONNS", "600"))
    rng = random.Random(7)
    d = daemon(net.edge, conf(rules="timeout client 300ms\n    timeout http-request 200ms"), args=["-W"])
    held = []
    for i in range(total):
        try:
            s = connect(rng.choice([net.mallory, net.alice]), rng.choice([VIP, VIP6]), 80)
            what = rng.randrange(5)
            if what == 0:
                s.close()
            elif what == 1:
                reset(s)
            elif what == 2:
                s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                held.append(s)
            elif what == 3:
                s.shutdown(socket.SHUT_WR)
                held.append(s)
            else:
                held.append(s)
        except OSError:
            continue  # the worker process was being replaced
        if i % (total // 3) == total // 3 - 1:
            workers = net.edge.run(["pgrep", "-P", str(d.proc.pid)], check=False).stdout.split()
            assert workers
            for w in workers:
                os.kill(int(w), signal.SIGKILL)
            wait_for("a new worker process", lambda: "Name:" in d.cli("show info", check=False),
                     timeout=20 * SLOW)
    for s in held:
        s.close()
    wait_for("all counts to be 0", lambda: source(net.edge)["connections"] == 0, timeout=20 * SLOW)
    rows = [r for r in service_rows(d)["services"] if "10.20.0.1" in r["service"] or "fd00" in r["service"]]
    assert rows and all(r["conns"] == 0 for r in rows)
    # And while connections are open it is the truth. They have to last as long as it takes to look.
    d.write(conf(rules="timeout client 60s\n    timeout http-request 60s"))
    assert "Success=1" in d.cli("reload", timeout=20)
    open_now = [connect(net.mallory, VIP, 80) for _ in range(20)]
    wait_count(net.edge, "10.20.0.2", len(open_now))
    truth = net.edge.run("ss -Htn state established '( sport = :80 )' | wc -l").stdout.strip()
    assert int(truth) == len(open_now)
    for s in open_now:
        s.close()


def test_rules_see_what_the_kernel_saw(net, daemon):  # noqa: F811
    """src_xdp_*: connections, SYNs, drops of the client; a rule can act on them."""
    fmt = "%[src_xdp_conn_cur] %[src_xdp_syn_rate] %[src_xdp_dropped]"
    d = daemon(net.edge, conf(extra="xdp guard max-conn 4 per source", rules=f"""
    http-request deny deny_status 429 if {{ path /many }} {{ src_xdp_conn_cur gt 2 }}
    http-request return status 200 content-type text/plain lf-string "{fmt}" """))

    def facts():
        answer = raw(net.mallory, VIP, 80, GET.replace(b"GET / ", b"GET /facts "))
        return [int(n) for n in answer.split(b"\r\n\r\n", 1)[1].split()]

    conns, rate, dropped = facts()
    assert (conns, dropped) == (1, 0) and 1 <= rate <= 50
    many = GET.replace(b"GET / ", b"GET /many ")
    assert raw(net.mallory, VIP, 80, many).startswith(b"HTTP/1.1 200")
    held = [connect(net.mallory, VIP, 80) for _ in range(3)]
    wait_count(net.edge, "10.20.0.2", 3)
    assert facts()[0] == 4
    assert raw(net.mallory, VIP, 80, many).startswith(b"HTTP/1.1 429")
    held.append(connect(net.mallory, VIP, 80))
    wait_count(net.edge, "10.20.0.2", 4)
    assert refused(net.mallory)
    for s in held:
        s.close()
    wait_count(net.edge, "10.20.0.2", 0)
    seen = facts()
    assert seen[2] >= 1  # the SYN that was refused, and its repetition
    shown = source(net.edge, "10.20.0.2")
    assert shown["dropped"] == seen[2]
    assert d.cli("show info")


def test_xdp_reset(net, daemon):  # noqa: F811
    """The client is told: its connections end with a reset at their next packet, and no new one begins."""
    daemon(net.edge, conf(rules="http-request xdp-reset for 1h if { path /ban }"))
    other = connect(net.mallory, VIP, 80)
    other.sendall(GET.replace(b"Connection: close\r\n", b""))
    assert other.recv(100).startswith(b"HTTP/1.1 200")
    answer = raw(net.mallory, VIP, 80, GET.replace(b"GET / ", b"GET /ban "))
    assert answer in (b"", b"<RESET>")
    entry = wait_for("the ban", lambda: denied(net.edge).get("10.20.0.2/32"))
    assert entry["reset"] is True and entry["origin"] == "rule"

    def cut():
        try:
            connect(net.mallory, VIP, 80, timeout=2).close()
            return False
        except ConnectionRefusedError:
            return True

    assert cut()  # at once, not after a time
    with pytest.raises(ConnectionResetError):
        other.sendall(GET)
        while other.recv(1000):
            pass
    assert get(net.alice) == 200
    assert drops(net.edge, "DENIED_RESET") > 0
    run_cli(net.edge, "deny", "del", "10.20.0.2")
    assert get(net.mallory) == 200
    # By hand, too.
    run_cli(net.edge, "deny", "add", "10.20.0.2", "for", "1h", "reset")
    assert cut()
