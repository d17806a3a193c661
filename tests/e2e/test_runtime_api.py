# SPDX-License-Identifier: BSD-2-Clause
"""The runtime API as monitoring tools and operators use it."""

import json
import os
import re
import socket
import subprocess
import time

import pytest
from conftest import SLOW, ScriptedServer, connect, keepalive_server, raw, read_response, readable, recv_all, wait_for

CFG = """
global
    nbthread 2
    node testnode
    stats socket {sock} level admin
    stats socket {dir}/oper.sock level operator
    stats socket {dir}/user.sock level user
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 1s
listen web
    bind 127.0.0.1:8000
    balance roundrobin
    server s1 127.0.0.1:9001 weight 10
    server s2 127.0.0.1:9002 weight 10
frontend fe
    bind 127.0.0.1:8001
    default_backend be
backend be
    server s3 127.0.0.1:9001
"""
COLUMNS = """pxname svname qcur qmax scur smax slim stot bin bout dreq dresp ereq econ eresp wretr wredis status weight act bck
chkfail chkdown lastchg downtime qlimit pid iid sid throttle lbtot tracked type rate rate_lim rate_max check_status check_code
check_duration hrsp_1xx hrsp_2xx hrsp_3xx hrsp_4xx hrsp_5xx hrsp_other hanafail req_rate req_rate_max req_tot cli_abrt srv_abrt
comp_in comp_out comp_byp comp_rsp lastsess last_chk last_agt qtime ctime rtime ttime agent_status agent_code agent_duration
check_desc agent_desc check_rise check_fall check_health agent_rise agent_fall agent_health addr cookie mode algo conn_rate
conn_rate_max conn_tot intercepted dcon dses wrew connect reuse cache_lookups cache_hits srv_icur src_ilim qtime_max ctime_max
rtime_max ttime_max eint idle_conn_cur safe_conn_cur used_conn_cur need_conn_est uweight agg_server_status
agg_server_check_status agg_check_status srid sess_other h1sess h2sess h3sess req_other h1req h2req h3req proto priv_idle_cur
reqbin reqbout resbin resbout cache_hint_hits""".split()
STATE = ("# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight "
         "srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state "
         "bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr "
         "srv_agent_port")
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@pytest.fixture
def d(one, daemon):
    one.s1 = ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"s1"))
    one.s2 = ScriptedServer(one, "127.0.0.1", 9002, keepalive_server(b"s2"))
    return daemon(one, CFG)


def who(one, n, port=8000):
    """Which servers answered n requests."""
    return [raw(one, "127.0.0.1", port, LAST)[-2:].decode() for _ in range(n)]


