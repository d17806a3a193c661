# SPDX-License-Identifier: BSD-2-Clause
"""SYN cookies in XDP: what connections through them have, floods with and without them, reloads."""

import json
import re
import secrets
import socket
import struct
import time

import pytest
from conftest import (BUILD, SLOW, HostSocket, ScriptedServer, connect, http_status, keepalive_server, raw, run_cli,
                      wait_addresses, wait_for)

EDGE, EDGE6, CLIENT, CLIENT6 = "10.30.0.1", "fd00:30::1", "10.30.0.2", "fd00:30::2"
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
CONF = """
global
    xdp interface eth0 mode native
    {extra}

defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 2s

listen web
    bind 10.30.0.1:80 {bind}
    bind [fd00:30::1]:80 {bind}
    server s1 127.0.0.1:9001

frontend metrics
    bind 127.0.0.1:8404
    http-request use-service prometheus-exporter if { path /metrics }
"""


def conf(extra="", bind=""):
    return CONF.replace("{extra}", extra).replace("{bind}", bind)


@pytest.fixture
def net(lab):
    """A client, from whose side forged packets come too, and the edge."""
    client, edge = lab.host("client"), lab.host("edge")
    lab.cable(client, "eth0", edge, "eth0")
    lab.xdp_pass(client, "eth0")
    client.addr("eth0", f"{CLIENT}/24", f"{CLIENT6}/64")
    edge.addr("eth0", f"{EDGE}/24", f"{EDGE6}/64")
    # Answers to forged addresses go out and end with the client, as they would end with strangers.
    edge.route("default", "via", CLIENT)
    edge.route("default", "via", CLIENT6)
    lab.client, lab.edge = client, edge
    lab.origin = ScriptedServer(edge, "127.0.0.1", 9001, keepalive_server())
    lab.mac = json.loads(edge.run("ip -j link show eth0").stdout)[0]["address"]
    wait_addresses(edge, client)
    yield lab
    lab.origin.close()


def get(host, addr=EDGE, timeout=5.0):
    return http_status(host, addr, timeout)


def service(d, addr=EDGE):
    rows = json.loads(d.cli("show services json"))
    return next(r for r in rows if r["service"] == f"tcp@{'[' + addr + ']' if ':' in addr else addr}:80")


def flood(net, rate, seconds, addr=EDGE, *options):
    return net.client.popen([BUILD / "e2e" / "synflood", *options, "eth0", net.mac, addr, "80", str(rate),
                             str(seconds)], log="flood.log")


@pytest.mark.parametrize("addr", [EDGE, EDGE6])
@pytest.mark.parametrize("syncookies", [1, 2])
def test_a_connection_through_a_cookie_has_its_options(net, daemon, addr, syncookies):
    net.edge.sysctl("net.ipv4.tcp_syncookies", syncookies)
    d = daemon(net.edge, conf("xdp guard syn-cookies on"))
    for _ in range(20):
        assert get(net.client, addr) == 200
    with connect(net.client, addr, 80) as s:
        s.sendall(GET.replace(b"Connection: close\r\n", b""))
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        for host in (net.client, net.edge):
            info = host.run(f"ss -tnioH state established '( sport = :80 or dport = :80 )'").stdout
            assert re.search(r"\bts\b", info) and "sack" in info, info
            assert re.search(r"wscale:\d+,\d+", info), info
            mss = 1500 - (60 if ":" in addr else 40) - 12
            assert f"mss:{mss}" in info, info
        scales = [re.search(r"wscale:(\d+),(\d+)", h.run("ss -tnioH state established '( sport = :80 or dport = :80 )'").stdout)
                  .groups() for h in (net.client, net.edge)]
        assert scales[0] == scales[1][::-1]
    row = service(d, addr)
    assert row["cookies_sent"] >= 21 and row["cookies_valid"] >= 21 and row["cookies_invalid"] == 0, row
    assert row["syn_cookies"]


def crowd(net, addr, n, timeout=5.0):
    """How many of n new requests were not answered."""
    return sum(get(net.client, addr, timeout) != 200 for _ in range(n))


def snmp(host, name):
    """A counter of TCP in /proc/net/snmp."""
    names, values = (x.split() for x in host.run("grep ^Tcp: /proc/net/snmp").stdout.splitlines())
    return int(values[names.index(name)])


