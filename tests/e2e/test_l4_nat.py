# SPDX-License-Identifier: BSD-2-Clause
"""NAT in the kernel on a real network: servers that know nothing of it, clients behind another link."""

import csv
import json
import os
import random
import re
import signal
import socket
import struct
import threading
import time

import pytest
from conftest import BUILD, SLOW, connect, read_response, run_cli, start_nginx, wait_for

VIP, VIP6 = "192.0.2.20", "2001:db8:20::20"

NAT = """
global
    stats socket {sock} level admin
    xdp interface eth0
    xdp interface eth1

defaults
    timeout connect 1s
    timeout client 30s
    timeout server 30s

listen web
    mode tcp
    forward nat
    bind 192.0.2.20:80
    server web1 10.2.0.11:8080
    server web2 10.2.0.12:8080

listen web6
    mode tcp
    forward nat
    bind [2001:db8:20::20]:80
    server web1 [fd00:2::11]:8080
    server web2 [fd00:2::12]:8080

listen echo
    mode l4
    forward nat
    bind udp@192.0.2.20:53
    bind tcp@192.0.2.20:5201
    bind udp@192.0.2.20:5201
    server web1 10.2.0.11

listen echo6
    mode l4
    forward nat
    bind udp@[2001:db8:20::20]:53
    server web1 fd00:2::11
"""


@pytest.fixture
def net(lab):
    """client -- edge -- web1, web2. Two links, so packets are redirected; no service address on the servers."""
    client, edge, switch = lab.host("client"), lab.host("edge"), lab.switch()
    webs = [lab.host(f"web{i}") for i in (1, 2)]
    lab.cable(client, "eth0", edge, "eth0")
    lab.plug(switch, edge, "eth1")
    for w in webs:
        lab.plug(switch, w)
    lab.xdp_pass(client, "eth0")
    lab.xdp_pass(switch, "edge")
    client.addr("eth0", "10.1.0.2/24", "fd00:1::2/64")
    edge.addr("eth0", "10.1.0.1/24", "fd00:1::1/64")
    edge.addr("eth1", "10.2.0.1/24", "fd00:2::1/64")
    client.route("192.0.2.0/24", "via", "10.1.0.1")
    client.route("2001:db8:20::/64", "via", "fd00:1::1")
    for i, w in enumerate(webs, 11):
        w.addr("eth0", f"10.2.0.{i}/24", f"fd00:2::{i}/64")
        w.nginx = start_nginx(w, ["8080", "[::]:8080"])
    lab.client, lab.edge, lab.webs = client, edge, webs
    return lab


def l4(edge):
    out = edge.run([BUILD / "headgate", "-s", edge.sock, "show", "l4", "--json"], check=False).stdout
    return json.loads(out) if out.startswith("{") else {"services": [], "backends": [], "drops": {}}


def nat_table(edge):
    return json.loads(run_cli(edge, "-s", edge.sock, "show", "nat", "--json").stdout)


def all_resolved(edge, n):
    backends = l4(edge)["backends"]
    return len(backends) == n and all(b["neighbour"] == "resolved" for b in backends)


def start(net, daemon, text, n):
    d = daemon(net.edge, text)
    net.edge.sock = d.sock
    wait_for("next hops", lambda: all_resolved(net.edge, n), timeout=20 * SLOW)
    net.daemon = d
    return net


@pytest.fixture
def nat(net, daemon):
    return start(net, daemon, NAT, 6)


def conns(edge, service=None):
    """
    Connections now by the servers' and by the services' counts, which must agree. The one is read after the other, and a
    connection may begin or end in between: read again then.
    """
    def read():
        shown = l4(edge)
        backends = sum(b["conns"] for b in shown["backends"] if service in (None, b["service"]))
        services = sum(s["conns"] for s in shown["services"] if service in (None, s["name"]))
        return backends == services and (backends,)

    return wait_for("counts that agree", read)[0]


def drops(edge):
    return {k: v for k, v in l4(edge)["drops"].items() if v}


