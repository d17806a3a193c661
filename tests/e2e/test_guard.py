# SPDX-License-Identifier: BSD-2-Clause
"""Denied prefixes and limits per source: in XDP, for both tiers, by file, by hand, and by rules of the HTTP tier."""

import json
import re
import signal
import time

import pytest
from conftest import (SLOW, ScriptedServer, connect, http_status, keepalive_server, raw, run_cli, wait_addresses,
                      wait_for)

VIP, VIP6 = "10.20.0.1", "fd00:20::1"
MANY = 1_000_000

CONF = """
global
    xdp interface eth0 mode native
    {extra}

defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s

listen web
    bind 10.20.0.1:80
    bind [fd00:20::1]:80
    {rules}
    server s1 127.0.0.1:9001

backend counts
    stick-table type ipv6 size 1k expire 30s store http_req_rate(30s)
"""
BAN = """
    http-request track-sc0 src table counts
    http-request xdp-drop for {time} if { sc_http_req_rate(0,counts) gt 20 }"""
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"


def conf(extra="", rules=""):
    return CONF.replace("{extra}", extra).replace("{rules}", rules)


@pytest.fixture
def net(lab):
    """Two clients, a switch, the edge with an HTTP service behind XDP."""
    switch = lab.switch()
    edge, mallory, alice = lab.host("edge"), lab.host("mallory"), lab.host("alice")
    for i, h in enumerate((edge, mallory, alice), 1):
        lab.plug(switch, h)
        lab.xdp_pass(switch, h.name)
        h.addr("eth0", f"10.20.0.{i}/24", f"fd00:20::{i}/64")
    mallory.addr("eth0", "fd00:20:0:0:a::2/64")
    lab.edge, lab.mallory, lab.alice = edge, mallory, alice
    lab.origin = ScriptedServer(edge, "127.0.0.1", 9001, keepalive_server())
    wait_addresses(edge, mallory, alice)
    yield lab
    lab.origin.close()


def get(host, addr=VIP, timeout=5.0):
    return http_status(host, addr, timeout)


def is_cut_off(host, addr=VIP):
    """No SYN of it is answered; and not for want of time: others are, see the callers."""
    return get(host, addr, timeout=0.4) == 0


def denied(edge):
    return {r["prefix"]: r for r in json.loads(run_cli(edge, "deny", "list", "--json").stdout)}


def drops(edge, reason):
    out = run_cli(edge, "status").stdout
    m = re.search(rf"{reason}\s+(\d+)", out)
    return int(m[1]) if m else 0


def service_rows(d):
    out = d.cli("show l4 json")
    return json.loads(out.split("\n")[0])


def attached(edge):
    rows = json.loads(run_cli(edge, "status", "--json").stdout)["interfaces"]
    return any(r["interface"] == "eth0" and r["program"] == "balancer" for r in rows)


@pytest.mark.parametrize("addr", [VIP, VIP6])
def test_a_rule_bans_a_client_for_a_while(net, daemon, addr):
    """More than 20 requests: its packets are dropped before TCP sees them; others are served; the ban ends."""
    d = daemon(net.edge, conf(rules=BAN.replace("{time}", "4s")))
    assert attached(net.edge)
    assert [get(net.mallory, addr) for _ in range(20)] == [200] * 20
    assert denied(net.edge) == {}
    before = drops(net.edge, "DENIED")
    banned_at = time.monotonic()
    assert get(net.mallory, addr, timeout=0.3) == 0
    prefix = "10.20.0.2/32" if addr == VIP else "fd00:20::/64"
    entry = wait_for("the ban", lambda: denied(net.edge).get(prefix))
    assert entry["origin"] == "rule" and 0 < entry["seconds_left"] <= 4
    assert is_cut_off(net.mallory, addr)
    assert drops(net.edge, "DENIED") > before
    if addr == VIP:  # the other address of IPv6 is in the same /64
        assert get(net.alice, addr) == 200
    # A connection that is refused keeps sending; so wait for the time, then for the answer.
    time.sleep(max(0.0, banned_at + 4 - time.monotonic()))
    wait_for("the ban to end", lambda: prefix not in denied(net.edge), timeout=5 * SLOW)
    d.cli("clear table counts")
    wait_for("service again", lambda: get(net.mallory, addr) == 200, timeout=10 * SLOW)


