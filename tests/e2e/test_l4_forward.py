# SPDX-License-Identifier: BSD-2-Clause
"""The kernel tier on a real network of namespaces: client, edge host, backends on one switch."""

import json
import re
import signal
import threading
import time
from functools import partial

import pytest
from conftest import BUILD, HEADGATED, connect, read_response, run_cli, start_nginx, together, wait_for

VIP, VIP6 = "192.0.2.20", "2001:db8::20"

L4 = """
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
    forward ipip
    option tcp-check
    server web1 10.10.0.11 check port 80 inter 200 fall 2 rise 2
    server web2 10.10.0.12 check port 80 inter 200 fall 2 rise 2
    server web3 10.10.0.13 check port 80 inter 200 fall 2 rise 2
"""


@pytest.fixture
def net(lab):
    """client — switch — edge, web1..3; the service addresses on each backend's loopback."""
    switch = lab.switch()
    client, edge = lab.host("client"), lab.host("edge")
    webs = [lab.host(f"web{i}") for i in (1, 2, 3)]
    for h in (client, edge, *webs):
        lab.plug(switch, h)
        lab.xdp_pass(switch, h.name)
    client.addr("eth0", "10.10.0.2/24", "fd00:10::2/64")
    edge.addr("eth0", "10.10.0.1/24", "fd00:10::1/64")
    client.route("192.0.2.0/24", "via", "10.10.0.1")
    client.route("2001:db8::/64", "via", "fd00:10::1")
    for i, web in enumerate(webs, 11):
        web.addr("eth0", f"10.10.0.{i}/24", f"fd00:10::{i}/64")
        web.addr("lo", f"{VIP}/32", f"{VIP6}/128")
        web.nginx = start_nginx(web, ["80", "[::]:80"])
    together(*(partial(run_cli, web, "attach", "eth0", "--role", "backend", "--address", f"10.10.0.{i}", "--address", f"fd00:10::{i}")
               for i, web in enumerate(webs, 11)))
    lab.client, lab.edge, lab.webs = client, edge, webs
    return lab


def get(client, url, n):
    """n requests, each on a connection of its own; the set of servers that answered."""
    out = client.run(f"for i in $(seq {n}); do curl -sS -g --max-time 3 '{url}' || exit 1; done").stdout
    lines = out.split("\n")[:-1]
    assert len(lines) == n
    return {line.removeprefix("hello from ") for line in lines}


def settle(client, names):
    """Waits until new flows go to these servers only. A flow that a change of the table cuts is tried again."""
    def asked():
        try:
            return get(client, f"http://{VIP}/", 20) == names
        except RuntimeError:
            return False

    wait_for(f"new flows at {sorted(names)}", asked)


def l4_ready(edge):
    shown = edge.run([BUILD / "headgate", "-s", edge.sock, "show", "l4"], check=False).stdout
    return len(re.findall(r" resolved ", shown)) == 3


@pytest.fixture
def balanced(net, daemon):
    d = daemon(net.edge, L4)
    net.edge.sock = d.sock
    wait_for("next hops", lambda: l4_ready(net.edge))
    net.daemon = d
    return net


def has_no_pins(host):
    return host.run("test ! -e /sys/fs/bpf/headgate", check=False).returncode == 0


def verdicts(edge):
    """Verdicts as bpftool shows them, summed over CPUs."""
    dump = json.loads(edge.run("bpftool -j map dump pinned /sys/fs/bpf/headgate/xdp_verdicts").stdout)
    rows = [r.get("formatted", r)["value"] for r in dump]
    names = ["PASS_NOT_IP", "PASS_NOT_OURS", "PASS_LOCAL", "TX", "REDIRECT", "DROP"]
    return {n: sum(int(str(r["verdict"][i]), 0) for r in rows) for i, n in enumerate(names)}


def test_ipv4_and_ipv6_reach_all_backends(balanced):
    assert get(balanced.client, f"http://{VIP}/", 40) == {"web1", "web2", "web3"}
    assert get(balanced.client, f"http://[{VIP6}]/", 40) == {"web1", "web2", "web3"}
    v = verdicts(balanced.edge)
    assert v["TX"] > 200 and v["DROP"] == 0


@pytest.mark.parametrize("method", ["gue", "l2"])
def test_other_forwarding_methods(net, daemon, method):
    """The same traffic by GUE (the agent takes it off) and by direct routing (the frame arrives as it is)."""
    d = daemon(net.edge, L4.replace("forward ipip", f"forward {method}"))
    net.edge.sock = d.sock
    wait_for("next hops", lambda: l4_ready(net.edge))
    assert get(net.client, f"http://{VIP}/", 40) == {"web1", "web2", "web3"}
    assert get(net.client, f"http://[{VIP6}]/", 40) == {"web1", "web2", "web3"}
    assert verdicts(net.edge)["DROP"] == 0
    agents = sum(json.loads(run_cli(w, "status", "--json").stdout)["agent"]["DECAP"] for w in net.webs)
    assert (agents > 200) == (method == "gue")