def get(client, url, n):
    out = client.run(f"for i in $(seq {n}); do curl -sS -g --max-time 5 '{url}' || exit 1; done").stdout
    lines = out.split("\n")[:-1]
    assert len(lines) == n
    return {line.removeprefix("hello from ") for line in lines}


def test_connections_of_both_families(nat):
    """curl and nginx, every connection whole; afterwards nothing is counted as open."""
    assert get(nat.client, f"http://{VIP}/", 40) == {"web1", "web2"}
    assert get(nat.client, f"http://[{VIP6}]/", 40) == {"web1", "web2"}
    wait_for("the counts back at zero", lambda: conns(nat.edge) == 0)
    table = nat_table(nat.edge)
    assert table["states"]["closed"] == 80 and table["used"] == 80
    one = table["connections"][0]
    assert one["client"].startswith(("10.1.0.2:", "[fd00:1::2]:")) and one["server"] in ("web1", "web2")
    assert re.fullmatch(r"(10\.2\.0\.1|\[fd00:2::1\]):(\d+)", one["edge"])
    assert 10000 <= int(one["edge"].rsplit(":", 1)[1]) <= 32767
    assert drops(nat.edge) == {}


LOGGED = NAT.replace("    forward nat\n", "    forward nat\n    nat log\n    log stdout format raw daemon\n", 1)


def test_log(net, daemon):
    """Who was behind an address and port of ours: a line at the beginning, one at the end; other sections write none."""
    nat = start(net, daemon, LOGGED, 6)

    def lines(what):
        return re.findall(rf"nat {what} proto=tcp client=10\.1\.0\.2:(\d+) service=192\.0\.2\.20:80 "
                          r"from=10\.2\.0\.1:(\d+) to=10\.2\.0\.1[12]:8080 web/web[12](.*)", nat.daemon.output())

    wait_for("lines", lambda: get(nat.client, f"http://{VIP}/", 1) and lines("begin"))
    s = connect(nat.client, VIP, 80)
    mine = (str(s.getsockname()[1]), next(c["edge"].rsplit(":", 1)[1] for c in nat_table(nat.edge)["connections"]
                                          if c["client"] == f"10.1.0.2:{s.getsockname()[1]}"))
    wait_for("the beginning", lambda: (*mine, "") in lines("begin"))
    assert mine not in [x[:2] for x in lines("end")]
    s.close()
    wait_for("the end", lambda: (*mine, " last=closed") in lines("end"))
    assert get(nat.client, f"http://[{VIP6}]/", 1)
    begun = len(lines("begin"))
    wait_for("another look", lambda: get(nat.client, f"http://{VIP}/", 1) and len(lines("begin")) > begun)
    assert "web6" not in "".join(x for x in nat.daemon.output().splitlines() if "nat begin" in x)


def test_large_transfers_and_their_sums(nat, tmp_path):
    """Megabytes in both directions; TCP would notice any wrong sum as loss, and the bytes are compared."""
    web = nat.webs[0]
    files = nat.dir / "files"
    files.mkdir(exist_ok=True)
    blob = bytes(range(256)) * 4096 * 8
    (files / "big").write_bytes(blob)
    for url in (f"http://{VIP}/file/big", f"http://[{VIP6}]/file/big"):
        out = nat.client.run(f"curl -sS -g --max-time 60 '{url}' | sha256sum").stdout.split()[0]
        import hashlib
        assert out == hashlib.sha256(blob).hexdigest()
    retrans = web.run("nstat -az TcpRetransSegs TcpInCsumErrors").stdout
    assert re.search(r"TcpInCsumErrors\s+0\s", retrans), retrans


def test_iperf3(nat):
    server = nat.webs[0].popen(["iperf3", "-s", "-p", "5201"], log="iperf3.log")
    try:
        def ran(args):
            r = nat.client.run(f"iperf3 -J -c {VIP} -p 5201 -t 1 {args}", check=False)
            if r.returncode != 0:
                return None
            result = json.loads(r.stdout)
            return result if "error" not in result else None

        tcp = wait_for("iperf3", lambda: ran(""), timeout=20 * SLOW)
        assert tcp["end"]["sum_received"]["bytes"] > 1_000_000
        back = wait_for("iperf3 -R", lambda: ran("-R"), timeout=20 * SLOW)
        assert back["end"]["sum_received"]["bytes"] > 1_000_000
        udp = wait_for("iperf3 -u", lambda: ran("-u -b 10M"), timeout=20 * SLOW)
        assert udp["end"]["sum"]["packets"] > 100 and udp["end"]["sum"]["lost_percent"] < 20
    finally:
        nat.webs[0].stop(server)