def test_a_ban_by_a_connection_rule_and_its_prefix(net, daemon):
    """tcp-request connection, with a shorter prefix; the operator lifts it."""
    daemon(net.edge, conf(rules="tcp-request connection xdp-drop for 1h prefix 31 if { src 10.20.0.2 }"))
    assert get(net.alice) == 200
    assert get(net.mallory, timeout=1.0) == 0
    entry = wait_for("the ban", lambda: denied(net.edge).get("10.20.0.2/31"))
    assert 3400 < entry["seconds_left"] <= 3600
    wait_for("the neighbour in the prefix to be cut off", lambda: is_cut_off(net.alice))
    run_cli(net.edge, "deny", "del", "10.20.0.2/31")
    assert get(net.alice) == 200
    assert run_cli(net.edge, "deny", "del", "10.20.0.2/31", check=False).returncode == 1


def test_bans_outlive_reload_and_restart(net, daemon):
    text = conf(rules="http-request xdp-drop for 1h if { path /ban }")
    d = daemon(net.edge, text)
    raw_ban = GET.replace(b"GET / ", b"GET /ban ")
    try:
        raw(net.mallory, VIP, 80, raw_ban, timeout=1.0)
    except OSError:
        pass
    wait_for("the ban", lambda: "10.20.0.2/32" in denied(net.edge))
    left = denied(net.edge)["10.20.0.2/32"]["seconds_left"]
    run_cli(net.edge, "-s", str(d.sock), "reload")
    assert is_cut_off(net.mallory) and get(net.alice) == 200
    d.proc.send_signal(signal.SIGKILL)
    d.proc.wait()
    assert denied(net.edge)["10.20.0.2/32"]["seconds_left"] <= left
    d.start()
    assert is_cut_off(net.mallory) and get(net.alice) == 200
    assert denied(net.edge)["10.20.0.2/32"]["seconds_left"] <= left
    # Far more services than the maps have room for: new maps, with what the older ones held.
    d.proc.send_signal(signal.SIGKILL)
    d.proc.wait()
    d.write(text + "\nfrontend many\n" + "".join(f"    bind 127.0.0.1:{p}\n" for p in range(10000, 10100)) +
            "    default_backend counts\n")
    d.start()
    assert "with what they hold" in d.output().replace("\n", " ")
    assert is_cut_off(net.mallory) and get(net.alice) == 200
    assert denied(net.edge)["10.20.0.2/32"]["seconds_left"] <= left
    activity = d.cli("show activity")
    assert "bans_lost: 0\n" in activity, activity


def test_deny_file_and_reload(net, daemon, tmp_path):
    path = tmp_path / "deny.lst"
    path.write_text("# nobody\n10.20.0.2 # mallory\n2001:db8::/32\n")
    d = daemon(net.edge, conf(extra=f"xdp deny-file {path}"))
    assert is_cut_off(net.mallory) and get(net.alice) == 200
    assert {p: r["origin"] for p, r in denied(net.edge).items()} == {"10.20.0.2/32": "file", "2001:db8::/32": "file"}
    run_cli(net.edge, "deny", "add", "192.0.2.0/24", "for", "1h")
    run_cli(net.edge, "deny", "add", "10.20.0.0/16", "for", "1500ms")
    assert is_cut_off(net.alice)
    wait_for("the hand's time to end", lambda: get(net.alice) == 200)
    assert is_cut_off(net.mallory)  # inside the one whose time is over
    saved = tmp_path / "saved.lst"
    run_cli(net.edge, "deny", "save", str(saved))
    assert [x for x in saved.read_text().splitlines() if not x.startswith("#")] == ["10.20.0.2/32", "2001:db8::/32"]
    # A broken file changes nothing and is told by its line.
    path.write_text("10.20.0.2\n10.20.0.300\n")
    out = d.cli("reload", timeout=20)
    assert f"{path}:2:1: error: '10.20.0.300' is no address or prefix" in out, out
    assert is_cut_off(net.mallory)
    path.write_text("10.20.0.3\n")
    out = d.cli("reload", timeout=20)
    assert get(net.mallory) == 200 and is_cut_off(net.alice)
    assert set(denied(net.edge)) == {"10.20.0.3/32", "192.0.2.0/24"}
    # A start after a stop: the file decides anew, what the hand added stays.
    d.stop()
    path.write_text("# empty\n")
    d.start()
    assert get(net.alice) == 200
    assert set(denied(net.edge)) == {"192.0.2.0/24"}


