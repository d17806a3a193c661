# SPDX-License-Identifier: BSD-2-Clause
"""Health checks that go where the traffic goes: `check via tunnel`."""

import re
from pathlib import Path

import pytest
from conftest import BUILD, HEADGATED, run_cli, start_nginx, wait_for
from test_l4_forward import VIP, VIP6, net  # noqa: F401

CONF = """
global
    stats socket {{sock}} level admin
    xdp interface eth0

defaults
    timeout connect 2s
    timeout client 10s
    timeout server 10s

listen through
    mode l4
    bind tcp@{vip}:80
    forward {method}
    {check}
    default-server check inter 300 fall 2 rise 2 via tunnel
    server web1 {web1}
    server web2 {web2}

listen plain
    mode l4
    bind tcp@{vip}:81
    forward {method}
    option tcp-check
    server web1 {web1} check port 80 inter 300 fall 2 rise 2
"""
# Several segments: a request that does not fit one has to arrive as well.
HTTP = f"option httpchk\n    http-check send meth GET uri / hdr X-Pad {'x' * 5000}\n    http-check expect string hello"


def conf(method, family, check="option tcp-check"):
    v4 = family == 4
    return CONF.format(vip=VIP if v4 else f"[{VIP6}]", method=method, check=check,
                       web1="10.10.0.11" if v4 else "[fd00:10::11]", web2="10.10.0.12" if v4 else "[fd00:10::12]")


def tc_filters(host):
    return [host.run(["tc", "filter", "show", "dev", "eth0", side]).stdout.count("handle 0x6867 hc_") for side in ("egress", "ingress")]


def good_checks(d, n, status="L4OK"):
    """The first state is "up" before any check: this waits for results."""
    wait_for("good checks", lambda: sum(r["check_status"].endswith(status) for r in d.stats()) >= n, timeout=20)


def decap_off(web, method):
    """The server goes on answering by its own address; what is for the service address no longer gets there."""
    if method == "l2":
        web.run(f"ip addr del {VIP}/32 dev lo; ip addr del {VIP6}/128 dev lo")
    else:
        run_cli(web, "detach", "eth0")
        # Frames by XDP_TX reach a veth only when a program runs at its far end.
        web.lab.xdp_pass(web, "eth0")


def decap_on(web, method, n):
    if method == "l2":
        web.addr("lo", f"{VIP}/32", f"{VIP6}/128")
    else:
        web.run("ip link set dev eth0 xdpdrv off")
        run_cli(web, "attach", "eth0", "--role", "backend", "--address", f"10.10.0.{n}", "--address", f"fd00:10::{n}")


@pytest.mark.parametrize("check", ["tcp", "http"])
@pytest.mark.parametrize("method,family", [("ipip", 4), ("ipip", 6), ("gue", 4), ("gue", 6), ("l2", 4), ("l2", 6)])
def test_broken_decapsulation_is_seen(net, daemon, method, family, check):  # noqa: F811
    d = daemon(net.edge, conf(method, family, HTTP if check == "http" else "option tcp-check"))
    status = "L7OK" if check == "http" else "L4OK"
    web1 = net.webs[0]
    good_checks(d, 3 if check == "tcp" else 2, status)
    d.wait_server("through", "web1", "UP")
    assert tc_filters(net.edge) == [1, 1]
    decap_off(web1, method)
    d.wait_server("through", "web1", "DOWN")
    d.wait_server("through", "web2", "UP")
    d.wait_server("plain", "web1", "UP")
    decap_on(web1, method, 11)
    d.wait_server("through", "web1", "UP")
    # A server that is dead in the plain way is down as well.
    web1.stop(web1.nginx)
    d.wait_server("through", "web1", "DOWN")
    d.wait_server("plain", "web1", "DOWN")
    web1.nginx = start_nginx(web1, ["80", "[::]:80"])
    d.wait_server("through", "web1", "UP")


