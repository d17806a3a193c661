# SPDX-License-Identifier: BSD-2-Clause
"""Stick tables with real clients: track-sc, counters, stick on, the runtime API, reloads."""

import re
import signal
import time

from conftest import SLOW, ScriptedServer, connect, keepalive_server, raw, read_head, read_response, reply, wait_for

DEFAULTS = """
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
"""
GET = b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n"
CLOSE = b"GET /x HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"


def get(one, port=8000, path="/x", headers=(), addr="127.0.0.1"):
    lines = [f"GET {path} HTTP/1.1", "Host: a.example", "Connection: close", *headers]
    out = raw(one, addr, port, ("\r\n".join(lines) + "\r\n\r\n").encode())
    return int(out.split()[1]), out.split(b"\r\n\r\n", 1)[1]


def entries(d, table, extra=""):
    """`show table` as {key: {column: value}}."""
    out = d.cli(f"show table {table} {extra}").strip().splitlines()
    assert re.match(rf"# table: {table}, type: \w+, size:\d+, used:\d+$", out[0]), out
    result = {}
    for line in out[1:]:
        m = re.match(r"0x[0-9a-f]+: key=(.*?) use=(\d+) exp=(\d+) shard=0((?: [a-z0-9_]+(?:\(\d+\))?=\d+)*)$", line)
        assert m, line
        result[m[1]] = {"use": int(m[2]), "exp": int(m[3]), **{k: int(v) for k, v in (x.split("=") for x in m[4].split())}}
    return result


def wait_entry(d, table, key, **want):
    def same():
        e = entries(d, table).get(key)
        return e and all(e[k.replace("__", "(") + (")" if "__" in k else "")] == v for k, v in want.items()) and e

    return wait_for(f"{table}[{key}] {want}", same, timeout=5 * SLOW)


def test_track_and_deny(one, daemon):
    """The usual rate limit: the eleventh request within the period is refused."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, DEFAULTS + """
listen web
    bind 127.0.0.1:8000
    stick-table type ip size 1k expire 30s store gpc0,http_req_rate(60s),http_req_cnt,conn_cnt,conn_cur,http_err_cnt,bytes_in_cnt,bytes_out_cnt
    http-request track-sc0 src
    http-request deny deny_status 429 if { sc0_http_req_rate gt 10 }
    server s1 127.0.0.1:9001
""")
    with connect(one, "127.0.0.1", 8000) as c:
        for i in range(12):
            c.sendall(GET)
            assert read_response(c)[0] == (200 if i < 10 else 429)
    e = wait_entry(d, "web", "127.0.0.1", http_req_cnt=12, http_req_rate__60000=12, conn_cnt=12, conn_cur=0, use=0,
                   http_err_cnt=2)
    assert 25000 < e["exp"] <= 30000
    assert e["bytes_in_cnt"] == 12 * len(GET)
    assert e["bytes_out_cnt"] > 12 * 40
    assert d.cli("show table").strip() == "# table: web, type: ip, size:1024, used:1"


def test_connection_counts(one, daemon):
    """conn_cur is the number of open connections, whatever they do."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, DEFAULTS + """
frontend web
    bind 127.0.0.1:8000
    tcp-request connection track-sc0 src table per_ip
    tcp-request connection reject if { sc0_conn_cur gt 3 }
    tcp-request session sc-inc-gpc0(0)
    http-request sc-inc-gpc1(0)
    http-request sc-set-gpt0(0) int(7)
    default_backend be
backend be
    server s1 127.0.0.1:9001
backend per_ip
    stick-table type ipv6 size 10k expire 1m store conn_cur,conn_cnt,conn_rate(10s),sess_cnt,http_req_cnt,gpc0,gpc1,gpt0