UDP_SERVER = """
import socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(('::', 53))
while True:
    data, peer = s.recvfrom(65535)
    s.sendto(data[::-1] + b' ' + peer[0].encode(), peer)
"""

UDP_CLIENT = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.connect((sys.argv[1], 53))
for i in range(20):
    s.send(b'ping%d' % i)
    print(s.recv(4096).decode())
"""


def test_udp_of_both_families(nat):
    server = nat.webs[0].popen(["/usr/bin/python3", "-c", UDP_SERVER], log="udp.log")
    try:
        wait_for("the server", lambda: ":53 " in nat.webs[0].run(["ss", "-lun"]).stdout, timeout=20 * SLOW)
        for vip, edge in ((VIP, "::ffff:10.2.0.1"), (VIP6, "fd00:2::1")):
            out = nat.client.run(["/usr/bin/python3", "-c", UDP_CLIENT, vip]).stdout.splitlines()
            assert out == [f"ping{i}"[::-1] + " " + edge for i in range(20)]
        states = [c["state"] for c in nat_table(nat.edge)["connections"] if c["proto"] == "udp"]
        assert states == ["udp", "udp"]
    finally:
        nat.webs[0].stop(server)
    # Nobody listens any more: the port-unreachable comes through to the client's socket.
    refused = nat.client.run(["/usr/bin/python3", "-c", UDP_CLIENT, VIP], check=False)
    assert "ConnectionRefusedError" in refused.stderr


BIG_CLIENT = """
import os, socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.connect((sys.argv[1], 53))
for size in (1400, 1600, 3000, 9000, 30000):
    data = os.urandom(size)
    for attempt in range(3):
        try:
            s.send(data)
            answer = s.recv(65535)
            break
        except TimeoutError:
            continue
    assert answer.startswith(data[::-1] + b' '), size
    print(size, attempt)
"""


def test_datagrams_in_fragments(nat):
    """Up to 30,000 bytes there and back, in some twenty fragments each way, over both families."""
    server = nat.webs[0].popen(["/usr/bin/python3", "-c", UDP_SERVER], log="udp.log")
    try:
        wait_for("the server", lambda: ":53 " in nat.webs[0].run(["ss", "-lun"]).stdout, timeout=20 * SLOW)
        for vip in (VIP, VIP6):
            assert len(nat.client.run(["/usr/bin/python3", "-c", BIG_CLIENT, vip]).stdout.splitlines()) == 5
        events = json.loads(run_cli(nat.edge, "status", "--json").stdout)["events"]
        assert events["FRAG_FOLLOWED"] > 100, events
        assert "FRAGMENT" not in drops(nat.edge)
    finally:
        nat.webs[0].stop(server)


@pytest.mark.parametrize("vip", [VIP, f"[{VIP6}]"])
def test_path_mtu_towards_the_client(nat, vip):
    """The edge's link to the client is narrower than the one to the servers: they are told, and send less."""
    nat.client.run("ip link set eth0 mtu 1400")
    nat.edge.run("ip link set eth0 mtu 1400")
    # The client announces its segment size by its MTU; a larger one makes the servers send what does not fit.
    nat.client.run("ip route replace 192.0.2.0/24 via 10.1.0.1 advmss 1460")
    nat.client.run("ip -6 route replace 2001:db8:20::/64 via fd00:1::1 advmss 1440")
    files = nat.dir / "files"
    files.mkdir(exist_ok=True)
    (files / "big").write_bytes(b"x" * 300_000)
    out = nat.client.run(f"curl -sS -g --max-time 20 'http://{vip}/file/big' | wc -c").stdout
    assert int(out) == 300_000
    cached = "".join(w.run("ip route get 10.2.0.1; ip -6 route get fd00:2::1").stdout for w in nat.webs)
    assert "mtu 1400" in cached, cached


