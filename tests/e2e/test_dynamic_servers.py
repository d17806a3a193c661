# SPDX-License-Identifier: BSD-2-Clause
"""Servers that come and go while the configuration stays: `add server`, `del server`."""

import re
import socket
import ssl
import time

from conftest import SLOW, ScriptedServer, connect, keepalive_server, make_cert, raw, read_head, recv_all, reply, wait_for
from load import Clients

CFG = """
global
    nbthread 2
    stats socket {sock} level admin
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
frontend fe
    bind 127.0.0.1:8000
    http-request use-service prometheus-exporter if { path /metrics }
    default_backend be
backend be
    balance roundrobin
    cookie SRV insert
    default-server weight 77
    server s1 127.0.0.1:9001 cookie c1
listen map
    bind 127.0.0.1:8001
    balance source
    hash-type map-based
    use-server s1 if { path /s1 }
    server s1 127.0.0.1:9001
    server s2 127.0.0.1:9001
    server t2 127.0.0.1:9001 check
    server t3 127.0.0.1:9001 track t2
"""
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def servers(one):
    return [ScriptedServer(one, "127.0.0.1", 9000 + i, keepalive_server(b"%d" % i)) for i in (1, 2)]


def who(one, n, port=8000, extra=b""):
    return [raw(one, "127.0.0.1", port, LAST[:-2] + extra + b"\r\n")[-1:].decode() for _ in range(n)]


def row(d, name, be="be"):
    """Of `show servers state`, by the names of its columns; None: there is no such server."""
    lines = d.cli(f"show servers state {be}").splitlines()
    names = lines[1].lstrip("# ").split()
    return next((dict(zip(names, x.split())) for x in lines[2:] if x.split()[3:4] == [name]), None)


def test_answers_and_states(one, daemon):
    one.keep = servers(one)
    d = daemon(one, CFG)
    for line, answer in (
            ("add server", "Require 'backend/server'."),
            ("add server be", "Require 'backend/server'."),
            ("add server nope/x 127.0.0.1:1", "No such backend."),
            ("add server be/x", "'server' expects <name> and <addr>[:<port>] as arguments."),
            ("add server be/s1 127.0.0.1:1", "Already exists a server with the same name in backend."),
            ("add server be/x 127.0.0.1:1 resolvers r", "'server x' : 'resolvers' option is not accepted for dynamic server."),
            ("add server be/x 127.0.0.1:1 id 1", "custom id 1 is already used in backend 'be'"),
            ("add server be/x 127.0.0.1:1 weight 257", None),
            ("add server be/x 127.0.0.1:1 wieght 2", None),
            ("add server be/x name.example:80", None),
            ("add server be/x 127.0.0.1 check", None),  # the port is the client's, and a check has none
            ("add server be/x 127.0.0.1:1 track nobody", None),
            ("del server", "Require 'backend/server'."),
            ("del server be/x", "No such server."),
            ("del server be/s1", "Only servers in maintenance mode can be deleted."),
            ("del server map/s1", "This server cannot be removed at runtime due to other configuration elements pointing to it."),
            ("del server map/t2", "This server cannot be removed at runtime due to other configuration elements pointing to it."),
    ):
        out = d.cli(line).strip()
        assert out == answer if answer else out and "registered" not in out, (line, out)
    assert row(d, "x") is None
    assert d.cli("add server be/d1 127.0.0.1:9002 check inter 50 cookie c2 weight 10") == "New server registered.\n\n"
    state = row(d, "d1")
    assert [state[x] for x in ("srv_id", "srv_admin_state", "srv_uweight", "srv_check_state")] == ["2", "1", "10", "2"]
    assert d.stat("be", "d1")["status"] == "MAINT" and d.stat("be", "d1")["cookie"] == "c2"
    assert set(who(one, 4)) == {"1"}
    assert 'haproxy_server_weight{proxy="be",server="d1"} 10' in raw(one, "127.0.0.1", 8000,
                                                                     LAST.replace(b"/ ", b"/metrics ")).decode()
    # Checks are enabled by themselves, and the server too.
    d.cli("enable server be/d1")
    assert "1" in who(one, 20) and "2" in who(one, 20)
    assert d.stat("be", "d1")["check_status"] == "INI"
    d.cli("enable health be/d1")
    wait_for("a check", lambda: d.stat("be", "d1")["check_status"] == "L4OK")
    assert who(one, 3, extra=b"Cookie: SRV=c2\r\n") == ["2"] * 3
    assert re.search(r"^be/d1 \d+/2 127\.0\.0\.1 9002 ", d.cli("show servers conn be"), re.M)
    # A method that HAProxy calls static takes servers, too.
    assert d.cli("add server map/d1 127.0.0.1:9002; enable server map/d1").startswith("New server registered.")
    d.cli("disable server map/s1; disable server map/s2; disable server map/t2; disable server map/t3")
    assert who(one, 3, port=8001) == ["2"] * 3
    # One of the file goes, another comes under its name; a reload brings it back.
    assert d.cli("disable server map/s2; del server map/s2").strip() == "Server deleted."
    assert row(d, "s2", "map") is None and d.cli("enable server map/s2").strip() == "No such server."
    assert d.cli("add server map/s2 127.0.0.1:9002 id 40").strip() == "New server registered."
    assert row(d, "s2", "map")["srv_id"] == "40"
    assert "Success=1" in d.cli("reload")
    assert row(d, "d1") is None and row(d, "d1", "map") is None and row(d, "s2", "map")["srv_port"] == "9001"
    assert set(who(one, 4)) == {"1"}