@pytest.mark.parametrize("addr", [EDGE, EDGE6])
def test_a_flood_switches_cookies_on_and_nobody_suffers(net, daemon, addr):
    """Far more SYNs than the small backlog takes: old connections live, new ones come; it ends by itself."""
    d = daemon(net.edge, conf("xdp guard syn-cookies auto above 1k/s", "backlog 32"))
    assert get(net.client, addr) == 200
    assert service(d, addr)["cookies_sent"] == 0 and not service(d, addr)["syn_cookies"]
    kept = [connect(net.client, addr, 80) for _ in range(10)]
    f = flood(net, 20_000, 1.5, addr)
    wait_for("cookies", lambda: service(d, addr)["syn_cookies"])
    served = 0
    while f.poll() is None or served < 200:
        assert get(net.client, addr) == 200, served
        served += 1
    for s in kept:
        s.sendall(GET)
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        s.close()
    row = service(d, addr)
    assert row["cookies_sent"] > 5000 and row["cookies_valid"] > 50, row
    other = service(d, EDGE6 if addr == EDGE else EDGE)
    assert other["cookies_sent"] == 0 and not other["syn_cookies"]
    if addr == EDGE6:
        return
    page = raw(net.edge, "127.0.0.1", 8404, GET.replace(b" / ", b" /metrics ")).decode()
    line = next(x for x in page.splitlines() if x.startswith("headgate_xdp_service_cookies_sent_total{") and EDGE in x)
    assert int(line.split()[-1]) == service(d)["cookies_sent"]
    wait_for("the end of it", lambda: not service(d, addr)["syn_cookies"], timeout=30)

    def is_plain():
        sent = service(d, addr)["cookies_sent"]
        assert get(net.client, addr) == 200
        return service(d, addr)["cookies_sent"] == sent

    wait_for("SYNs that the kernel answers", is_plain)


def test_the_same_flood_without_protection(net, daemon):
    """What the others would see: a backlog full of SYNs that nobody answers, and clients that wait."""
    net.edge.sysctl("net.ipv4.tcp_syncookies", 0)
    daemon(net.edge, conf(bind="backlog 32"))
    assert get(net.client) == 200
    f = flood(net, 20_000, 4)
    wait_for("dropped SYNs", lambda: snmp(net.edge, "PassiveOpens") >= 1 and
             "TcpExtListenDrops" in net.edge.run("nstat -asz TcpExtListenDrops", check=False).stdout)
    time.sleep(0.5)
    assert crowd(net, EDGE, 5, timeout=0.3) > 0
    net.client.stop(f)


def test_acks_of_nobody_are_dropped_and_not_answered(net, daemon):
    d = daemon(net.edge, conf("xdp guard syn-cookies on"))
    assert get(net.client) == 200
    with connect(net.client, EDGE, 80) as kept:
        resets = snmp(net.edge, "OutRsts")
        flood(net, 20_000, 0.5, EDGE, "-a").wait()
        row = wait_for("invalid answers", lambda: (r := service(d))["cookies_invalid"] > 1000 and r)
        assert row["dropped"] >= row["cookies_invalid"]
        assert snmp(net.edge, "OutRsts") == resets

        def agree():
            out = run_cli(net.edge, "status").stdout
            return int(re.search(r"SYN_COOKIE\s+(\d+)", out)[1]) == service(d)["cookies_invalid"]

        wait_for("the last packets to be counted", agree)
        kept.sendall(GET)
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
    # Of ports that are no service's, the kernel says so as ever.
    with pytest.raises(ConnectionRefusedError):
        connect(net.client, EDGE, 81)


def test_switching_on_and_off_by_reload_breaks_nothing(net, daemon):
    d = daemon(net.edge, conf())
    with connect(net.client, EDGE, 80) as kept:
        for extra in ("xdp guard syn-cookies on", "", "xdp guard syn-cookies auto", "xdp guard syn-cookies on"):
            d.write(conf(extra))
            d.cli("reload", timeout=20)
            assert crowd(net, EDGE, 10) == 0 and crowd(net, EDGE6, 10) == 0
        kept.sendall(GET)
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
    assert service(d)["cookies_valid"] >= 20
    assert "syn_take" in net.edge.run("tc filter show dev eth0 ingress").stdout
    # Taken away with all the rest.
    d.stop()
    run_cli(net.edge, "detach", "eth0")
    assert "syn_take" not in net.edge.run("tc filter show dev eth0 ingress", check=False).stdout


def test_without_the_kernels_consent_it_does_not_start(net, daemon):
    net.edge.sysctl("net.ipv4.tcp_syncookies", 0)
    d = daemon(net.edge, conf("xdp guard syn-cookies on"), start=False)
    with pytest.raises(RuntimeError):
        d.start()
    assert "net.ipv4.tcp_syncookies" in d.output()