""")
    key = "::ffff:127.0.0.1"
    open_ = [connect(one, "127.0.0.1", 8000) for _ in range(3)]
    wait_entry(d, "per_ip", key, conn_cur=3, use=3, conn_cnt=3, sess_cnt=3, http_req_cnt=0, gpc0=3)
    for c in open_:
        for _ in range(2):
            c.sendall(GET)
            assert read_response(c)[0] == 200
    wait_entry(d, "per_ip", key, conn_cur=3, http_req_cnt=6, gpc1=6, gpt0=7)
    try:
        assert raw(one, "127.0.0.1", 8000, CLOSE) in (b"", b"<RESET>")
    except (ConnectionResetError, BrokenPipeError):
        pass  # refused before connect() or sendall() had returned
    wait_entry(d, "per_ip", key, conn_cur=3, conn_cnt=4, sess_cnt=3)
    assert "in use" in d.cli(f"clear table per_ip key {key}")
    for c in open_:
        c.close()
    wait_entry(d, "per_ip", key, conn_cur=0, use=0, conn_cnt=4)
    assert d.cli(f"clear table per_ip key {key}").strip() == ""
    assert entries(d, "per_ip") == {}


def test_server_errors(one, daemon):
    """4xx and 5xx of the server, 400 of the client, 503 without a server."""

    def handle(server, c, n):
        while head := read_head(c):
            status = head.split()[1].decode().strip("/")
            c.sendall(reply(b"x", f"{status} Text"))

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, DEFAULTS + """
frontend web
    bind 127.0.0.1:8000
    stick-table type ip size 100 store http_err_cnt,http_fail_cnt,http_err_rate(1m),http_fail_rate(1m)
    tcp-request connection track-sc0 src
    use_backend none if { path /none }
    http-request return status 404 if { path /returned }
    http-after-response set-header x-err %[sc0_http_err_cnt]
    default_backend be
backend be
    server s1 127.0.0.1:9001
backend none
""")
    want_err = want_fail = 0
    for path, err, fail in (("/200", 0, 0), ("/404", 1, 0), ("/429", 1, 0), ("/500", 0, 1), ("/501", 0, 0), ("/503", 0, 1),
                            ("/none", 0, 1), ("/returned", 0, 0)):
        get(one, path=path)
        want_err, want_fail = want_err + err, want_fail + fail
        wait_entry(d, "web", "127.0.0.1", http_err_cnt=want_err, http_fail_cnt=want_fail, use=0)
    raw(one, "127.0.0.1", 8000, b"GET / HTTP/1.1\r\nbad header\r\n\r\n")
    wait_entry(d, "web", "127.0.0.1", http_err_cnt=want_err + 1, http_err_rate__60000=want_err + 1,
               http_fail_rate__60000=want_fail)


def test_fetches_and_converters(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, DEFAULTS + """
frontend web
    bind 127.0.0.1:8000
    acl abuser src_get_gpc0(ban) gt 2
    acl mark path /mark
    http-request deny deny_status 403 if abuser
    http-request return status 200 content-type text/plain lf-string "%[src_inc_gpc0(ban)] %[src_get_gpc0(ban)]" if mark
    http-request track-sc1 hdr(x-user) table users
    http-request return status 200 content-type text/plain lf-string "%[src,in_table(ban)] %[hdr(x-user),table_http_req_cnt(users)] %[sc1_http_req_cnt] %[sc_trackers(1)] %[sc0_tracked] %[sc1_tracked] %[table_cnt(users)] %[table_avl(users)] %[sc1_conn_cnt(users)]|%[sc0_conn_cnt]|"
backend ban
    stick-table type ip size 100 expire 1h store gpc0
backend users
    stick-table type string len 8 size 50 expire 1h store http_req_cnt,conn_cnt
""")
    assert get(one, headers=["x-user: alice"]) == (200, b"0 1 1 1 0 1 1 49 1||")
    assert get(one, headers=["x-user: alice"]) == (200, b"0 2 2 1 0 1 1 49 2||")
    assert get(one, headers=["x-user: bob-with-a-long-name"])[1].startswith(b"0 ")
    assert sorted(entries(d, "users")) == ["alice", "bob-with"]
    assert get(one)[1].endswith(b"||")  # no header: nothing is tracked
    for i in range(1, 4):
        assert get(one, path="/mark") == (200, b"%d %d" % (i, i))
    assert get(one)[0] == 403
    assert d.cli("set table ban key 127.0.0.1 data.gpc0 1").strip() == ""
    assert get(one, headers=["x-user: alice"])[1].startswith(b"1 ")


def test_stick_on(one, daemon):
    """The same user goes to the same server, also after a reload; a dead server is left."""
    servers = [ScriptedServer(one, "127.0.0.1", 9001 + i, keepalive_server(b"s%d" % i)) for i in range(3)]
    text = DEFAULTS + """
listen web
    bind 127.0.0.1:8000
    balance roundrobin
    option redispatch
    retries 1
    stick-table type string len 20 size 1k expire 1h
    stick on hdr(x-user)
    server s0 127.0.0.1:9001
    server s1 127.0.0.1:9002
    server s2 127.0.0.1:9003