def test_ping_of_a_service_address(balanced):
    balanced.client.run(["ping", "-c", "3", "-i", "0.2", "-W", "1", VIP])
    balanced.client.run(["ping", "-c", "3", "-i", "0.2", "-W", "1", VIP6])


def test_what_is_not_ours_passes(balanced):
    out = balanced.client.run("ping -c 2 -W 1 10.10.0.1; ping -c 1 -W 1 fd00:10::1")
    assert out.returncode == 0
    before = verdicts(balanced.edge)["TX"]
    # Another port of the service address is not the service.
    balanced.client.run(f"curl -s --max-time 0.5 http://{VIP}:81/", check=False)
    assert verdicts(balanced.edge)["TX"] == before


def test_a_dead_backend_leaves_the_table_and_comes_back(balanced):
    web2 = balanced.webs[1]
    web2.stop(web2.nginx)
    balanced.daemon.wait_server("web", "web2", "DOWN")
    assert get(balanced.client, f"http://{VIP}/", 30) == {"web1", "web3"}
    web2.nginx = start_nginx(web2, ["80", "[::]:80"])
    balanced.daemon.wait_server("web", "web2", "UP")
    assert get(balanced.client, f"http://{VIP}/", 60) == {"web1", "web2", "web3"}


def test_drain_by_the_runtime_api(balanced):
    assert balanced.daemon.cli("set server web/web3 state drain") == "\n"
    settle(balanced.client, {"web1", "web2"})
    balanced.daemon.cli("set server web/web3 state ready")
    settle(balanced.client, {"web1", "web2", "web3"})


def test_servers_come_and_go(balanced):
    """`del server` of one that the file has, `add server` of its address under another name."""
    d = balanced.daemon
    assert d.cli("del server web/web3").strip() == "Only servers in maintenance mode can be deleted."
    assert d.cli("disable server web/web3; wait 5s srv-removable web/web3; del server web/web3").split("\n\n")[-2] == "Server deleted."
    settle(balanced.client, {"web1", "web2"})
    assert d.cli("add server web/other 10.10.0.13:80 check inter 200 rise 2 fall 2").strip() == "New server registered."
    assert get(balanced.client, f"http://{VIP}/", 20) == {"web1", "web2"}
    d.cli("enable server web/other; enable health web/other")
    settle(balanced.client, {"web1", "web2", "web3"})
    d.wait_server("web", "other", "UP")
    assert "10.10.0.13" in d.cli("show backends")


class Pinger(threading.Thread):
    """One connection at a time, keep-alive requests on a long one and short ones beside it; every failure is kept."""

    def __init__(self, client, host=VIP):
        super().__init__(daemon=True)
        self.client, self.host = client, host
        self.failures, self.count, self.stop_flag = [], 0, False
        self.long = connect(client, host, 80)

    def ask(self, s):
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, body = read_response(s)
        assert status == 200 and body.startswith(b"hello from web"), (status, body)

    def run(self):
        while not self.stop_flag:
            try:
                self.ask(self.long)
                with connect(self.client, self.host, 80, timeout=2) as s:
                    self.ask(s)
                self.count += 2
            except (OSError, EOFError, AssertionError) as e:
                self.failures.append((time.monotonic(), repr(e)))
                return

    def finish(self):
        self.stop_flag = True
        self.join(10)
        self.long.close()
        assert not self.failures, self.failures


def test_kill_9_loses_nothing_and_the_next_start_adopts(balanced):
    """The daemon's death is not the balancer's: packets go on, and the next start finds the pins."""
    edge, d = balanced.edge, balanced.daemon
    pinger = Pinger(balanced.client)
    pinger.start()
    wait_for("traffic", lambda: pinger.count > 20)
    before = verdicts(edge)
    prog = edge.run("bpftool -j net show").stdout
    d.proc.send_signal(signal.SIGKILL)
    d.proc.wait()
    count = pinger.count
    wait_for("traffic without a daemon", lambda: pinger.count > count + 50)
    d.start()
    wait_for("next hops", lambda: l4_ready(edge))
    count = pinger.count
    wait_for("traffic with the new daemon", lambda: pinger.count > count + 50)
    pinger.finish()
    after = verdicts(edge)
    assert after["DROP"] == before["DROP"] == 0
    assert after["TX"] > before["TX"], "the counters went on in the same map"
    assert edge.run("bpftool -j net show").stdout.count("xdp") == prog.count("xdp")
    # Two daemons cannot both own the tables.
    second = edge.run([HEADGATED, "-f", d.cfg], check=False)
    assert second.returncode == 1 and "another Headgate process owns" in second.stderr


