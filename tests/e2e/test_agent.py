# SPDX-License-Identifier: BSD-2-Clause
"""The agent on servers: every tunnel there is, who may send to it, upgrades, and the second chance."""

import json
import re
import struct

import pytest
from conftest import connect, read_response, run_cli, wait_for
from test_l4_forward import VIP, VIP6, get, net  # noqa: F401

CROSSED = """
global
    stats socket {sock} level admin
    xdp interface eth0

defaults
    timeout connect 1s
    timeout client 10s
    timeout server 10s

listen web
    mode l4
    bind tcp@192.0.2.20:80
    bind tcp@[2001:db8::20]:80
    forward METHOD
    maglev-table-size 13
    server web1 10.10.0.11
    server web2 [fd00:10::12]
"""


def agent(host, *args, check=True):
    return json.loads(run_cli(host, "show", "agent", "--json", *args, check=check).stdout)["agent"]


def resolved(edge, sock, n):
    wait_for("next hops", lambda: run_cli(edge, "-s", sock, "show", "l4").stdout.count(" resolved ") == n)


@pytest.mark.parametrize("method", ["ipip", "gue"])
def test_all_crossings_of_families(net, daemon, method):  # noqa: F811
    """IPv4 and IPv6 services, each by servers with an IPv4 and an IPv6 tunnel."""
    d = daemon(net.edge, CROSSED.replace("METHOD", method))
    resolved(net.edge, d.sock, 2)
    before = [agent(w)["DECAP"] for w in net.webs[:2]]
    assert get(net.client, f"http://{VIP}/", 30) == {"web1", "web2"}
    between = [agent(w)["DECAP"] for w in net.webs[:2]]
    assert get(net.client, f"http://[{VIP6}]/", 30) == {"web1", "web2"}
    after = [agent(w)["DECAP"] for w in net.webs[:2]]
    for counts in zip(before, between, after):
        assert counts[0] + 20 < counts[1] and counts[1] + 20 < counts[2], (before, between, after)
    assert all(agent(w)["drops"]["BAD_HEADER"] == 0 for w in net.webs)


def test_counters_and_addresses_are_shown(net, daemon):  # noqa: F811
    web1 = net.webs[0]
    shown = agent(web1)
    assert {a["address"] for a in shown["addresses"]} == {"10.10.0.11", "fd00:10::11"}
    assert all(a["ipip"] and a["gue"] and a["second_chance"] for a in shown["addresses"])
    assert shown["DECAP"] == 0 and set(shown["events"]) >= {"SECOND_CHANCE", "SECOND_KNOWN"}
    status = json.loads(run_cli(web1, "status", "--json").stdout)
    assert status["agent"]["addresses"] == shown["addresses"]
    assert [i["program"] for i in status["interfaces"]] == ["agent"]
    text = run_cli(web1, "show", "agent").stdout
    assert "# verdicts of the agent" in text and "takes tunnels to 10.10.0.11: ipip, gue, second chance" in text
    # A tunnel that carries no IP packet is a named drop.
    net.client.run(["python3", "-c",
                    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 4); "
                    "s.sendto(b'x' * 40, ('10.10.0.11', 0))"])
    wait_for("the drop", lambda: agent(web1)["drops"]["BAD_HEADER"] == 1)
    assert re.search(r"BAD_HEADER +1 \(", run_cli(web1, "status").stdout)


def test_addresses_from_a_file_and_what_is_accepted(net, daemon):  # noqa: F811
    web1, path = net.webs[0], net.dir / "addresses"
    path.write_text("# tunnel end points\n10.10.0.11   # the first\n\n  fd00:10::11\n10.10.0.11\n", encoding="ascii")
    run_cli(web1, "attach", "eth0", "--role", "backend", "--address-file", path, "--accept", "gue", "--no-second-chance")
    shown = agent(web1)["addresses"]
    assert {a["address"] for a in shown} == {"10.10.0.11", "fd00:10::11"}
    assert all(not a["ipip"] and a["gue"] and not a["second_chance"] for a in shown)
    # IP in IP is not taken off any more: the kernel gets it, and answers nobody.
    d = daemon(net.edge, CROSSED.replace("METHOD", "ipip").replace("    server web2 [fd00:10::12]\n", ""))
    resolved(net.edge, d.sock, 1)
    assert net.client.run(f"curl -s --max-time 1 http://{VIP}/", check=False).returncode == 28
    assert agent(web1)["DECAP"] == 0
    run_cli(web1, "attach", "eth0", "--role", "backend", "--accept", "ipip")
    assert get(net.client, f"http://{VIP}/", 5) == {"web1"}
    assert all(a["ipip"] and not a["gue"] for a in agent(web1)["addresses"])


