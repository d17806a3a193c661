# SPDX-License-Identifier: BSD-2-Clause
"""Server names that resolve, change and vanish while the daemon runs: `resolvers`, `server-template`, SRV records."""

import re

import pytest
from conftest import HEADGATED, ScriptedServer, connect, keepalive_server, read_response, wait_for
from dns_server import A, AAAA, CNAME, NX, REFUSED, SRV, DnsServer

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
resolvers ns
    nameserver one 127.0.0.1:53
    hold valid 100ms
    hold nx 200ms
    hold other 200ms
    hold refused 200ms
    hold timeout 200ms
    timeout resolve 100ms
    timeout retry 200ms
    resolve_retries 2
defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
    timeout queue 1s
    default-server resolvers ns init-addr none
listen px
    bind 127.0.0.1:8000
    balance roundrobin
    option httpclose
"""


@pytest.fixture
def dns(one):
    server = DnsServer(one)
    yield server
    server.close()


@pytest.fixture
def backends(one):
    """127.0.0.1 … 3:8080 answer with their own address."""
    servers = [ScriptedServer(one, f"127.0.0.{i}", 8080, keepalive_server(body=f"127.0.0.{i}".encode()))
               for i in (1, 2, 3)]
    yield servers
    for s in servers:
        s.close()


def get(host):
    with connect(host, "127.0.0.1", 8000) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        status, _, body = read_response(s)
        return status, body.decode()


def addr(d, name):
    """Address and port of a server, as it is now."""
    line = next(l for l in d.cli("show servers state px").splitlines() if f" {name} " in l).split()
    return f"{line[4]}:{line[18]}"


def status(d, name):
    return d.stat("px", name)["status"]


def counter(d, name, ns="one"):
    text = d.cli("show resolvers ns").split(f"nameserver {ns}:")[1].split("nameserver")[0]
    return int(re.search(rf"^  {name}: +(\d+)$", text, re.M).group(1))


def test_a_name_resolves_moves_and_vanishes(one, daemon, dns, backends):
    dns.zone[("other.test", A)] = ["127.0.0.3"]
    # A silent name server is not waited for below, however long the steps take.
    text = CFG.replace("hold timeout 200ms", "hold timeout 1m")
    d = daemon(one, text + "    server s1 web.test:8080\n")
    assert status(d, "s1") == "MAINT (resolution)"
    assert get(one)[0] == 503
    dns.zone[("web.test", A)] = ["127.0.0.1"]
    wait_for("an address", lambda: status(d, "s1") == "no check")
    assert get(one) == (200, "127.0.0.1")
    dns.zone[("web.test", A)] = ["127.0.0.2"]
    wait_for("the move", lambda: addr(d, "s1") == "127.0.0.2:8080")
    assert get(one) == (200, "127.0.0.2")
    assert "px/s1 changed its IP from 127.0.0.1 to 127.0.0.2 by ns/one." in d.output()
    assert counter(d, "update") == 2 and counter(d, "nx") > 0
    # A reload keeps it, though the line says `none`, and so the port of the line counts.
    dns.silent = True
    assert "Success=1" in d.cli("reload")
    assert addr(d, "s1") == "127.0.0.2:8080"
    dns.silent = False
    # The last good answer is used for `hold nx`, and no longer.
    del dns.zone[("web.test", A)]
    wait_for("maintenance", lambda: status(d, "s1") == "MAINT (resolution)")
    assert "Server px/s1 is going DOWN for maintenance (DNS NX status)." in d.output()
    assert get(one)[0] == 503
    # Another name by the runtime API; it lasts over a reload, until the line changes.
    assert "px/s1 changed its FQDN from web.test to other.test" in d.cli("set server px/s1 fqdn other.test")
    wait_for("the other name's address", lambda: get(one) == (200, "127.0.0.3"))
    assert "Success=1" in d.cli("reload")
    wait_for("asked again", lambda: dns.asked[-1][0] == "other.test")
    assert get(one) == (200, "127.0.0.3")
    d.write(text + "    server s1 third.test:8080\n")
    dns.zone[("third.test", CNAME)] = ["real.test"]
    dns.zone[("real.test", A)] = ["127.0.0.1"]
    assert "Success=1" in d.cli("reload")
    wait_for("the line's name", lambda: get(one) == (200, "127.0.0.1"))
    assert counter(d, "cname") > 0


def test_a_template_has_as_many_servers_as_addresses(one, daemon, dns, backends):
    dns.zone[("web.test", A)] = ["127.0.0.1", "127.0.0.2"]
    d = daemon(one, CFG + "    server-template w 3 web.test:8080 check inter 100ms\n")

    def up():
        return sorted(addr(d, f"w{i}") for i in (1, 2, 3) if status(d, f"w{i}").startswith("UP"))

    wait_for("two servers", lambda: up() == ["127.0.0.1:8080", "127.0.0.2:8080"] and
             sorted(status(d, f"w{i}") for i in (1, 2, 3)) == ["MAINT (resolution)", "UP", "UP"])
    held = {i: addr(d, f"w{i}") for i in (1, 2, 3)}
    dns.zone[("web.test", A)] = ["127.0.0.3", "127.0.0.2", "127.0.0.1"]
    wait_for("three servers", lambda: len(up()) == 3)
    # Those that had an address have it still.
    assert all(addr(d, f"w{i}") == a for i, a in held.items() if a[0] != "-")
    assert {get(one)[1] for _ in range(6)} == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
    dns.zone[("web.test", A)] = ["127.0.0.2"]
    wait_for("one server", lambda: up() == ["127.0.0.2:8080"])
    assert {get(one)[1] for _ in range(4)} == {"127.0.0.2"}


def test_srv_records_give_ports_and_weights(one, daemon, dns, backends):
    ScriptedServer(one, "127.0.0.1", 8081, keepalive_server(body=b"8081"))
    dns.zone[("a.test", A)] = ["127.0.0.1"]
    dns.zone[("b.test", A)] = ["127.0.0.2"]
    dns.zone[("_http._tcp.test", SRV)] = [(0, 65535, 8080, "a.test"), (0, 0, 8080, "b.test"),
                                          (0, 256, 8081, "a.test")]
    d = daemon(one, CFG + "    server-template s 1-4 _http._tcp.test\n")

    def rows():
        return {addr(d, f"s{i}"): int(d.stat("px", f"s{i}")["weight"]) for i in range(1, 5)
                if status(d, f"s{i}") == "no check"}

    wait_for("three servers", lambda: rows() == {"127.0.0.1:8080": 256, "127.0.0.2:8080": 1, "127.0.0.1:8081": 2})
    state = d.cli("show servers state px")
    assert state.count("_http._tcp.test") == 4 and " a.test " in state
    dns.zone[("_http._tcp.test", SRV)] = [(0, 0, 8081, "a.test")]
    wait_for("one record", lambda: rows() == {"127.0.0.1:8081": 1})
    assert {get(one)[1] for _ in range(3)} == {"8081"}


def test_dead_refusing_and_short_name_servers(one, daemon, dns, backends):
    refusing = DnsServer(one, "127.0.0.2")
    silent = DnsServer(one, "127.0.0.3")
    silent.silent = True
    refusing.rcode = {"web.test": REFUSED}
    dns.zone[("web.test", A)] = ["127.0.0.1"]
    dns.truncate = True
    text = CFG.replace("    hold valid", "    nameserver two 127.0.0.2:53\n    nameserver three 127.0.0.3:53\n"
                       "    nameserver four 127.0.0.4:53\n    hold valid")
    d = daemon(one, text + "    server s1 web.test:8080\n    server s2 v6.test:8080 resolve-prefer ipv6\n"
               "    server s3 v6.test:8080 resolve-prefer ipv4\n"
               "frontend metrics\n    bind 127.0.0.1:8001\n    http-request use-service prometheus-exporter\n")
    wait_for("an address over TCP", lambda: status(d, "s1") == "no check")
    assert get(one) == (200, "127.0.0.1") and dns.over_tcp > 0
    dns.truncate = False
    dns.zone[("v6.test", A)] = ["127.0.0.2"]
    dns.zone[("v6.test", AAAA)] = ["::1"]
    wait_for("both families", lambda: (addr(d, "s2"), addr(d, "s3")) == ("::1:8080", "127.0.0.2:8080"))
    with connect(one, "127.0.0.1", 8001) as s:
        s.sendall(b"GET /?scope=resolver HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = read_response(s)[2].decode()
    assert re.search(r'^haproxy_resolver_valid{resolver="ns",nameserver="one"} [1-9]', text, re.M)
    assert 'haproxy_resolver_valid{resolver="ns",nameserver="two"} 0\n' in text and len(
        re.findall("^# TYPE haproxy_resolver_", text, re.M)) == 15
    wait_for("everybody's answer counted", lambda: counter(d, "refused", "two") > 0 and
             counter(d, "timeout", "three") > 0 and counter(d, "snd_error", "four") > 0)
    assert counter(d, "valid", "two") == 0 and counter(d, "valid") > 0
    # Nobody knows: the address stays for `hold`, then the server leaves.
    dns.silent = True
    wait_for("maintenance", lambda: status(d, "s1") == "MAINT (resolution)")
    dns.silent = False
    wait_for("back again", lambda: status(d, "s1") == "no check")
    refusing.close()
    silent.close()


def test_a_name_without_an_address_is_an_error_unless_the_line_says_otherwise(one):
    cfg = one.lab.dir / "x.cfg"
    head = CFG.replace("{sock}", "/tmp/x").replace(" init-addr none", "")
    for line, rc, said in (
            ("server s1 nowhere.invalid:80", 1, "cannot resolve 'nowhere.invalid'"),
            ("server s1 nowhere.invalid:80 init-addr libc,none", 0, ""),
            ("server s1 nowhere.invalid:80 init-addr libc,192.0.2.7", 0, ""),
            ("server s1 _x._tcp.test", 0, ""),
            ("server s1 nowhere.invalid:80 resolvers other init-addr none", 1, "there is no 'resolvers other' section"),
            ("server s1 nowhere.invalid:80 init-addr none,5", 1, "'init-addr' expects last, libc, none or an address"),
            ("server-template s 3-1 nowhere.invalid:80", 1, "instead of '3-1'"),
            ("server-template s 1-20000 nowhere.invalid:80", 1, "10000 servers at most")):
        cfg.write_text(head + f"    {line}\n", encoding="utf-8")
        out = one.run([HEADGATED, "-c", "-f", cfg], check=False)
        assert (out.returncode, said in out.stderr) == (rc, True), (line, out.stderr)