def test_path_mtu_towards_the_server(nat):
    """A route to the servers that carries less: the client is told and sends less."""
    nat.edge.run("ip route replace 10.2.0.0/24 dev eth1 src 10.2.0.1 mtu 1300")
    wait_for("the route's MTU", lambda: all_resolved(nat.edge, 6))
    time.sleep(1.5)
    out = nat.client.run(f"head -c 300000 /dev/zero | curl -sS --max-time 20 --data-binary @- http://{VIP}/ -o /dev/null"
                         " -w '%{http_code}'").stdout
    assert out in ("200", "405", "413")
    assert "mtu 1300" in nat.client.run(f"ip route get {VIP}").stdout


MAXCONN = NAT.replace("server web1 10.2.0.11:8080\n    server web2 10.2.0.12:8080", "server web1 10.2.0.11:8080 maxconn 3")


def test_maxconn(net, daemon):
    """The fourth connection has to wait until one of three is over; the client's next SYN finds the place."""
    nat = start(net, daemon, MAXCONN, 5)
    held = [connect(nat.client, VIP, 80) for _ in range(3)]
    wait_for("three connections", lambda: conns(nat.edge, "web") == 3)
    with pytest.raises(OSError):
        connect(nat.client, VIP, 80, timeout=1.5)
    assert drops(nat.edge)["MAXCONN"] >= 1
    assert conns(nat.edge, "web") == 3
    result = []
    waiter = threading.Thread(target=lambda: result.append(connect(nat.client, VIP, 80, timeout=15)))
    waiter.start()
    time.sleep(0.3)
    held.pop().close()
    waiter.join(20)
    assert len(result) == 1
    for s in held + result:
        s.close()
    wait_for("the counts back at zero", lambda: conns(nat.edge) == 0, timeout=20)


def ask(s):
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    status, _, body = read_response(s)
    assert status == 200
    return body.decode().strip().removeprefix("hello from ")


def test_reload_kill_and_restart_with_connections_open(nat):
    """Connections live in the kernel: reload, another set of servers, SIGKILL, stop and start."""
    d, edge = nat.daemon, nat.edge
    held = [connect(nat.client, VIP, 80) for _ in range(8)]
    where = [ask(s) for s in held]
    assert set(where) == {"web1", "web2"}
    assert "reloaded" in run_cli(edge, "-s", d.sock, "reload").stdout
    assert [ask(s) for s in held] == where
    # web2 leaves the configuration: what is there stays there, what is new does not go there.
    d.write(NAT.replace("    server web2 10.2.0.12:8080\n", ""))
    assert "reloaded" in run_cli(edge, "-s", d.sock, "reload").stdout
    wait_for("web2 gone", lambda: [b["state"] for b in l4(edge)["backends"]
                                   if (b["service"], b["server"]) == ("web", "web2")] == ["draining"])
    assert [ask(s) for s in held] == where
    assert get(nat.client, f"http://{VIP}/", 20) == {"web1"}
    d.signal(signal.SIGKILL)
    d.proc.wait()
    assert [ask(s) for s in held] == where
    assert get(nat.client, f"http://{VIP}/", 5) == {"web1"}
    d.start()
    assert [ask(s) for s in held] == where
    wait_for("counts after adoption", lambda: conns(edge, None) == 8)
    assert d.stop() == 0
    assert [ask(s) for s in held] == where
    d.start()
    assert [ask(s) for s in held] == where
    assert len([c for c in nat_table(edge)["connections"] if c["state"] == "established"]) == 8
    for s in held:
        s.close()
    wait_for("the counts back at zero", lambda: conns(edge) == 0, timeout=20)
    wait_for("no trace of web2", lambda: not [b for b in l4(edge)["backends"] if "10.2.0.12" in b["addr"]], timeout=20)
    assert "NO_NEIGHBOUR" not in drops(edge)