def test_tls_and_a_new_certificate(one, daemon):
    """TLS by the line's own options; a certificate that is replaced at run time reaches servers that were added, too."""
    certs = one.lab.dir
    make_cert(certs / "a.pem", ["a.example"])
    make_cert(certs / "b.pem", ["b.example"])
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(certs / "a.pem")
    ctx.load_verify_locations(certs / "a.pem")
    ctx.load_verify_locations(certs / "b.pem")
    ctx.verify_mode = ssl.CERT_REQUIRED
    seen = []

    def handle(s, c, n):
        with ctx.wrap_socket(c, server_side=True) as t:
            seen.append(dict(x[0] for x in t.getpeercert()["subject"])["commonName"])
            if read_head(t):
                t.sendall(reply(b"2", headers=("Connection: close",)))

    one.keep = [*servers(one)[:1], ScriptedServer(one, "127.0.0.1", 9003, handle)]
    mine = certs / "client.pem"
    mine.write_text((certs / "a.pem").read_text())
    d = daemon(one, CFG + f"backend other\n    server o 127.0.0.1:9003 ssl ca-file {certs}/a.pem crt {mine}\n")
    # A file that nothing else uses is read now.
    assert d.cli(f"add server be/u 127.0.0.1:9003 ssl verify none crt {certs}/b.pem cookie u; enable server be/u").startswith("New ")
    assert who(one, 1, extra=b"Cookie: SRV=u\r\n") == ["2"] and seen == ["b.example"]
    assert "ca-file" in d.cli("add server be/t 127.0.0.1:9003 ssl")
    assert d.cli(f"add server be/t 127.0.0.1:9003 ssl ca-file {certs}/a.pem sni str(a.example) crt {mine} cookie t").strip() == (
        "New server registered.")
    d.cli("enable server be/t")
    assert who(one, 1, extra=b"Cookie: SRV=t\r\n") == ["2"]
    d.cli(f"set ssl cert {mine} <<\n{(certs / 'b.pem').read_text()}\n")
    assert "Success" in d.cli(f"commit ssl cert {mine}")
    assert who(one, 1, extra=b"Cookie: SRV=t\r\n") == ["2"]
    assert seen == ["b.example", "a.example", "b.example"]
    assert d.cli("disable server be/t; wait 5s srv-removable be/t; del server be/t").split("\n\n")[-2] == "Server deleted."