def talk(path, data, shut=False, wait=None):
    """Sends bytes to the socket, returns what comes until it closes."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10 * SLOW)
        s.connect(str(path))
        s.sendall(data)
        if shut:
            s.shutdown(socket.SHUT_WR)
        return recv_all(s).decode()


def test_show_info(d):
    text = d.cli("show info")
    assert text.endswith("\n\n") and not text.endswith("\n\n\n")
    info = dict(x.split(": ", 1) for x in text.strip().splitlines())
    names = list(info)
    assert names[:14] == ["Name", "Version", "Release_date", "Nbthread", "Nbproc", "Process_num", "Pid", "Uptime",
                          "Uptime_sec", "Memmax_MB", "PoolAlloc_MB", "PoolUsed_MB", "PoolFailed", "Ulimit-n"]
    assert names[-2:] == ["PatternsFreed", "NbThreadGroups"]
    assert info["Name"] == "HAProxy" and info["Version"].startswith("3.5")
    assert info["Nbthread"] == "2" and info["node"] == "testnode"
    assert info["Pid"] == str(d.proc.pid) or os.path.exists(f"/proc/{info['Pid']}")
    assert re.fullmatch(r"\d+d \d+h\d\dm\d\ds", info["Uptime"])
    typed = d.cli("show info typed").strip().splitlines()
    assert typed[0].startswith("0.Name.1:") and typed[0].endswith(":str:HAProxy")
    assert [x.split(".")[0] for x in typed] == [str(i) for i in range(len(typed))]
    assert {x["field"]["name"] for x in json.loads(d.cli("show info json"))} == set(names)


def test_show_stat_columns(d):
    text = d.cli("show stat")
    assert text.endswith("\n\n")
    lines = text.rstrip("\n").splitlines()
    head = lines[0].split(",")
    assert lines[0].startswith("# pxname,svname,") and lines[0].endswith(",")
    assert [head[0][2:], *head[1:119]] == COLUMNS
    assert head[119] == "-"
    rows = [line.split(",") for line in lines[1:]]
    assert [(r[0], r[1]) for r in rows] == [("web", "FRONTEND"), ("web", "s1"), ("web", "s2"), ("web", "BACKEND"),
                                            ("fe", "FRONTEND"), ("be", "s3"), ("be", "BACKEND")]
    assert {len(r) for r in rows} == {len(head)}
    assert [r[32] for r in rows] == ["0", "2", "2", "1", "0", "2", "1"]
    assert [r[17] for r in rows] == ["OPEN", "no check", "no check", "UP", "OPEN", "no check", "UP"]
    assert [r[27] for r in rows] == ["2", "2", "2", "2", "3", "4", "4"]  # ids begin at 2 behind a stats socket


def test_show_stat_filters_and_forms(d):
    assert len(d.cli("show stat web 4 -1").strip().splitlines()) == 3
    assert len(d.cli("show stat -1 2 -1").strip().splitlines()) == 3
    assert len(d.cli("show stat 2 4 2").strip().splitlines()) == 2
    typed = d.cli("show stat typed")
    assert re.search(r"^F\.2\.0\.7\.stot\.1:MCP[PV]:u64:\d+$", typed, re.M), typed[:2000]
    assert re.search(r"^S\.2\.1\.17\.status\.1:\S+:str:no check$", typed, re.M)
    rows = json.loads(d.cli("show stat json"))
    first = {f["field"]["name"]: f["value"]["value"] for f in rows[0]}
    assert (first["pxname"], first["svname"]) == ("web", "FRONTEND")


def test_counters_are_exact(one, d):
    n = 12
    sizes = [len(raw(one, "127.0.0.1", 8000, LAST)) for _ in range(n)]
    wait_for("sessions to end", lambda: d.stat("web", "FRONTEND")["scur"] == "0")
    fe, be, s1, s2 = (d.stat("web", x) for x in ("FRONTEND", "BACKEND", "s1", "s2"))
    assert [fe["stot"], fe["req_tot"], fe["conn_tot"], fe["hrsp_2xx"]] == [str(n)] * 4
    assert [be["stot"], be["lbtot"], be["hrsp_2xx"], be["req_tot"]] == [str(n)] * 4
    assert [s1["stot"], s2["stot"], s1["lbtot"], s2["lbtot"]] == [str(n // 2)] * 4
    assert fe["bin"] == str(n * len(LAST)) and fe["bout"] == str(sum(sizes))
    assert int(s1["bin"]) + int(s2["bin"]) == n * len(LAST) and int(s1["bout"]) + int(s2["bout"]) == sum(sizes)
    assert fe["scur"] == be["scur"] == s1["scur"] == "0"
    assert int(fe["smax"]) >= 1
    info = dict(x.split(": ", 1) for x in d.cli("show info").strip().splitlines())
    assert info["CumReq"] == str(n) and info["CumConns"] == str(n)
    raw(one, "127.0.0.1", 8000, b"junk\r\n\r\n")
    assert d.stat("web", "FRONTEND")["ereq"] == "1"
    assert d.stat("web", "FRONTEND")["hrsp_4xx"] == "1"
    assert d.stat("web", "BACKEND")["stot"] == str(n)
    d.cli("clear counters all")
    assert d.stat("web", "FRONTEND")["stot"] == "0" and d.stat("web", "s1")["bout"] == "0"


def test_counters_live_in_bpf_maps(one, d):
    """bpftool sees them move."""
    def dump():
        done = one.run("bpftool -j map dump pinned /sys/fs/bpf/headgate/stats_backends", check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    before = dump()
    who(one, 3)
    assert dump() != before


def test_show_servers_state(d):
    lines = d.cli("show servers state").split("\n")
    assert lines[0] == "1" and lines[1] == STATE
    assert lines[2].split(" ")[:9] == ["2", "web", "1", "s1", "127.0.0.1", "2", "0", "10", "10"]
    assert lines[2].split(" ")[18] == "9001"
    assert len(lines[2].split(" ")) == 25
    assert lines[-2:] == ["", ""] and len(lines) == 7
    assert len(d.cli("show servers state be").split("\n")) == 5
    assert "Can't find backend" in d.cli("show servers state nope")


def test_show_sess(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, lambda s, c, n: recv_all(c))
    ScriptedServer(one, "127.0.0.1", 9002, lambda s, c, n: recv_all(c))
    d = daemon(one, CFG)
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nab")
        wait_for("the stream", lambda: "web" in d.cli("show sess"))
        line = next(x for x in d.cli("show sess").splitlines() if "web" in x)
        assert re.match(r"0x[0-9a-f]+: proto=tcpv4 src=127\.0\.0\.1:\d+ fe=web be=web srv=s[12] ts=\S+ ", line), line
        assert " age=" in line and " calls=" in line
        sess = line.split(":")[0]
        assert sess in d.cli(f"show sess {sess}")
        assert "src=127.0.0.1" in d.cli("show sess all")
        assert d.cli("shutdown session 0x12345678").strip() == "No such session (use 'show sess')."
        assert d.cli(f"shutdown session {sess}x").strip() == "Session pointer expected (use 'show sess')."
        assert d.cli(f"shutdown session {sess}").strip() == ""
        assert recv_all(c).startswith((b"", b"HTTP/1.1 5"))
    wait_for("its end", lambda: "fe=web" not in d.cli("show sess"))


def test_set_server_state(one, d):
    assert set(who(one, 6)) == {"s1", "s2"}
    assert d.cli("set server web/s1 state drain").strip() == ""
    assert d.stat("web", "s1")["status"] == "DRAIN"
    assert who(one, 6) == ["s2"] * 6
    d.cli("set server web/s1 state maint")
    assert d.stat("web", "s1")["status"] == "MAINT"
    assert who(one, 6) == ["s2"] * 6
    row = next(x for x in d.cli("show servers state web").splitlines() if " s1 " in x).split(" ")
    assert row[5:7] == ["0", "1"]
    d.cli("set server web/s2 state maint")
    assert d.stat("web", "BACKEND")["status"] == "DOWN"
    assert raw(one, "127.0.0.1", 8000, LAST).startswith(b"HTTP/1.1 503")
    d.cli("set server web/s1 state ready")
    assert d.stat("web", "s1")["status"] == "no check"
    assert who(one, 4) == ["s1"] * 4
    d.cli("enable server web/s2")
    assert set(who(one, 6)) == {"s1", "s2"}
    d.cli("disable server web/s2")
    assert d.stat("web", "s2")["status"] == "MAINT"
    assert "No such server" in d.cli("set server web/nope state ready")
    assert "No such backend" in d.cli("set server nope/s1 state ready") or "No such server" in d.cli("set server nope/s1 state ready")
    assert "state" in d.cli("set server web/s1 state sideways")


def test_drain_keeps_open_sessions(one, daemon):
    """A session in progress goes on in drain and in maintenance."""
    def handle(s, c, n):
        while data := c.recv(100):
            c.sendall(data.upper())

    ScriptedServer(one, "127.0.0.1", 9001, handle)
    d = daemon(one, "defaults\n  mode tcp\n  timeout client 5s\n  timeout server 5s\n  timeout connect 1s\n"
                    "listen t\n  bind 127.0.0.1:8000\n  server s1 127.0.0.1:9001\n")
    with connect(one, "127.0.0.1", 8000) as c:
        c.sendall(b"a")
        assert c.recv(10) == b"A"
        for state in ("drain", "maint"):
            d.cli(f"set server t/s1 state {state}")
            c.sendall(state.encode())
            assert c.recv(10) == state.upper().encode()
        assert raw(one, "127.0.0.1", 8000, b"x") == b""
        d.cli("shutdown sessions server t/s1")
        assert recv_all(c).replace(b"<RESET>", b"") == b""


def test_set_weight(one, d):
    assert d.cli("get weight web/s1").startswith("10 (initial 10)\n")
    d.cli("set weight web/s1 30")
    assert d.cli("get weight web/s1").startswith("30 (initial 10)\n")
    assert d.stat("web", "s1")["weight"] == "30"
    names = who(one, 40)
    assert names.count("s1") == 30
    d.cli("set weight web/s1 50%")
    assert d.cli("get weight web/s1").startswith("5 (initial 10)\n")
    d.cli("set server web/s1 weight 0")
    assert who(one, 4) == ["s2"] * 4
    assert d.cli("set weight web/s1 300").strip() != ""
    assert d.cli("set weight web/s1 x").strip() != ""


def test_set_server_addr_and_maxconn(one, d):
    ScriptedServer(one, "127.0.0.1", 9005, keepalive_server(b"s5"))
    d.cli("set server be/s3 addr 127.0.0.1 port 9005")
    assert d.stat("be", "s3")["addr"] == "127.0.0.1:9005"
    assert who(one, 3, port=8001) == ["s5"] * 3
    d.cli("set maxconn server be/s3 7")
    assert d.stat("be", "s3")["slim"] == "7"
    d.cli("set maxconn global 55")
    assert "Maxconn: 55" in d.cli("show info")


def test_disable_frontend(one, d):
    assert d.cli("disable frontend fe").strip() == ""
    assert d.stat("fe", "FRONTEND")["status"] in ("PAUSED", "STOP")
    with connect(one, "127.0.0.1", 8001, timeout=5) as c:
        c.sendall(LAST)
        c.settimeout(0.3)
        with pytest.raises(TimeoutError):
            c.recv(1)
        d.cli("enable frontend fe")
        c.settimeout(5 * SLOW)
        assert read_response(c)[2] == b"s1"
    assert d.stat("fe", "FRONTEND")["status"] == "OPEN"


def test_several_commands_and_half_close(d):
    out = talk(d.sock, b"show version; get weight web/s1;get weight web/s2\n", shut=True)
    assert out.count("10 (initial 10)\n\n") == 2 and out.startswith("3.5")
    out = talk(d.sock, b"show info;show stat;show servers state;help\n", shut=True)
    for part in ("Name: HAProxy", "# pxname", STATE, "show sess"):
        assert part in out
    # without a newline the end of the stream ends the command
    assert "Name: HAProxy" in talk(d.sock, b"show info", shut=True)
    # one line is one round: what follows is not read
    assert talk(d.sock, b"show version\nget weight web/s1\n").count("initial") == 0


def test_unknown_commands(d):
    for line in ("bogus", "show", "show bogus", "set", "set server", "", "   ", "x" * 20000, "show stat \\", "\x01\x02"):
        out = d.cli(line, check=False)
        if line.strip():
            assert out.strip(), line[:20]
            assert out.endswith("\n\n") or len(line) > 1000, (line[:20], out[-50:])
    assert "Unknown command" in d.cli("bogus")
    assert "show stat" in d.cli("bogus")
    assert "Name:" in d.cli("show info")


def test_levels(d):
    user, oper = d.dir / "user.sock", d.dir / "oper.sock"
    assert "Name: HAProxy" in talk(user, b"show info\n")
    assert "Permission denied" in talk(user, b"set weight web/s1 1\n")
    assert "Permission denied" in talk(oper, b"set weight web/s1 1\n")
    assert "Permission denied" in talk(user, b"show sess\n") or talk(user, b"show sess\n").strip() == ""
    assert d.cli("get weight web/s1").startswith("10 ")
    assert "Permission denied" in talk(d.sock, b"user;set weight web/s1 1\n")


class Prompt:
    """An interactive session."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(5 * SLOW)
        self.s.connect(str(path))
        self.s.sendall(b"prompt\n")
        assert self.until().endswith("\n> ")

    def until(self):
        out = b""
        while not out.endswith(b"\n> "):
            chunk = self.s.recv(65536)
            assert chunk, out
            out += chunk
        return out.decode()

    def ask(self, line):
        self.s.sendall(line.encode() + b"\n")
        return self.until()