def test_reload_breaks_no_flow(balanced):
    pinger = Pinger(balanced.client)
    pinger.start()
    wait_for("traffic", lambda: pinger.count > 10)
    for _ in range(5):
        out = run_cli(balanced.edge, "-s", balanced.daemon.sock, "reload")
        assert "reloaded" in out.stdout
        time.sleep(0.1)
    count = pinger.count
    wait_for("traffic after reloads", lambda: pinger.count > count + 20)
    pinger.finish()


def test_stop_keeps_forwarding_and_detach_leaves_nothing(balanced):
    edge = balanced.edge
    assert balanced.daemon.stop() == 0
    assert get(balanced.client, f"http://{VIP}/", 10) <= {"web1", "web2", "web3"}
    status = json.loads(run_cli(edge, "status", "--json").stdout)
    assert [i["program"] for i in status["interfaces"]] == ["balancer"]
    assert run_cli(edge, "detach", "eth0").returncode == 0
    assert "xdp" not in edge.run("ip link show eth0").stdout
    assert has_no_pins(edge)
    again = run_cli(edge, "detach", "eth0", check=False)
    assert again.returncode == 1 and "nothing of Headgate is attached" in again.stderr


def test_detach_leaves_a_strangers_program_alone(net):
    edge = net.edge
    net.xdp_pass(edge, "eth0")
    out = run_cli(edge, "detach", "eth0", check=False)
    assert out.returncode == 1 and "xdp_pass" in out.stderr and "left alone" in out.stderr
    out = run_cli(edge, "attach", "eth0", check=False)
    assert out.returncode == 1 and "has an XDP program already" in out.stderr
    assert "xdp_pass" in edge.run("ip link show eth0").stdout
    assert has_no_pins(edge)


def test_an_interface_that_does_not_exist(net, daemon):
    d = daemon(net.edge, L4.replace("xdp interface eth0", "xdp interface eth7"), start=False)
    d.start(wait=False)
    assert d.proc.wait(10) == 1
    assert re.search(r"headgated\.cfg:4:\d+: error: no interface 'eth7' on this host", d.output()), d.output()
    assert has_no_pins(net.edge)
    d.proc = None


def test_redirect_when_the_backend_is_behind_another_interface(lab, daemon):
    """Client on eth0, backend on eth1: the packet is redirected; the answer is routed back."""
    client, edge, web = lab.host("client"), lab.host("edge"), lab.host("web1")
    lab.cable(client, "eth0", edge, "eth0")
    lab.cable(edge, "eth1", web, "eth0")
    client.addr("eth0", "10.1.0.2/24")
    edge.addr("eth0", "10.1.0.1/24")
    edge.addr("eth1", "10.2.0.1/24")
    web.addr("eth0", "10.2.0.2/24")
    web.addr("lo", f"{VIP}/32")
    client.route("default", "via", "10.1.0.1")
    web.route("default", "via", "10.2.0.1")
    edge.sysctl("net.ipv4.ip_forward", 1)
    start_nginx(web, ["80"])
    run_cli(web, "attach", "eth0", "--role", "backend")
    d = daemon(edge, L4.replace("    server web2 10.10.0.12 check port 80 inter 200 fall 2 rise 2\n", "")
               .replace("    server web3 10.10.0.13 check port 80 inter 200 fall 2 rise 2\n", "")
               .replace("10.10.0.11", "10.2.0.2"))
    edge.sock = d.sock
    wait_for("next hop", lambda: " resolved " in run_cli(edge, "-s", d.sock, "show", "l4").stdout)
    assert get(client, f"http://{VIP}/", 10) == {"web1"}
    assert verdicts(edge)["REDIRECT"] > 40


def test_next_hop_changes_are_followed(balanced):
    """A backend with a new MAC address is reached within seconds."""
    web1 = balanced.webs[0]
    for name in ("web2", "web3"):
        balanced.daemon.cli(f"set server web/{name} state maint")
    settle(balanced.client, {"web1"})
    web1.run("ip link set eth0 down && ip link set eth0 address 02:00:00:00:00:99 && ip link set eth0 up")
    web1.run("ping -c 1 -W 1 10.10.0.1", check=False)

    def works():
        return balanced.client.run(f"curl -sS --max-time 1 http://{VIP}/", check=False).returncode == 0

    wait_for("the new address in use", works, timeout=15)