def test_deleted_only_without_connections(one, daemon):
    class Holder:
        is_open = False

    def slow(server, c, n):
        if read_head(c):
            while not Holder.is_open:
                time.sleep(0.01)
            c.sendall(reply(b"2", headers=("Connection: close",)))

    one.keep = [ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"1")), ScriptedServer(one, "127.0.0.1", 9002, slow)]
    d = daemon(one, CFG)
    d.cli("add server be/d1 127.0.0.1:9002 cookie c2; enable server be/d1")
    c = connect(one, "127.0.0.1", 8000, timeout=20 * SLOW)
    c.sendall(LAST[:-2] + b"Cookie: SRV=c2\r\n\r\n")
    wait_for("the request", lambda: d.stat("be", "d1")["scur"] == "1")
    d.cli("disable server be/d1")
    assert d.cli("del server be/d1").strip() == "Server still has connections attached to it, cannot remove it."
    assert d.cli("wait 30 srv-removable be/d1").strip() == ("Wait delay expired. Server still has connections attached to it, "
                                                           "cannot remove it.")
    assert d.cli("wait 30").strip() == "Done."
    assert d.cli("wait 30s srv-removable be/s1").strip() == "Failed. Only servers in maintenance mode can be deleted."
    assert d.cli("wait 30s srv-removable be/nobody").strip() == "Failed. No such server."
    assert d.cli("wait x").startswith("Usage: wait ") and d.cli("wait 1 nonsense").startswith("Usage: wait ")
    # Commands behind it run when it is over; one whose client goes away leaves nothing.
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(d.sock))
        s.sendall(b"wait 30s srv-removable be/d1\n")
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20 * SLOW)
        s.connect(str(d.sock))
        s.sendall(b"wait 20s srv-removable be/d1; del server be/d1\n")
        s.shutdown(socket.SHUT_WR)
        Holder.is_open = True
        assert c.recv(4096).endswith(b"2")
        assert recv_all(s).decode().split("\n\n") == ["Done.", "Server deleted.", ""]
    assert set(who(one, 3)) == {"1"}
    assert who(one, 1, extra=b"Cookie: SRV=c2\r\n") == ["1"]


def test_no_request_is_lost(one, daemon):
    """Clients of both kinds of connections, servers that come, work and go, ids and names that come again."""
    one.keep = servers(one)
    d = daemon(one, CFG)
    clients = Clients(one, [("kept", 8000, False, 0, 1, 0), ("each", 8000, False, 1, 1, 0.001),
                            ("pipelined", 8000, False, 0, 4, 0)])
    clients.until(5)
    for i in range(8):
        name = f"be/d{i % 3}"
        assert d.cli(f"add server {name} 127.0.0.1:9002 check inter 100ms").strip() == "New server registered."
        d.cli(f"enable server {name}; enable health {name}")
        wait_for("its share", lambda: int(d.stat(*name.split("/"))["stot"]) > 2)
        d.cli(f"disable server {name}")
        wait_for("its end", lambda: d.cli(f"del server {name}").strip() == "Server deleted.")
    clients.until(5)
    assert not clients.stop().failures, clients.failures[:5]
    assert len([x for x in d.stats() if x["pxname"] == "be"]) == 2
    assert len(d.cli("show snapshots").strip().splitlines()) == 2  # no generation was spent on it


def test_help_lists_what_a_line_takes(one, daemon):
    d = daemon(one, CFG)
    lines = d.cli("add server help").splitlines()
    assert lines[0] == "List of keywords supported for dynamic servers:"
    words = [line.split()[0] for line in lines[1:] if line.strip()]
    assert {"check", "weight", "maxconn", "ssl", "cookie", "backup", "track"} <= set(words) and len(words) == len(set(words))
    assert not {"resolvers", "init-addr", "quic-id", "via"} & set(words)
    # They may want a value, or company; none of them is unknown or refused as such.
    for n, word in enumerate(words):
        out = d.cli(f"add server be/h{n} 127.0.0.1:1 {word}")
        assert "unknown" not in out and "No such" not in out and "not accepted for dynamic" not in out, (word, out)