def test_prompt(d):
    p = Prompt(d.sock)
    assert p.ask("get weight web/s1") == "10 (initial 10)\n\n> "
    assert "Name: HAProxy" in p.ask("show info")
    assert p.ask("set timeout cli 60") == "\n> "
    assert "Unknown command" in p.ask("nonsense")
    assert p.ask("set weight web/s1 3; get weight web/s1").count("3 (initial 10)") == 1
    p.s.sendall(b"quit\n")
    assert p.s.recv(100).strip() == b""


def test_many_clients_of_the_api(d):
    """Clients that do not read, or never finish a line, do not hold up others."""
    held = []
    for _ in range(50):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(d.sock))
        s.sendall(b"prompt\n" + b"show stat;" * 50 + b"\n")
        held.append(s)
    assert "Name: HAProxy" in d.cli("show info", timeout=10)
    for s in held:
        s.close()


def test_hatop(one, d):
    """The Debian package's screen shows our sections, and its keys work."""
    who(one, 4)
    master, slave = os.openpty()
    import fcntl
    import struct
    import termios
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    proc = subprocess.Popen(one.cmd(["hatop", "-s", d.sock, "-i", "1"]), stdin=slave, stdout=slave, stderr=slave,
                            env={**os.environ, "TERM": "xterm", "LINES": "40", "COLUMNS": "160"}, start_new_session=True)
    os.close(slave)
    out = b""

    def drain(seconds):
        nonlocal out
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if readable([master], 0.1):
                try:
                    out += os.read(master, 65536)
                except OSError:
                    return

    try:
        end = time.monotonic() + 20 * SLOW
        while b"BACKEND" not in out and time.monotonic() < end and proc.poll() is None:
            drain(0.3)
        text = out.decode(errors="replace")
        assert "Traceback" not in text, text
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]", " ", text)
        for word in ("HAProxy Version", "web", "FRONTEND", "BACKEND", "s1", "s2"):
            assert word in plain, (word, plain[-4000:])
        os.write(master, b"q")
        drain(1.0)
        assert proc.wait(20 * SLOW) == 0
        assert b"Traceback" not in out
    finally:
        if proc.poll() is None:
            proc.kill()
            proc.wait()
        os.close(master)