def test_silent_connections_end(net, daemon):
    """A client that vanishes: its connection is ended after the timeout, and the counts say so."""
    text = NAT.replace("timeout client 30s", "timeout client 3s").replace("timeout server 30s", "timeout server 3s")
    nat = start(net, daemon, text, 6)
    s = connect(nat.client, VIP, 80)
    assert ask(s) in ("web1", "web2")
    assert conns(nat.edge, "web") == 1
    wait_for("the end of the silent connection", lambda: conns(nat.edge, "web") == 0, timeout=40)
    assert nat_table(nat.edge)["ended"] >= 1
    # Its packets are no beginning: dropped by name.
    s.settimeout(1)
    with pytest.raises((OSError, socket.timeout, EOFError)):
        ask(s)
    assert drops(nat.edge)["NAT_UNKNOWN"] >= 1
    s.close()


def test_the_first_nat_section_needs_a_restart(net, daemon):
    plain = NAT.split("listen web\n")[0] + "listen a\n    mode l4\n    forward ipip\n    bind 192.0.2.20:80\n    server web1 10.2.0.11\n"
    start(net, daemon, plain, 1)
    net.daemon.write(NAT)
    out = net.daemon.cli("reload")
    assert "the first 'forward nat' was added" in out and "restart" in out
    assert [s["mode"] for s in l4(net.edge)["services"]] == ["ipip"]


BOTH = """
global
    stats socket {sock} level admin
    xdp interface eth0
    xdp interface eth1

defaults
    timeout connect 1s
    timeout client 30s
    timeout server 30s
    timeout queue 20s

listen web
    mode tcp
    forward nat
    bind 192.0.2.20:80
    server web1 10.2.0.11:8080 maxconn 4

listen relay
    mode tcp
    bind 10.1.0.1:81
    server same 10.2.0.11:8080 maxconn 3
"""


def both(edge):
    """Connections of NAT and of the L7 tier at the server, as the map has them."""
    dump = json.loads(edge.run("bpftool -j map dump pinned /sys/fs/bpf/headgate/live_backends").stdout)
    (row,) = [v for v in (r["formatted"]["value"] for r in dump) if v["limit"]]
    parts = {name: int(n, 16) for name, n in row[""][""].items()}
    return parts["xdp"], parts["l7_a"] + parts["l7_b"]


def test_maxconn_of_both_tiers(net, daemon):
    """One server behind NAT and behind the L7 tier: together they have its maxconn, also when workers are killed."""
    d = daemon(net.edge, BOTH, args=["-W"])
    net.edge.sock = d.sock
    wait_for("next hops", lambda: all_resolved(net.edge, 1), timeout=20 * SLOW)
    held = [connect(net.client, VIP, 80) for _ in range(2)]
    relayed = connect(net.client, "10.1.0.1", 81)
    assert ask(relayed) == "web1"
    wait_for("three places", lambda: both(net.edge) == (2, 1))
    row = l4(net.edge)["backends"][0]
    assert (row["conns"], row["l7_conns"], row["maxconn"]) == (3, 1, 3)
    with pytest.raises(OSError):
        connect(net.client, VIP, 80, timeout=1.2)
    assert drops(net.edge)["MAXCONN"] >= 1
    # The L7 tier's next waits; a place of NAT's that comes free is enough.
    waiting = connect(net.client, "10.1.0.1", 81)
    waiting.settimeout(0.5)
    waiting.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    with pytest.raises(TimeoutError):
        waiting.recv(1)
    held.pop().close()
    waiting.settimeout(10 * SLOW)
    status, _, body = read_response(waiting)
    assert (status, body.decode().strip()) == (200, "hello from web1")
    assert both(net.edge) == (1, 2)
    # And the other way round.
    relayed.close()
    wait_for("two places", lambda: both(net.edge) == (1, 1))
    held.append(connect(net.client, VIP, 80))
    for worker in net.edge.run(["pgrep", "-P", str(d.proc.pid)]).stdout.split():
        os.kill(int(worker), signal.SIGKILL)
    wait_for("a new worker process", lambda: "Name:" in d.cli("show info", check=False), timeout=20 * SLOW)
    wait_for("the dead worker's share to be gone", lambda: both(net.edge) == (2, 0))
    assert [ask(s) for s in held] == ["web1"] * 2
    relayed = connect(net.client, "10.1.0.1", 81)
    assert ask(relayed) == "web1"
    assert both(net.edge) == (2, 1)
    for s in (*held, relayed, waiting):
        s.close()
    wait_for("all given back", lambda: both(net.edge) == (0, 0), timeout=20 * SLOW)


