# SPDX-License-Identifier: BSD-2-Clause
"""Sizes: path MTU discovery through the balancer, datagrams in fragments, jumbo frames, and DNS, where both meet."""

import hashlib
import json
import random
import re
import socket
import struct
import threading
from functools import partial

import pytest
from conftest import SLOW, HostSocket, ScriptedServer, read_head, reply, run_cli, together, wait_for

VIP, VIP6 = "192.0.2.20", "2001:db8::20"

CONF = """
global
    stats socket {sock} level admin
    xdp interface eth0
    xdp interface eth1

listen all
    mode l4
    bind tcp@192.0.2.20:80
    bind tcp@[2001:db8::20]:80
    bind udp@192.0.2.20:53
    bind udp@[2001:db8::20]:53
    bind tcp@192.0.2.20:53
    bind tcp@[2001:db8::20]:53
@LINES@
"""


def conf(*lines):
    return CONF.replace("@LINES@", "\n".join("    " + line for line in lines))


def vip_of(six):
    return VIP6 if six else VIP


def shown(edge):
    return json.loads(run_cli(edge, "-s", edge.sock, "show", "l4", "json").stdout)


def event(edge, n):
    """A counter of enum hg_event, summed over CPUs."""
    rows = json.loads(edge.run("bpftool -j map dump pinned /sys/fs/bpf/headgate/xdp_verdicts").stdout)
    return sum(int(str(r["formatted"]["value"]["event"][n]), 0) for r in rows)


EVENT_ICMP_ERROR, EVENT_TOO_BIG_SENT = 9, 11


def network(lab, webs=1, front=1500, back=1500):
    """client — router — edge — switch — web1..: everything routed, answers straight through the edge's kernel."""
    client, router, edge = lab.host("client"), lab.host("router"), lab.host("edge")
    lab.cable(client, "eth0", router, "eth0", mtu=front)
    lab.cable(router, "eth1", edge, "eth0", mtu=front)
    lab.xdp_pass(router, "eth1")  # so that what the edge answers by XDP arrives
    switch = lab.switch()
    lab.plug(switch, edge, "eth1", mtu=back)
    switch.run(f"ip link set br0 mtu {back}")
    lab.xdp_pass(switch, "edge")
    for host, name, *addrs in ((client, "eth0", "10.1.0.2/24", "fd00:1::2/64"),
                               (router, "eth0", "10.1.0.1/24", "fd00:1::1/64"),
                               (router, "eth1", "10.3.0.1/24", "fd00:3::1/64"),
                               (edge, "eth0", "10.3.0.2/24", "fd00:3::2/64"),
                               (edge, "eth1", "10.2.0.1/24", "fd00:2::1/64")):
        host.addr(name, *addrs)
    for host, via4, via6 in ((client, "10.1.0.1", "fd00:1::1"), (router, "10.3.0.2", "fd00:3::2"),
                             (edge, "10.3.0.1", "fd00:3::1")):
        host.route("0.0.0.0/0", "via", via4)
        host.route("::/0", "via", via6)
    for host in (router, edge):
        host.sysctl("net.ipv4.ip_forward", 1)
        host.sysctl("net.ipv6.conf.all.forwarding", 1)
    lab.webs = []
    for n in range(1, webs + 1):
        web = lab.host(f"web{n}")
        lab.plug(switch, web, "eth0", mtu=back)
        web.addr("eth0", f"10.2.0.{10 + n}/24", f"fd00:2::{10 + n}/64")
        web.addr("lo", f"{VIP}/32", f"{VIP6}/128")
        # Room for tunnels in what arrives, not in what leaves.
        web.route("0.0.0.0/0", "via", "10.2.0.1", "mtu", min(front, back))
        web.route("::/0", "via", "fd00:2::1", "mtu", min(front, back))
        lab.webs.append(web)
    together(*(partial(run_cli, web, "attach", "eth0", "--role", "backend") for web in lab.webs))
    lab.client, lab.router, lab.edge = client, router, edge
    return lab