def test_the_process_itself(d, one):
    threads = d.cli("show threads").splitlines()
    assert threads[0].startswith("* Thread control: ") and len([t for t in threads if "Thread worker" in t]) == 2
    assert re.search(r"^Total: [1-9]\d+ bytes allocated, [1-9]\d+ used, 0 failures\.$", d.cli("show pools"), re.M)
    with connect(one, "127.0.0.1", 8000) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        read_response(s)
        fds = d.cli("show fd")
        host, port = s.getsockname()
        assert re.search(rf"^ +\d+ : connection local=127.0.0.1:8000 peer={host}:{port} ", fds, re.M)
    assert len(re.findall(r"^ +\d+ : listener local=127.0.0.1:8000 ", fds, re.M)) == 2  # a socket per worker
    last = max(int(n) for n in re.findall(r"^ *(\d+) :", fds, re.M))
    assert " : listener local=127.0.0.1:8000 " not in d.cli(f"show fd {last + 1}")
    assert "expects a number" in d.cli("show fd x")
    assert d.cli("show cli level") == "admin\n\n"
    assert d.cli("expert-mode on; expert-mode; experimental-mode").split("\n\n")[:2] == ["\nexpert mode is ON",
                                                                                       "experimental mode is OFF"]


def test_limit_and_end_of_a_frontend(d, one):
    assert d.stat("fe", "FRONTEND")["slim"] != "1"
    assert d.cli("set maxconn frontend fe 1") == "\n"
    assert d.stat("fe", "FRONTEND")["slim"] == "1"
    # Two workers may exceed a limit by one each; with three connections one waits, until the limit is raised.
    held = [connect(one, "127.0.0.1", 8001, timeout=20) for _ in range(4)]
    for s in held:
        s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_for("the limit", lambda: sum(int(r.split()[-1]) for r in
                                      re.findall(r"^\d+ .*$", d.cli("show activity"), re.M)) > 0)
    answered = readable(held, 0.5)
    assert len(answered) < 4
    assert int(d.stat("fe", "FRONTEND")["scur"]) <= 3
    assert d.cli("set maxconn frontend fe 10") == "\n"
    for s in held:
        assert read_response(s)[0] == 200
    # A reload of the same file keeps what was set.
    assert "Success=1" in d.cli("reload") and d.stat("fe", "FRONTEND")["slim"] == "10"
    assert d.cli("shutdown frontend fe") == "\n"

    def refused():
        try:
            connect(one, "127.0.0.1", 8001).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_for("the port to be closed", refused)
    assert d.stat("fe", "FRONTEND")["status"] == "STOP"
    held[0].sendall(LAST)  # who is there goes on
    assert read_response(held[0])[0] == 200
    assert "already shut down" in d.cli("shutdown frontend fe")
    assert "cannot enable" in d.cli("enable frontend fe")
    assert "No such frontend." in d.cli("shutdown frontend nosuch")
    assert "Success=1" in d.cli("reload")
    assert raw(one, "127.0.0.1", 8001, LAST).startswith(b"HTTP/1.1 200")
    assert d.stat("fe", "FRONTEND")["status"] == "OPEN"
    for s in held:
        s.close()