def test_on_the_wire_it_is_the_service_address(net, daemon):  # noqa: F811
    web1 = net.webs[0]
    run_cli(web1, "detach", "eth0")
    net.xdp_pass(web1, "eth0")
    dump = web1.popen(["tcpdump", "-n", "-v", "-l", "-c", "2", "-i", "eth0", "ip proto 4"], log="wire.log")
    daemon(net.edge, conf("ipip", 4))
    assert dump.wait(20) == 0
    text = (net.dir / "wire.log").read_text()
    assert re.search(r"10\.10\.0\.1 > 10\.10\.0\.11: .*IP", text, re.S)
    assert re.search(rf"10\.10\.0\.1\.\d+ > {re.escape(VIP)}\.80: Flags \[S\], cksum 0x\w+ \(correct\)", text), text
    assert "bad cksum" not in text


@pytest.mark.parametrize("where", ["local", "strict"])
def test_service_address_on_the_edge_and_strict_reverse_path(net, daemon, where):  # noqa: F811
    """Answers from the service address would be martians, or unroutable, if the host saw them."""
    edge = net.edge
    if where == "local":
        edge.addr("lo", f"{VIP}/32", f"{VIP6}/128")
    else:
        edge.sysctl("net.ipv4.conf.all.rp_filter", 1)
        edge.sysctl("net.ipv4.conf.eth0.rp_filter", 1)
    d = daemon(edge, conf("ipip", 4))
    good_checks(d, 3)
    d.wait_server("through", "web1", "UP")


def test_start_and_stop_leave_nothing(net, daemon):  # noqa: F811
    edge = net.edge
    # A stranger's filter stays.
    edge.run(f"bpftool prog loadall {BUILD}/bpf/hc_encap.bpf.o /sys/fs/bpf/stranger")
    edge.run("tc qdisc add dev eth0 clsact && tc filter add dev eth0 egress prio 7 handle 9 bpf da pinned /sys/fs/bpf/stranger/hc_return")
    d = daemon(edge, conf("gue", 4))
    good_checks(d, 3)
    assert tc_filters(edge) == [1, 1]
    d.proc.kill()
    d.proc.wait()
    assert tc_filters(edge) == [1, 1]
    d.start()
    good_checks(d, 3)
    assert tc_filters(edge) == [1, 1]
    assert d.stop() == 0
    assert tc_filters(edge) == [0, 0]
    d.start()
    good_checks(d, 3)
    d.proc.kill()
    d.proc.wait()
    d.proc = None
    assert run_cli(edge, "detach", "--all").returncode == 0
    assert tc_filters(edge) == [0, 0]
    assert "pref 7 bpf chain 0 handle 0x9" in edge.run("tc filter show dev eth0 egress").stdout


def test_as_an_unprivileged_user(net, daemon):  # noqa: F811
    d = daemon(net.edge, conf("ipip", 4).replace("global\n", "global\n    user nobody\n    group nogroup\n"))
    good_checks(d, 3)
    status = Path(f"/proc/{d.proc.pid}/status").read_text(encoding="ascii")
    assert re.search(r"^Uid:\t65534\t65534", status, re.M)


def test_reload_switches_it_on_and_off(net, daemon):  # noqa: F811
    d = daemon(net.edge, conf("ipip", 4).replace(" via tunnel", ""))
    good_checks(d, 3)
    run_cli(net.webs[0], "detach", "eth0")
    net.xdp_pass(net.webs[0], "eth0")
    d.write(conf("ipip", 4))
    run_cli(net.edge, "-s", d.sock, "reload")
    d.wait_server("through", "web1", "DOWN")
    d.write(conf("ipip", 4).replace(" via tunnel", ""))
    run_cli(net.edge, "-s", d.sock, "reload")
    d.wait_server("through", "web1", "UP")


def test_configuration_is_checked(net):  # noqa: F811
    cfg = net.dir / "bad.cfg"
    cfg.write_text(conf("ipip", 4).replace("{sock}", "/x").replace("{{", "{").replace("10.10.0.11", "[fd00:10::11]"), encoding="utf-8")
    out = net.edge.run([HEADGATED, "-c", "-f", cfg], check=False)
    assert out.returncode == 1 and "'via tunnel' of server 'web1' needs a 'bind' with a service address of its own family (IPv6)" in out.stderr + out.stdout