"""
    d = daemon(one, text)
    home = {}
    for u in "abcdef":
        home[u] = get(one, headers=[f"x-user: {u}"])[1]
    assert len(set(home.values())) == 3
    for u in "fedcba" * 3:
        assert get(one, headers=[f"x-user: {u}"])[1] == home[u]
    assert {get(one)[1] for _ in range(6)} == {b"s0", b"s1", b"s2"}  # no key: no stickiness
    table = entries(d, "web")
    assert {k: v["server_id"] for k, v in table.items()} == {u: int(home[u][1:]) + 1 for u in home}
    # The table outlives a reload, with its entries.
    d.write(text.replace("expire 1h", "expire 2h"))
    d.signal(signal.SIGHUP)
    wait_for("the new expiry", lambda: entries(d, "web")["a"]["exp"] > 4000000, timeout=5 * SLOW)
    for u in "abcdef":
        assert get(one, headers=[f"x-user: {u}"])[1] == home[u]
    # Servers change their numbers: the names count.
    d.write(text.replace("expire 1h", "expire 3h").replace("    server s0", "    server new 127.0.0.1:9\n    server s0"))
    d.signal(signal.SIGHUP)
    wait_for("the new server", lambda: "web,new," in d.cli("show stat"), timeout=5 * SLOW)
    d.cli("set server web/new state maint")
    for u in "abcdef":
        assert get(one, headers=[f"x-user: {u}"])[1] == home[u]
    assert {k: v["server_id"] for k, v in entries(d, "web").items()} == {u: int(home[u][1:]) + 2 for u in home}
    # Its server is in maintenance: another one, which is remembered.
    srv = home["a"].decode()
    d.cli(f"set server web/{srv} state maint")
    moved = get(one, headers=["x-user: a"])[1]
    assert moved != home["a"]
    d.cli(f"set server web/{srv} state ready")
    for _ in range(4):
        assert get(one, headers=["x-user: a"])[1] == moved
    # One that is not to be remembered.
    d.write(text.replace(":9001\n", ":9001 non-stick\n"))
    assert "Success=1" in d.cli("reload")
    home = {u: get(one, headers=[f"x-user: {u}"])[1] for u in "ghijkl"}
    assert set(home.values()) == {b"s0", b"s1", b"s2"}
    assert {u for u in entries(d, "web") if u in home} == {u for u, srv in home.items() if srv != b"s0"}
    for s in servers:
        s.close()


def test_stick_tcp(one, daemon):
    def handle(name):
        def run(server, c, n):
            c.sendall(name)
            c.recv(10)
        return run

    for i in range(3):
        ScriptedServer(one, "127.0.0.1", 9001 + i, handle(b"s%d" % i))
    d = daemon(one, DEFAULTS.replace("mode http", "mode tcp") + """
listen tcp
    bind 127.0.0.1:8000
    balance roundrobin
    stick-table type ip size 100 expire 1m store conn_cnt,conn_cur,bytes_out_cnt
    stick match src
    stick store-request src
    tcp-request content track-sc0 src
    server s0 127.0.0.1:9001
    server s1 127.0.0.1:9002
    server s2 127.0.0.1:9003
""")
    seen = set()
    for _ in range(5):
        with connect(one, "127.0.0.1", 8000) as c:
            seen.add(c.recv(10))
            wait_entry(d, "tcp", "127.0.0.1", conn_cur=1, use=1)
            c.sendall(b"bye")
            assert c.recv(10) == b""
    assert len(seen) == 1
    e = wait_entry(d, "tcp", "127.0.0.1", conn_cur=0, use=0, conn_cnt=5, bytes_out_cnt=10)
    assert e["server_id"] == int(seen.pop()[1:]) + 1


def test_store_response(one, daemon):
    """The server names the session; the client shows it in its next request."""
    def handle(i):
        def run(server, c, n):
            while read_head(c):
                c.sendall(reply(b"s%d" % i, headers=[f"X-Session: sess{i}"]))
        return run

    for i in range(2):
        ScriptedServer(one, "127.0.0.1", 9001 + i, handle(i))
    d = daemon(one, DEFAULTS + """
listen web
    bind 127.0.0.1:8000
    balance roundrobin
    stick-table type string size 100 expire 1m
    stick match req.hdr(x-session)
    stick store-response res.hdr(x-session)
    server s0 127.0.0.1:9001
    server s1 127.0.0.1:9002
""")
    for _ in range(2):
        get(one)
    wait_entry(d, "web", "sess0", server_id=1)
    wait_entry(d, "web", "sess1", server_id=2)
    for i in (1, 1, 0, 1, 0, 0):
        assert get(one, headers=[f"x-session: sess{i}"])[1] == b"s%d" % i


def test_runtime_api(one, daemon):
    d = daemon(one, DEFAULTS + """