def test_the_listeners_cookies_for_older_kernels(net, daemon):
    """As before Linux 6.9: the flag says that no program can hand over connections, so the listener's cookie is sent."""
    net.edge.sysctl("net.ipv4.tcp_syncookies", 2)
    d = daemon(net.edge, conf("xdp guard syn-cookies on"))
    path = "/sys/fs/bpf/headgate/syn_control"
    value = json.loads(net.edge.run(f"bpftool -j map dump pinned {path}").stdout)[0]["value"]
    value[4] = "0x%02x" % (int(value[4], 16) & ~1)  # HG_SYN_OWN
    net.edge.run(f"bpftool map update pinned {path} key 0 0 0 0 value {' '.join(value)}")
    net.edge.run("tc filter del dev eth0 ingress")
    for addr in (EDGE, EDGE6):
        assert crowd(net, addr, 20) == 0
        with connect(net.client, addr, 80) as s:
            s.sendall(GET.replace(b"Connection: close\r\n", b""))
            assert s.recv(1000).startswith(b"HTTP/1.1 200")
            info = net.edge.run("ss -tnioH state established '( sport = :80 )'").stdout
            assert f"mss:{1440 if ':' in addr else 1460}" in info and "wscale" not in info, info
        assert service(d, addr)["cookies_sent"] >= 21 and service(d, addr)["cookies_invalid"] == 0
    flood(net, 20_000, 0.5, EDGE, "-a").wait()
    wait_for("invalid answers", lambda: service(d)["cookies_invalid"] > 1000)


# --- the same keys on several hosts ---------------------------------------------------------------------------

STRANGER = "10.30.0.77"  # nobody's address: no kernel answers for it


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~(total % 0xffff) & 0xffff


class Stranger:
    """A client that is no kernel's: it answers when the test says so."""

    def __init__(self, net):
        self.sock = HostSocket.make(net.client, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
        self.sock.bind(("eth0", 0x800))
        self.sock.settimeout(2)
        own = json.loads(net.client.run("ip -j link show eth0").stdout)[0]["address"]
        net.edge.run(f"ip neigh replace {STRANGER} lladdr {own} dev eth0")
        self.eth = bytes.fromhex(net.mac.replace(":", "") + own.replace(":", "")) + b"\x08\x00"
        self.ends = socket.inet_aton(STRANGER) + socket.inet_aton(EDGE)

    def send(self, port, seq, ack, flags, data=b""):
        tcp = struct.pack("!HHIIBBHHH", port, 80, seq, ack, 0x50, flags, 0x4000, 0, 0) + data
        pseudo = self.ends + struct.pack("!HH", 6, len(tcp))
        tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp + b"\0" * (len(tcp) % 2))) + tcp[18:]
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 1, 0x4000, 64, 6, 0) + self.ends
        self.sock.send(self.eth + ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + tcp)

    def receive(self, port, wanted):
        """The next packet to the port with one of these flags: sequence number and data. None: none came."""
        try:
            while True:
                f = self.sock.recv(2000)
                if f[30:34] == self.ends[:4] and struct.unpack("!H", f[36:38])[0] == port and f[47] & wanted:
                    return struct.unpack("!I", f[38:42])[0], f[34 + (f[46] >> 4) * 4:14 + struct.unpack("!H", f[16:18])[0]]
        except TimeoutError:
            return None


def test_another_host_with_the_same_keys_takes_the_cookie(net, daemon):
    """Its tables are new, no flood has come to it, and the client's first packet gets lost on the way: data brings the cookie."""
    keys, others = net.dir / "keys", net.dir / "others"
    keys.write_text(f"{secrets.token_hex(32)}\n", encoding="ascii")
    others.write_text(f"{secrets.token_hex(32)}\n", encoding="ascii")
    client = Stranger(net)
    d = daemon(net.edge, conf(f"xdp guard syn-cookies on keys {keys}"))
    client.send(5001, 1000, 0, 0x02)
    client.send(5002, 1000, 0, 0x02)
    cookies = {port: client.receive(port, 0x02)[0] for port in (5001, 5002)}
    assert service(d)["cookies_sent"] == 2
    for path, port, is_taken in ((others, 5002, False), (keys, 5001, True)):
        d.stop()
        run_cli(net.edge, "detach", "eth0")
        d = daemon(net.edge, conf(f"xdp guard syn-cookies auto keys {path}"))
        client.send(port, 1001, cookies[port] + 1 & 0xffffffff, 0x18, GET)
        if is_taken:
            assert client.receive(port, 0x08)[1].startswith(b"HTTP/1.1 200")
        else:
            assert client.receive(port, 0x04)
        assert service(d)["cookies_sent"] == 0
    client.sock.close()