COUNTED = ("syn-sent", "syn-received", "established", "client-closed", "server-closed", "udp-sent", "udp")


def truth(edge, d):
    """What the table of connections and the workers' own gauges say."""
    states = nat_table(edge)["states"]
    stat = next(csv.DictReader([row for row in d.cli("show stat").lstrip("# ").splitlines()
                                if row.startswith(("pxname", "relay,same"))]))
    return sum(states[s] for s in COUNTED), int(stat["scur"])


def test_random_ends_of_both_tiers(net, daemon):
    """Closes, resets, half-closes, silence, killed workers and daemons: the map says what there is, at the end nothing."""
    total = int(os.environ.get("HG_E2E_CONNS", "240"))
    rng = random.Random(11)
    text = BOTH.replace("timeout client 30s", "timeout client 2s").replace("timeout server 30s", "timeout server 2s")
    d = daemon(net.edge, text.replace("maxconn 4", "maxconn 100000").replace("maxconn 3", "maxconn 100000"), args=["-W"])
    net.edge.sock = d.sock
    wait_for("next hops", lambda: all_resolved(net.edge, 1), timeout=20 * SLOW)
    held = []
    for i in range(total):
        try:
            s = connect(net.client, *rng.choice([(VIP, 80), ("10.1.0.1", 81)]))
            what = rng.randrange(5)
            if what == 0:
                s.close()
            elif what == 1:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.close()
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
        if i % (total // 3) != total // 3 - 1:
            continue
        workers = [int(w) for w in net.edge.run(["pgrep", "-P", str(d.proc.pid)]).stdout.split()]
        if i > total // 2:
            d.signal(signal.SIGKILL)  # the master, which would replace the worker
            d.proc.wait()
        for w in workers:
            os.kill(w, signal.SIGKILL)
        if i > total // 2:
            wait_for("the end of the worker", lambda: not any(os.path.exists(f"/proc/{w}") for w in workers))  # noqa: B023
            d.start()
        wait_for("a new worker process", lambda: "Name:" in d.cli("show info", check=False), timeout=20 * SLOW)
        wait_for("the truth", lambda: both(net.edge) == truth(net.edge, d), timeout=20 * SLOW)
    for s in held:
        s.close()
    wait_for("nothing", lambda: both(net.edge) == truth(net.edge, d) == (0, 0), timeout=40 * SLOW)


def test_upgrade_with_connections_of_both_tiers(net, daemon):
    """The old process's streams count beside those of the new one; killed, they are taken out."""
    text = BOTH.replace("level admin", "level admin expose-fd listeners")
    old = daemon(net.edge, text)
    net.edge.sock = old.sock
    wait_for("next hops", lambda: all_resolved(net.edge, 1), timeout=20 * SLOW)
    nat, first = connect(net.client, VIP, 80), connect(net.client, "10.1.0.1", 81)
    assert (ask(nat), ask(first)) == ("web1", "web1")
    new = daemon(net.edge, text, args=["-x", str(old.sock), "-sf", str(old.proc.pid)])
    net.edge.sock = new.sock
    second = connect(net.client, "10.1.0.1", 81)
    assert (ask(first), ask(second)) == ("web1", "web1")
    assert both(net.edge) == (1, 2)
    with pytest.raises(OSError):
        connect(net.client, VIP, 80, timeout=1.2)
    old.signal(signal.SIGKILL)
    old.proc.wait()
    old.proc = None
    wait_for("the new process to look", lambda: both(net.edge) == (1, 1))
    assert (ask(nat), ask(second)) == ("web1", "web1")
    for s in (nat, first, second):
        s.close()
    wait_for("all given back", lambda: both(net.edge) == (0, 0), timeout=20 * SLOW)