frontend web
    bind 127.0.0.1:8000
    http-request return status 204
backend t
    stick-table type integer size 100 expire 1m store gpc0,gpc0_rate(10s),gpt0,conn_cnt
backend arrays
    stick-table type string size 10 store gpc(2),gpc_rate(2,1m),gpt(1)
""")
    for i in range(5):
        assert d.cli(f"set table t key {i} data.gpc0 {i * 10} data.gpt0 1 data.gpc0_rate 4").strip() == ""
    e = entries(d, "t")
    assert sorted(e) == list("01234")
    assert e["3"]["gpc0"] == 30 and e["3"]["gpt0"] == 1 and e["3"]["gpc0_rate(10000)"] in (3, 4)
    assert sorted(entries(d, "t", "data.gpc0 gt 20")) == ["3", "4"]
    assert sorted(entries(d, "t", "data.gpc0 ge 20 data.gpc0 ne 30")) == ["2", "4"]
    assert sorted(entries(d, "t", "key 2")) == ["2"]
    assert entries(d, "t", "key 77") == {}
    assert d.cli("clear table t data.gpc0 lt 20").strip() == ""
    assert sorted(entries(d, "t")) == ["2", "3", "4"]
    assert d.cli("clear table t").strip() == ""
    assert d.cli("show table t").strip() == "# table: t, type: integer, size:100, used:0"
    d.cli("set table arrays key x data.gpc1 5 data.gpc0_rate 6 data.gpt0 7")
    assert re.search(r"key=x use=0 exp=0 shard=0 gpt0=7 gpc0=0 gpc1=5 gpc0_rate\(60000\)=\d gpc1_rate\(60000\)=0",
                     d.cli("show table arrays"))
    for cmd, answer in (
            ("show table nosuch", "No such table"),
            ("show table t data.nosuch gt 1", "Unknown data type"),
            ("show table t data.http_req_cnt gt 1", "Data type not stored in this table"),
            ("show table t data.gpc0 xx 1", "Require and operator among"),
            ("show table t data.gpc0", "Require and operator among"),
            ("show table t data.gpc0 eq x", "Require a valid integer value to compare against"),
            ("show table t bogus", "Optional argument only supports"),
            ("show table t key", "Key value expected"),
            ("set table t key abc data.gpc0 1", "Invalid key"),
            ("set table t", "Required arguments: <table> key <key>"),
            ("clear table", "Required arguments: <table>"),
            ("set table t key 1 data.gpc0", "Require a valid integer value to store"),
            ("set table t key 1 bogus 1", "followed by a value expected"),
            ("set table arrays key x data.gpc2 1", "Data type not stored in this table")):
        assert answer in d.cli(cmd), cmd
    assert entries(d, "t") == {}


def test_expiry_and_full_table(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    d = daemon(one, DEFAULTS + """
listen web
    bind 127.0.0.1:8000
    stick-table type string size 5 expire 2s store http_req_cnt
    http-request track-sc0 hdr(x-user)
    server s1 127.0.0.1:9001
""")
    for i in range(12):
        get(one, headers=[f"x-user: u{i}"])
        time.sleep(0.002)
    assert sorted(entries(d, "web")) == sorted(f"u{i}" for i in range(7, 12))
    wait_for("expiry", lambda: "used:0" in d.cli("show table"), timeout=8 * SLOW)


def test_reload_with_other_data(one, daemon):
    """Open connections stay counted where they are; what both tables store moves over."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server())
    text = DEFAULTS + """
listen web
    bind 127.0.0.1:8000
    stick-table type ip size 100 expire 1h store http_req_cnt,conn_cur
    tcp-request connection track-sc0 src
    server s1 127.0.0.1:9001
"""
    d = daemon(one, text)
    with connect(one, "127.0.0.1", 8000) as c:
        for _ in range(3):
            c.sendall(GET)
            assert read_response(c)[0] == 200
        d.write(text.replace("http_req_cnt,conn_cur", "gpc0,http_req_cnt,conn_cur"))
        d.signal(signal.SIGHUP)
        e = wait_for("the new table", lambda: entries(d, "web").get("127.0.0.1", {}).get("gpc0") == 0
                     and entries(d, "web")["127.0.0.1"], timeout=5 * SLOW)
        assert e["http_req_cnt"] == 3 and e["conn_cur"] == 0
        c.sendall(GET)
        assert read_response(c)[0] == 200
    get(one)
    wait_entry(d, "web", "127.0.0.1", conn_cur=0, use=0, http_req_cnt=4)