def test_bad_arguments_say_what_is_wrong(net):  # noqa: F811
    web1, path = net.webs[0], net.dir / "addresses"
    path.write_text("10.10.0.11\n10.10.0.300\n", encoding="ascii")
    empty = net.dir / "empty"
    empty.write_text("# nothing\n", encoding="ascii")
    before = agent(web1)["addresses"]
    for args, text in ((["eth0", "--role", "server"], "--role server: expected edge or backend"),
                       (["eth0", "--role", "backend", "--address", "web1"], "--address: 'web1' is no IP address"),
                       (["eth0", "--role", "backend", "--address-file", path], f"{path}:2: '10.10.0.300' is no IP address"),
                       (["eth0", "--role", "backend", "--address-file", empty], f"--address-file {empty}: no address in it"),
                       (["eth0", "--role", "backend", "--address-file", "/nowhere"], "--address-file /nowhere: No such file"),
                       (["eth0", "--role", "backend", "--accept", "gre"], "--accept gre: expected ipip, gue, or ipip,gue"),
                       (["eth0", "--role"], "option --role: needs a value"),
                       (["eth0", "--force"], "unknown option --force"),
                       (["eth0", "--address", "10.10.0.11"], "are the agent's: add --role backend"),
                       (["eth9", "--role", "backend"], "there is no interface 'eth9' on this host"),
                       (["--role", "backend"], "which interface?")):
        out = run_cli(web1, "attach", *args, check=False)
        assert out.returncode == 1 and text in out.stderr, (args, out.stderr)
    assert agent(web1)["addresses"] == before
    out = run_cli(web1, "attach", "eth0", "--role", "backend", "--address", "10.10.0.11", "--address", "10.10.0.99")
    assert "10.10.0.99 is no address of this host (yet)" in out.stderr
    assert run_cli(net.client, "show", "agent", check=False).stderr.startswith("headgate: show agent: nothing of Headgate is loaded")
    net.client.run("ip link add bare type veth peer name other")
    out = run_cli(net.client, "attach", "bare", "--role", "backend", check=False)
    assert out.returncode == 1 and "bare has no address that tunnels could be sent to" in out.stderr


def test_a_second_interface_does_not_take_the_first_ones_addresses(net):  # noqa: F811
    web1 = net.webs[0]
    net.cable(web1, "eth1", net.client, "eth7")
    web1.addr("eth1", "10.77.0.1/24")
    run_cli(web1, "attach", "eth0", "--role", "backend")
    run_cli(web1, "attach", "eth1", "--role", "backend")
    assert {"10.10.0.11", "fd00:10::11", "10.77.0.1"} <= {a["address"] for a in agent(web1)["addresses"]}
    run_cli(web1, "detach", "eth1")
    assert agent(web1)["addresses"]
    assert [i["interface"] for i in json.loads(run_cli(web1, "status", "--json").stdout)["interfaces"]] == ["eth0"]
    run_cli(web1, "detach", "eth0")
    assert web1.run("test ! -e /sys/fs/bpf/headgate", check=False).returncode == 0


def test_an_upgrade_replaces_the_program_without_a_gap(net, daemon):  # noqa: F811
    web1 = net.webs[0]
    d = daemon(net.edge, CROSSED.replace("METHOD", "gue").replace("    server web2 [fd00:10::12]\n", ""))
    resolved(net.edge, d.sock, 1)
    s = connect(net.client, VIP, 80)

    def ask():
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return read_response(s)[0]

    assert ask() == 200
    count, pins = agent(web1)["DECAP"], "/sys/fs/bpf/headgate/agent"
    prog = json.loads(run_cli(web1, "status", "--json").stdout)["interfaces"][0]["id"]
    # The same version: adopted, counters go on.
    run_cli(web1, "attach", "eth0", "--role", "backend")
    assert ask() == 200 and agent(web1)["DECAP"] > count
    # Another version's maps: as if an older headgate had made them.
    raw = json.loads(web1.run(f"bpftool -j map dump pinned {pins}/meta").stdout)[0]["value"]
    value = ["01", *(x[2:] for x in raw[1:])]
    web1.run(f"bpftool map update pinned {pins}/meta key hex 00 00 00 00 value hex {' '.join(value)}")
    out = run_cli(web1, "show", "agent", check=False)
    assert out.returncode == 1 and "is of another version of Headgate" in out.stderr
    out = run_cli(web1, "attach", "eth0", "--role", "backend")
    assert "pinned maps are of another version" in out.stderr
    assert ask() == 200, "the connection lives on"
    assert 0 < agent(web1)["DECAP"] < count + 100
    status = json.loads(run_cli(web1, "status", "--json").stdout)["interfaces"]
    assert len(status) == 1 and status[0]["id"] != prog
    s.close()


