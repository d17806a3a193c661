# SPDX-License-Identifier: BSD-2-Clause
"""SYN cookies of services whose servers are elsewhere: the balancer answers, the agent on the server takes the connection."""

import json
import re
import secrets

import pytest
from conftest import BUILD, connect, read_response, run_cli, wait_for
from test_l4_forward import VIP, VIP6, get, net  # noqa: F401

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
L4 = """
global
    stats socket {sock} level admin
    xdp interface eth0
    xdp guard syn-cookies MODE keys KEYS

listen web
    mode l4
    bind tcp@192.0.2.20:80
    bind tcp@[2001:db8::20]:80
    forward METHOD
    maglev-table-size 13
    xdp guard syn-cookies
    server web1 10.10.0.11
    server web2 10.10.0.12
    server web3 10.10.0.13
"""


def write_keys(net, name, *keys):  # noqa: F811
    path = net.dir / name
    path.write_text("# of the fleet\n" + "".join(f"{k}\n" for k in keys), encoding="ascii")
    return path


def attach(net, keys):  # noqa: F811
    """The agents once more, as on every server of the fleet."""
    for i, web in enumerate(net.webs, 11):
        run_cli(web, "attach", "eth0", "--role", "backend", "--address", f"10.10.0.{i}", "--address", f"fd00:10::{i}",
                *(["--syn-cookie-keys", keys] if keys else []))


def start(net, daemon, mode, method, keys):  # noqa: F811
    def conf(keys):
        return L4.replace("MODE", mode).replace("METHOD", method).replace("KEYS", str(keys))

    d = daemon(net.edge, conf(keys))
    d.with_keys = lambda keys: (d.write(conf(keys)), d.cli("reload", timeout=20))
    wait_for("next hops", lambda: run_cli(net.edge, "-s", d.sock, "show", "l4").stdout.count(" resolved ") == 3)
    return d


def service(d, addr=VIP):
    rows = json.loads(d.cli("show services json"))
    return next(r for r in rows if r["service"] == f"tcp@{'[' + addr + ']' if ':' in addr else addr}:80")


def events(net):  # noqa: F811
    """Of all agents together."""
    shown = [json.loads(run_cli(w, "show", "agent", "--json").stdout)["agent"]["events"] for w in net.webs]
    return {name: sum(e[name] for e in shown) for name in shown[0]}


def ask(s):
    s.sendall(REQUEST)
    return read_response(s)[2].decode().split()[-1]


def sockets(host):
    return host.run("ss -tnioHO state established '( sport = :80 or dport = :80 )'").stdout


@pytest.mark.parametrize("addr,method", [(VIP, "ipip"), (VIP6, "gue")])
def test_a_flood_reaches_no_server_and_nobody_suffers(net, daemon, addr, method):  # noqa: F811
    keys = write_keys(net, "keys", secrets.token_hex(32))
    attach(net, keys)
    d = start(net, daemon, "auto above 1k/s", method, keys)
    kept = [connect(net.client, addr, 80) for _ in range(6)]
    names = [ask(s) for s in kept]
    assert service(d, addr)["cookies_sent"] == 0 and events(net)["COOKIE_TAKEN"] == 0
    opened = [int(w.run("nstat -asz TcpExtTCPReqQFullDoCookies | awk 'END {print $2}'").stdout) for w in net.webs]
    mac = json.loads(net.edge.run("ip -j link show eth0").stdout)[0]["address"]
    flood = net.client.popen([BUILD / "e2e" / "synflood", "eth0", mac, addr, "80", "20000", "1.5"], log="flood.log")
    wait_for("cookies", lambda: service(d, addr)["syn_cookies"])
    url, asked = f"http://{'[' + addr + ']' if ':' in addr else addr}/", 0
    with connect(net.client, addr, 80) as s:
        name = ask(s)
        while flood.poll() is None or asked < 60:
            assert get(net.client, url, 20) <= {"web1", "web2", "web3"}
            asked += 20
        # What the client asked for, its server has, and with the same scale.
        assert ask(s) == name
        port = s.getsockname()[1]
        info = [next(x for x in sockets(h).split("\n") if f":{port} " in x)
                for h in (net.client, net.webs[int(name[-1]) - 1])]
        for text in info:
            assert re.search(r"\bts\b", text) and "sack" in text, text
        scales = [re.search(r"wscale:(\d+),(\d+)", x).groups() for x in info]
        assert scales[0] == scales[1][::-1] and scales[0][0] == "7", info
        assert f"mss:{1500 - 72 - (60 if ':' in addr else 40) - 12} " in info[0], info
    assert [ask(s) for s in kept] == names
    row = service(d, addr)
    assert row["cookies_sent"] > 5000, row
    assert row["forwarded"] < row["cookies_sent"], row
    agents = events(net)
    assert agents["COOKIE_TAKEN"] > asked / 2 and agents["COOKIE_LOST"] == 0, agents
    now = [int(w.run("nstat -asz TcpExtTCPReqQFullDoCookies | awk 'END {print $2}'").stdout) for w in net.webs]
    assert now == opened, "no queue of a server was full"
    for s in kept:
        s.close()