def start(daemon, edge, text):
    d = daemon(edge, text)
    edge.sock = d.sock
    wait_for("next hops", lambda: all(b["neighbour"] == "resolved" for b in shown(edge)["backends"]), timeout=10 * SLOW)
    return d


def upload_server(web, vip):
    """Answers a PUT with the hash of what came, and a GET with a million bytes."""
    big = random.Random(7).randbytes(1_000_000)

    def handle(server, c, n):
        head = read_head(c)
        end = head.index(b"\r\n\r\n") + 4
        if head.startswith(b"GET"):
            c.sendall(reply(big))
            return
        size = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])
        body = hashlib.sha256(head[end:])
        left = size - (len(head) - end)
        while left > 0 and (chunk := c.recv(65536)):
            body.update(chunk)
            left -= len(chunk)
        c.sendall(reply(body.hexdigest().encode()))

    ScriptedServer(web, vip, 80, handle)
    return hashlib.sha256(big).hexdigest()


def upload(lab, vip, size=5_000_000):
    data = random.Random(size).randbytes(size)
    path = lab.dir / "upload"
    path.write_bytes(data)
    out = lab.client.run(["curl", "-sS", "-g", "--max-time", "30", "-H", "Expect:", "-T", path,
                          f"http://{f'[{vip}]' if ':' in vip else vip}/"], timeout=60)
    assert out.stdout == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("six", [False, True], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("method,server,room", [("ipip", "10.2.0.11", 1480), ("ipip", "fd00:2::11", 1460),
                                                ("gue", "10.2.0.11", 1468), ("gue", "fd00:2::11", 1448)])
def test_tcp_learns_what_fits_the_tunnel(lab, daemon, six, method, server, room):
    """1,500 bytes everywhere: the service address tells the client what fits, and 5 MB arrive whole."""
    network(lab)
    start(daemon, lab.edge, conf(f"forward {method}", f"server web1 {server}"))
    vip = vip_of(six)
    upload_server(lab.webs[0], vip)
    dump = lab.client.popen(["tcpdump", "-lnvi", "eth0", "icmp6 and ip6[40] == 2" if six else "icmp[0] == 3"],
                            log="icmp.log")
    wait_for("tcpdump", lambda: "listening on" in (lab.dir / "icmp.log").read_text(errors="replace"))
    upload(lab, vip)
    told = rf"{re.escape(vip)} > \S+: .*(mtu {room}\b)"
    wait_for("the message", lambda: re.search(told, (lab.dir / "icmp.log").read_text(errors="replace")), timeout=5 * SLOW)
    lab.client.stop(dump)
    assert f"mtu {room}" in lab.client.run(["ip", "route", "get", vip]).stdout
    assert event(lab.edge, EVENT_TOO_BIG_SENT) > 0


@pytest.mark.parametrize("six", [False, True], ids=["ipv4", "ipv6"])
def test_errors_from_a_router_reach_the_flows_backend(lab, daemon, six):
    """A narrow link towards the client: the router's message goes to the service address, and on to the server."""
    network(lab, webs=3)
    servers = [f"server web{n} 10.2.0.{10 + n}" for n in (1, 2, 3)]
    start(daemon, lab.edge, conf("forward ipip", *servers))
    lab.router.run("ip link set eth0 mtu 1400")
    vip = vip_of(six)
    for web in lab.webs:
        want = upload_server(web, vip)
    for n in range(1, 6):
        out = lab.client.run(f"curl -sS -g --max-time 20 http://{f'[{vip}]' if six else vip}/ | sha256sum", timeout=40)
        assert out.stdout.split()[0] == want
    assert event(lab.edge, EVENT_ICMP_ERROR) > 0
    learnt = [w.run(["ip", "route", "get", "fd00:1::2" if six else "10.1.0.2"]).stdout for w in lab.webs]
    assert any("mtu 1400" in text for text in learnt), learnt


# --- datagrams -----------------------------------------------------------------------------------------

class Hasher(threading.Thread):
    """Answers a datagram with its own name, the size and the hash of what came."""

    def __init__(self, host, vip):
        super().__init__(daemon=True)
        self.host, self.sock = host, HostSocket.make(host, socket.AF_INET6 if ":" in vip else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((vip, 53))
        self.start()

    def run(self):
        while True:
            try:
                data, peer = self.sock.recvfrom(65536)
                self.sock.sendto(answer_of(data, self.host.name), peer)
            except OSError:
                return


def answer_of(data, name):
    return f"{name} {len(data)} {hashlib.sha256(data).hexdigest()}".encode()


def ask(sock, data, tries):
    """How many times it had to be sent until somebody had it whole; and who."""
    for n in range(1, tries + 1):
        try:
            sock.send(data)
            got = sock.recv(2000).decode()
        except (TimeoutError, OSError):
            continue
        name = got.split()[0]
        assert got.encode() == answer_of(data, name)
        return n, name
    raise AssertionError(f"{len(data)} bytes never arrived")


def datagram_socket(client, vip, timeout=5.0):
    s = HostSocket.make(client, socket.AF_INET6 if ":" in vip else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(timeout * SLOW)
    s.connect((vip, 53))
    return s


@pytest.mark.parametrize("method", ["ipip", "gue", "l2"])
@pytest.mark.parametrize("back", [1500, 1600])
def test_large_datagrams_arrive_whole(lab, daemon, method, back):
    """4,000 and 8,000 bytes in fragments, at one of two servers; without room for the tunnel the first is lost."""
    network(lab, webs=2, back=back)
    start(daemon, lab.edge, conf(f"forward {method}", "server web1 10.2.0.11", "server web2 10.2.0.12"))
    for six in (False, True):
        vip, names = vip_of(six), set()
        for web in lab.webs:
            Hasher(web, vip)
        for n in range(24):
            may_be_lost = n == 0 and back == 1500 and method != "l2"
            with datagram_socket(lab.client, vip, 1.0 if may_be_lost else 5.0) as s:
                size = 8000 if n % 2 else 4000
                data = random.Random(n).randbytes(size)
                tries, name = ask(s, data, 4)
                names.add(name)
                assert tries == 1 or may_be_lost, (n, tries)
                # The same flow, the same server, however large.
                assert ask(s, b"small", 1)[1] == name
        assert names == {"web1", "web2"}
    drops = {k: v for k, v in shown(lab.edge)["drops"].items() if v}
    assert set(drops) <= ({"TOO_BIG", "FRAGMENT"} if back == 1500 and method != "l2" else set()), drops


def test_fragments_out_of_order(lab, daemon):
    """The first fragment comes first, the others as they like; when it does not, that datagram is lost and no other."""
    network(lab, back=1600)
    start(daemon, lab.edge, conf("forward ipip", "server web1 10.2.0.11"))
    Hasher(lab.webs[0], VIP)
    raw = HostSocket.make(lab.client, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    data = random.Random(3).randbytes(5000)
    with HostSocket.make(lab.client, socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5.0 * SLOW)
        s.bind(("10.1.0.2", 40000))
        packet = struct.pack("!HHHH", 40000, 53, 8 + len(data), 0) + data
        pieces = [(o, packet[o:o + 1480]) for o in range(0, len(packet), 1480)]

        def send(order, ident):
            for i in order:
                off, piece = pieces[i]
                more = 0x2000 if i < len(pieces) - 1 else 0
                head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, ident, more | off // 8, 64, 17, 0,
                                   socket.inet_aton("10.1.0.2"), socket.inet_aton(VIP))
                raw.sendto(head + piece, (VIP, 0))

        for ident, order in enumerate([(0, 1, 2, 3), (0, 3, 2, 1), (0, 2, 1, 3), (0, 3, 1, 2)], 1000):
            send(order, ident)
            assert s.recv(2000) == answer_of(data, "web1"), order
        send((1, 0, 2, 3), 2000)
        s.settimeout(0.5 * SLOW)
        with pytest.raises(TimeoutError):
            s.recv(2000)
        s.settimeout(5.0 * SLOW)
        send((0, 1, 2, 3), 2001)
        assert s.recv(2000) == answer_of(data, "web1")


# --- jumbo frames ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("method", ["ipip", "gue", "l2"])
def test_jumbo_frames(lab, daemon, method):
    """9,000 bytes: the programs attach in native mode, and frames of several pages go both ways unharmed."""
    network(lab, front=9000, back=9100)
    d = start(daemon, lab.edge, conf(f"forward {method}", "server web1 10.2.0.11"))
    attached = json.loads(run_cli(lab.edge, "status", "--json").stdout)["interfaces"]
    assert [i["mode"] for i in attached] == ["native", "native"], d.output()
    for six in (False, True):
        vip = vip_of(six)
        want = upload_server(lab.webs[0], vip)
        upload(lab, vip)
        out = lab.client.run(f"curl -sS -g --max-time 20 http://{f'[{vip}]' if six else vip}/ | sha256sum", timeout=40)
        assert out.stdout.split()[0] == want
        Hasher(lab.webs[0], vip)
        with datagram_socket(lab.client, vip) as s:
            for size in (3000, 3600, 8000, 8900, 30000):
                assert ask(s, random.Random(size).randbytes(size), 1)[0] == 1
    row = next(s for s in shown(lab.edge)["services"] if s["service"] == f"tcp@{VIP}:80")
    assert row["bytes"] / row["packets"] > 4096 and row["dropped"] == 0, row


# --- DNS ---------------------------------------------------------------------------------------------------

def test_dns(lab, daemon):
    """A real name server behind `affinity none`: by UDP every question may go elsewhere; TCP; both families."""
    network(lab, webs=2, back=1600)
    start(daemon, lab.edge, conf("forward ipip", "affinity none", "option tcp-check",
                                 "server web1 10.2.0.11 check port 53 inter 200",
                                 "server web2 10.2.0.12 check port 53 inter 200"))
    for web in lab.webs:
        long = ["--txt-record=long.test," + ",".join(f"{c * 240}" for c in "abcdefgh")]
        web.popen(["dnsmasq", "-k", "-C", "/dev/null", "-h", "-R", "--user=root", "--pid-file", "--edns-packet-max=4096",
                   f"--txt-record=who.test,{web.name}", "--host-record=a.test,192.0.2.99,2001:db8::99", *long],
                  log=f"{web.name}.dns.log")
        wait_for("dnsmasq", lambda w=web: ":53 " in w.run(["ss", "-ltn"]).stdout)
    for name in ("web1", "web2"):
        lab.daemons[0].wait_server("all", name, "UP")

    def dig(vip, *args):
        return lab.client.run(["dig", f"@{vip}", "+short", "+tries=1", "+timeout=3", *args]).stdout.split("\n")[:-1]

    for vip in (VIP, VIP6):
        for tcp in ([], ["+tcp"]):
            assert dig(vip, "a.test", "A", *tcp) == ["192.0.2.99"]
            assert dig(vip, "a.test", "AAAA", *tcp) == ["2001:db8::99"]
            assert {dig(vip, "who.test", "TXT", *tcp)[0] for _ in range(24)} == {'"web1"', '"web2"'}
        # Too long for 512 bytes: by TCP as the answer says, or in fragments with EDNS.
        for args in (["+noedns"], ["+bufsize=4096", "+ignore"]):
            assert [len(x) for x in dig(vip, "long.test", "TXT", *args)[0].split()] == [242] * 8