# --- second chance ---------------------------------------------------------------------------------------

TWO = CROSSED.replace("METHOD", "gue").replace("[fd00:10::12]", "10.10.0.12")


def slots_of(edge, vip):
    """First block and backend ids of a service's table, read from the pinned maps."""
    l4 = json.loads(edge.l4)
    ids = {b["server"]: b["id"] for b in l4["backends"]}
    dump = edge.run("bpftool -j map dump pinned /sys/fs/bpf/headgate/services").stdout
    want = struct.pack("!HH", 0, 0xFFFF) + bytes(int(x) for x in vip.split("."))
    for row in json.loads(dump):
        v = row.get("formatted", row)["value"]
        if not isinstance(v, dict) or not v["mode"] or v["slots"] != 13:
            continue
        words = [int(str(x), 0) for x in v["key"]["addr"]]
        if struct.pack("<4I", *words)[8:] == want:
            return v["slots_block"], ids
    raise AssertionError("no such service")


def write_slots(edge, block, base, current):
    """Every slot has moved from `base` to `current` a moment ago."""
    word = struct.pack("<I", 0x80000000 | base << 16 | current)
    edge.run(f"bpftool map update pinned /sys/fs/bpf/headgate/slots key hex {struct.pack('<I', block).hex(' ')} "
             f"value hex {(word * 16).hex(' ')}")


@pytest.mark.parametrize("forwarding", [True, False])
def test_second_chance_keeps_connections(net, daemon, forwarding):  # noqa: F811
    """
    An edge host that took over knows no flow: it sends packets of a moved slot to one owner and names the other.
    Connections live on either; each goes on where it began.
    """
    edge, webs = net.edge, net.webs[:2]
    d = daemon(edge, TWO)
    resolved(edge, d.sock, 2)
    edge.l4 = run_cli(edge, "-s", d.sock, "show", "l4", "--json").stdout
    for web, other in zip(webs, (12, 11)):
        # Where the kernel does not say, strays go back to the edge, which routes them.
        web.sysctl("net.ipv4.conf.eth0.forwarding", int(forwarding))
        web.run(["ping", "-c", "1", "-W", "2", f"10.10.0.{other}"])
    edge.sysctl("net.ipv4.ip_forward", int(not forwarding))
    conns = []
    while {name for _, name in conns} != {"web1", "web2"} or len(conns) < 8:
        s = connect(net.client, VIP, 80)
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        conns.append((s, read_response(s)[2].decode().split()[-1]))
        assert len(conns) < 200
    d.proc.kill()
    d.proc.wait()
    d.proc = None
    block, ids = slots_of(edge, VIP)
    # Unknown flows go to web2 first, and to web1 when nobody there knows them.
    write_slots(edge, block, ids["web2"], ids["web1"])
    before = [agent(w)["events"] for w in webs]
    for _ in range(3):
        for s, name in conns:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            status, _, body = read_response(s)
            assert status == 200 and body.decode().split()[-1] == name
    after = [agent(w)["events"] for w in webs]
    on_web1 = sum(name == "web1" for _, name in conns)
    assert after[1]["SECOND_CHANCE"] - before[1]["SECOND_CHANCE"] >= 3 * on_web1
    assert after[1]["SECOND_KNOWN"] > before[1]["SECOND_KNOWN"]
    assert after[0]["SECOND_CHANCE"] == before[0]["SECOND_CHANCE"], "once, not back again"
    # What begins now goes to the current owner alone.
    assert get(net.client, f"http://{VIP}/", 10) == {"web1"}
    for s, _ in conns:
        s.close()


def test_without_a_second_chance_the_same_connections_are_cut(net, daemon):  # noqa: F811
    edge, web2 = net.edge, net.webs[1]
    d = daemon(edge, TWO)
    resolved(edge, d.sock, 2)
    edge.l4 = run_cli(edge, "-s", d.sock, "show", "l4", "--json").stdout
    run_cli(web2, "attach", "eth0", "--role", "backend", "--no-second-chance")
    s, name = None, ""
    while name != "web1":
        s = connect(net.client, VIP, 80)
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        name = read_response(s)[2].decode().split()[-1]
    d.proc.kill()
    d.proc.wait()
    d.proc = None
    block, ids = slots_of(edge, VIP)
    write_slots(edge, block, ids["web2"], ids["web1"])
    with pytest.raises((OSError, EOFError)):
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        read_response(s)
    s.close()