def test_a_million_prefixes(net, daemon, tmp_path):
    path = tmp_path / "deny.lst"
    with open(path, "w", encoding="ascii") as f:
        for i in range(MANY - 1):
            f.write(f"{20 + i % 180}.{i // 180 % 256}.{i // 46080 % 256}.{i * 7 % 256}\n")
        f.write("10.20.0.2\n")
    began = time.monotonic()
    d = daemon(net.edge, conf(extra=f"xdp deny-file {path}"), start=False)
    d.start()
    took = time.monotonic() - began
    print(f"start with {MANY} prefixes: {took:.2f} s")
    assert is_cut_off(net.mallory) and get(net.alice) == 200
    assert took < 60 * SLOW
    began = time.monotonic()
    out = d.cli("reload", timeout=60)
    print(f"reload: {time.monotonic() - began:.2f} s, {out!r}")
    assert is_cut_off(net.mallory) and get(net.alice) == 200


def test_mistakes_of_the_hand(net, daemon):
    out = run_cli(net.edge, "deny", "list", check=False)
    assert out.returncode == 1 and "nothing of Headgate is loaded" in out.stderr
    daemon(net.edge, conf())
    for args, text in ((["add", "10.0.0.0/33"], "no address or prefix"), (["add", "1.2.3.4", "for", "0"], "no time"),
                       (["add", "1.2.3.4", "60s"], "usage:"), (["del", "1.2.3.4"], "not in the list"), ([], "usage:"),
                       (["lst"], "usage:"), (["save", "/nonexistent/x"], "No such file")):
        out = run_cli(net.edge, "deny", *args, check=False)
        assert out.returncode == 1 and text in out.stderr, (args, out.stderr)
    assert denied(net.edge) == {}


def test_limits_per_source_follow_a_reload(net, daemon):
    """SYNs over the rate are dropped by name, other clients and open connections are not touched."""
    d = daemon(net.edge, conf(extra="xdp guard syn-rate 1/s burst 5 per source"))
    with connect(net.mallory, VIP, 80) as kept:
        assert [get(net.mallory) for _ in range(4)] == [200] * 4
        wait_for("the limit", lambda: get(net.mallory, timeout=0.4) == 0)
        assert drops(net.edge, "SOURCE_SYNS") > 0 and drops(net.edge, "SOURCE_PACKETS") == 0
        assert get(net.alice) == 200
        kept.sendall(GET)
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
    row = next(r for r in service_rows(d)["services"] if r["limited"])
    assert row["denied"] == 0 and row["dropped"] >= row["limited"]
    d.write(conf(extra="xdp guard packet-rate 1m/s per source"))
    d.cli("reload", timeout=20)
    assert [get(net.mallory) for _ in range(20)] == [200] * 20
    # Far too few packets for a connection: the limit works on what is not a SYN, too.
    d.write(conf(extra="xdp guard packet-rate 1/s burst 2 per source"))
    d.cli("reload", timeout=20)
    wait_for("packets over the limit", lambda: get(net.mallory, timeout=0.4) == 0 and
             drops(net.edge, "SOURCE_PACKETS") > 0)
