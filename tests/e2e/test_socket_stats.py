# SPDX-License-Identifier: BSD-2-Clause
"""option socket-stats: a row per listener, with HAProxy's fields and numbers, over reloads and on the page."""

from conftest import SLOW, ScriptedServer, connect, keepalive_server, raw, read_response, wait_for
from peer import Pair

CONF = """
global
    nbthread 1
    stats  socket 127.0.0.1:{port9} level admin
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
frontend web
    option socket-stats
    maxconn 50
    bind 127.0.0.1:{port} name one
    bind 127.0.0.1:{port1}
    bind 127.0.0.1:{port2} name limited maxconn 1
    tcp-request connection reject if { dst_port {port1} } { src 127.0.0.9 }
    http-request deny if { path /deny }
    http-request use-service prometheus-exporter if { path /metrics }
    stats enable
    stats uri /stats
    http-response deny if { path_beg /rspdeny }
    http-response deny if { res.hdr(x-bad) -m found }
    default_backend app
frontend plain
    bind 127.0.0.1:{port3}
    default_backend app
backend app
    server s 127.0.0.1:9001
"""
FIELDS = ["svname", "scur", "slim", "stot", "dreq", "dresp", "ereq", "status", "pid", "iid", "sid",
          "type", "mode", "wrew", "eint", "dcon", "dses"]


def rows(host, base):
    """Two blanks in the configuration: the test's own socket of Headgate is added beside this one."""
    lines = raw(host, "127.0.0.1", base + 9, b"show stat -1 8 -1\n").decode().lstrip("# ").strip().splitlines()
    names = lines[0].split(",")
    return [dict(zip(names, line.split(","))) for line in lines[1:] if line]


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()


def test_rows_of_listeners(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: (keepalive_server(b"hello")(s, c, n)))
    pair = Pair(one, daemon, CONF.replace("    http-response deny if { path_beg /rspdeny }\n", ""))
    for base in (8000, 8100):
        for path in ("/", "/", "/deny"):
            raw(one, "127.0.0.1", base, get(path))
        raw(one, "127.0.0.1", base + 1, get("/"))
        raw(one, "127.0.0.1", base + 1, b"BAD\r\n\r\n")
        raw(one, "127.0.0.1", base + 3, get("/"))
    held = [connect(one, "127.0.0.1", base + 2) for base in (8000, 8100)]
    for c in held:
        c.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        read_response(c)
    seen = []
    for base in (8000, 8100):
        wait_for("the last connection to be counted", lambda b=base: [
            r["scur"] for r in rows(one, b)] == ["0", "0", "1"], timeout=10 * SLOW)
        seen.append(rows(one, base))
    ours, theirs = seen
    # HAProxy was asked whether it listens: one connection more on its first socket.
    theirs[0]["stot"] = str(int(theirs[0]["stot"]) - 1)
    theirs[0]["ereq"] = ours[0]["ereq"]
    names = [r["svname"] for r in ours]
    assert names[0] == "one" and names[2] == "limited" and len(ours) == len(theirs) == 3
    for a, b in zip(ours, theirs):
        for f in FIELDS:
            if f != "svname" or a[f] in ("one", "limited"):
                assert a[f] == b[f], (f, a, b)
        assert a["addr"] == b["addr"].replace("81", "80")
    assert all(int(r["smax"]) >= 1 and int(r["bin"]) > 0 and int(r["bout"]) > 0 for r in ours)
    assert [r["status"] for r in ours] == ["OPEN", "OPEN", "FULL"]
    d = pair.daemon
    metrics = raw(one, "127.0.0.1", 8000, get("/metrics")).decode()
    assert 'haproxy_listener_status{proxy="web",listener="limited",state="FULL"} 1' in metrics
    assert 'haproxy_listener_requests_denied_total{proxy="web",listener="one"} 1' in metrics
    assert "limited" in raw(one, "127.0.0.1", 8000, get("/stats")).decode()
    # The rows live on through a reload, the connection that is open too; without the option they are gone.
    d.cli("reload")
    row = rows(one, 8000)[2]
    assert (row["scur"], row["stot"]) == ("1", "1")
    held[0].sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    read_response(held[0])
    assert rows(one, 8000)[2]["scur"] == "1"
    held[0].close()
    wait_for("the connection to end", lambda: rows(one, 8000)[2]["scur"] == "0", timeout=10 * SLOW)
    d.write(d.cfg.read_text().replace("    option socket-stats\n", ""))
    d.cli("reload")
    assert rows(one, 8000) == []