def refused(net, d):  # noqa: F811
    """Answered with a cookie, and then nobody knows it."""
    sent = service(d)["cookies_sent"]
    try:
        with connect(net.client, VIP, 80, timeout=1) as s:
            ask(s)
    except (OSError, EOFError):
        return service(d)["cookies_sent"] > sent
    return False


def test_keys_are_changed_one_host_after_the_other(net, daemon):  # noqa: F811
    a, b, c, stray = (secrets.token_hex(32) for _ in range(4))
    first, second, third = (write_keys(net, n, *k) for n, k in (("1", [a, b]), ("2", [a, b, c]), ("3", [b, c])))
    attach(net, first)
    d = start(net, daemon, "on", "ipip", first)
    url = f"http://{VIP}/"

    def works():
        before = events(net)["COOKIE_TAKEN"]
        assert get(net.client, url, 6)
        # Packets are counted: another CPU may look at a client's data before its ACK has made the connection.
        assert before + 6 <= events(net)["COOKIE_TAKEN"] <= before + 12

    works()
    with connect(net.client, VIP, 80) as kept:
        ask(kept)
        for at, path in ((d.with_keys, second), (lambda k: attach(net, k), second), (d.with_keys, third),
                         (lambda k: attach(net, k), third)):
            at(path)
            works()
        # A host that was forgotten, and one that takes no part.
        attach(net, write_keys(net, "4", stray))
        assert refused(net, d)
        attach(net, None)
        assert refused(net, d)
        assert all("syn_take" not in w.run("tc filter show dev eth0 ingress").stdout for w in net.webs)
        ask(kept)
    web = net.webs[0]
    attach(net, third)
    assert "takes SYN cookies of the balancers (2 keys)" in run_cli(web, "show", "agent").stdout
    works()
    # Refused where it could not work, and what there is goes on. A kernel without types has none of Linux 6.9's.
    out = web.run(["unshare", "-m", "sh", "-c", f"mount --bind /dev/null /sys/kernel/btf/vmlinux && exec {BUILD / 'headgate'} "
                   f"attach eth0 --role backend --syn-cookie-keys {third}"], check=False)
    assert out.returncode == 1 and "--syn-cookie-keys needs Linux 6.9 or newer on this host" in out.stderr, out.stderr
    web.sysctl("net.ipv4.tcp_sack", 0)
    out = run_cli(web, "attach", "eth0", "--role", "backend", "--syn-cookie-keys", third, check=False)
    assert out.returncode == 1 and "needs the sysctl net.ipv4.tcp_sack = 1" in out.stderr, out.stderr
    web.sysctl("net.ipv4.tcp_sack", 1)
    out = run_cli(web, "attach", "eth0", "--role", "backend", "--syn-cookie-keys", write_keys(net, "5", a[1:]), check=False)
    assert out.returncode == 1 and ":2:64: a key of SYN cookies is 64 hexadecimal digits" in out.stderr, out.stderr
    works()
    # Taken away with all the rest.
    run_cli(web, "detach", "eth0")
    assert "syn_take" not in web.run("tc filter show dev eth0 ingress", check=False).stdout