def test_show_errors(one, daemon):
    def liar(_, conn, _n):
        conn.recv(4096)
        conn.sendall(b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n")

    one.liar = ScriptedServer(one, "127.0.0.1", 9001, liar)
    d = daemon(one, CFG + "listen quiet\n    bind 127.0.0.1:8009\n")
    stamp = r"\[\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d\.\d{3}\]"
    assert re.fullmatch(rf"Total events captured on {stamp} : 0\n\n", d.cli("show errors"))
    long = b"x" * 70
    raw(one, "127.0.0.1", 8000, b"GET / HTTP/1.1\r\nHost: a\r\nlong: " + long + b"\\\r\nbad\t\x01name: 1\r\n\r\n")
    raw(one, "127.0.0.1", 8001, LAST)
    text = wait_for("both events", lambda: (t := d.cli("show errors")) and ": 2\n" in t and t)
    head, req, rsp = text.split(" \n[")
    assert re.fullmatch(rf"Total events captured on {stamp} : 2\n", head)
    req = req.splitlines()
    assert re.fullmatch(rf"{stamp[2:]} frontend web \(#2\): invalid request", req[0]), req[0]
    assert re.fullmatch(r"  backend <NONE> \(#-1\), server <NONE> \(#-1\), event #0, src 127\.0\.0\.1:\d+", req[1]), req[1]
    assert re.fullmatch(r"  buffer starts at 0 \(including 0 out\), \d+ free,", req[2]), req[2]
    assert re.fullmatch(r"  len 120, wraps at \d+, error at position 107", req[3]), req[3]
    assert req[5] == "  H1 msg state MSG_HDR_NAME(17), H1 msg flags 0x00000000"
    assert req[7].startswith("  reason: field name is not a token")
    assert req[9:] == [r"  00000  GET / HTTP/1.1\r\n", r"  00016  Host: a\r\n",
                       "  00025  long: " + "x" * 64, "  00095+ " + "x" * 6 + r"\\\r\n",
                       r"  00104  bad\t\x01name: 1\r\n", r"  00118  \r\n"], req[9:]
    rsp = rsp.splitlines()
    assert re.fullmatch(rf"{stamp[2:]} backend be \(#4\): invalid response", rsp[0]), rsp[0]
    assert re.match(r"  frontend fe \(#3\), server s3 \(#1\), event #1, src 127\.0\.0\.1:", rsp[1]), rsp[1]
    assert rsp[5].startswith("  H1 msg state MSG_HDR_NAME(17)")

    def shown(args):
        return re.findall(r"invalid (\w+)", d.cli(f"show errors {args}"))

    assert [shown(x) for x in ("web", "be", "3", "quiet", "-1 request", "response", "be request")] == [
        ["request"], ["response"], ["response"], [], ["request"], ["response"], []]
    assert d.cli("show errors nope").strip() == "No such proxy."


def test_profiling(d, one):
    """Functions by name with what they cost; nothing while it is off; every change begins anew."""
    assert re.search(r"^Per-task CPU profiling +: auto +\t# set profiling tasks \{on\|auto\|off\}$", d.cli("show profiling status"), re.M)
    assert d.cli("set profiling tasks on").strip() == ""

    def rows(order=""):
        out = d.cli(f"show profiling tasks {order}")
        assert re.match(r"Tasks activity( over \d+\.\d{3} sec till \d+\.\d{3} sec ago)?:\n  function +calls +cpu_tot +cpu_avg +lat_tot +lat_avg\n", out)
        return [line.split() for line in out.split("\n")[2:] if line]

    def handled():
        who(one, 2)
        return [r for r in rows("bytime") if re.match(r"[a-z_]+$", r[0]) and int(r[1]) >= 2]

    row = wait_for("a function by name", handled)[0]
    assert all(re.match(r"\d+(\.\d+)?(ns|us|ms|s)$", t) for t in row[2:]), row
    assert len(rows("2")) <= 2 and len(rows("byaddr aggr")) >= 1
    calls = [int(r[1]) for r in rows()]
    assert calls == sorted(calls, reverse=True)
    assert d.cli("set profiling tasks off").strip() == ""
    wait_for("nothing", lambda: who(one, 1) and rows() == [])
    assert "Expects 'on', 'auto', or 'off'." in d.cli("set profiling tasks maybe")
    assert "Expects either 'tasks' or 'memory'." in d.cli("set profiling dreams on")
    assert "Memory profiling not compiled in." in d.cli("set profiling memory on")
    assert "Expects either 'all', 'status'" in d.cli("show profiling everything")


def test_severity(one, daemon):
    """Messages say how bad it is, where the socket or the client wants that; what was asked for does not."""
    d = daemon(one, CFG.replace("level admin", "level admin severity-output number", 1))
    assert d.cli("set server web/s1 addr nonsense").strip() == "[3]: Invalid addr family."
    assert d.cli("set server web/s1 addr 127.0.0.2").startswith("[6]: IP changed from ")
    assert d.cli("set severity-output string;set server web/s9 weight 1").strip() == "[err]: No such server."
    assert d.cli("show cli level").strip() == "admin" and d.cli("show stat").startswith("# pxname")
    assert d.cli("set severity-output none;set server web/s9 weight 1").strip() == "No such server."
    assert "expects none, number or string" in d.cli("set severity-output loud")
