# SPDX-License-Identifier: BSD-2-Clause
"""Four configurations as people have them, unchanged but for addresses and certificate paths."""

import grp
import hashlib
import os
import pwd
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from conftest import (HEADGATED, SLOW, Daemon, HostSocket, ScriptedServer, Syslog, connect, keepalive_server,
                      make_cert, raw, read_head, read_response, recv_all, reply, start_nginx, wait_for)

A = """\
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 1s
listen px
  bind :8000
  balance random
  server s1 172.31.36.194:8000
"""

B = """\
global
  daemon
  stats socket /var/run/haproxy.sock mode 600 level admin
  log /dev/log local4
  maxconn 20
defaults
  log global
  timeout connect 4000
  timeout client 42000
  timeout server 43000
listen lampros-pool-1
  bind *:80
  mode http
  balance roundrobin
  fullconn 20
  server go_http_server_1 127.0.0.1:8080 cookie go_http_server_1 check inter 2000 rise 2 fall 3
"""

C = """\
global
  daemon
  pidfile /var/run/haproxy.pid
  user haproxy
  group haproxy
  crt-base /etc/haproxy/crt
  nbproc 56
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout connect 10000ms
  timeout client 30000ms
  timeout server 30000ms
frontend http-in
  bind :443 ssl crt ecc/combined-ecc.crt
  monitor-uri /test
  default_backend servers
"""

D = """\
listen IPerf10
  bind 10.0.1.10:5001 transparent
  mode tcp
  option abortonclose
  server Real1 10.0.1.11:5001 weight 100
"""


def replace(text, *pairs):
    """Adapts addresses and paths; what is not there would mean that the text is another one."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, str(new))
    return text


def is_gone(pid):
    """Ended, whether or not its parent (process 1) has noticed yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def background(one):
    """Starts a configuration with `daemon` in it; the process in the background is ended afterwards."""
    pids = []

    def start(text, *args):
        cfg = one.lab.dir / "d.cfg"
        cfg.write_text(text, encoding="utf-8")
        pidfile = one.lab.dir / "d.pid"
        done = one.run([HEADGATED, "-p", pidfile, *args, "-f", cfg], check=False)
        if done.returncode == 0 and pidfile.exists():
            pids.append(int(pidfile.read_text(encoding="ascii")))
        return done, pids[-1] if pids else None

    yield start
    for pid in pids:
        try:
            os.kill(pid, signal.SIGTERM)
            wait_for("the daemon to end", lambda: is_gone(pid), timeout=5 * SLOW)
        except ProcessLookupError:
            pass
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise


def cli(path, command):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10 * SLOW)
        s.connect(str(path))
        s.sendall(command.encode() + b"\n")
        return recv_all(s).decode()


def stat(path, px, sv):
    lines = cli(path, "show stat").lstrip("# ").splitlines()
    names = lines[0].split(",")
    return next(r for r in (dict(zip(names, x.split(","))) for x in lines[1:] if x) if (r["pxname"], r["svname"]) == (px, sv))


# --- a ----------------------------------------------------------------------------------------------


def test_a_plain_forwarder(lab, daemon):
    """Verbatim: the addresses exist on this network."""
    lan, client, edge, web = lab.switch(), lab.host("client"), lab.host("edge"), lab.host("web")
    for h, a in ((client, "172.31.36.1/24"), (edge, "172.31.36.2/24"), (web, "172.31.36.194/24")):
        lab.plug(lan, h)
        h.addr("eth0", a)
    start_nginx(web, ["8000"])
    (lab.dir / "files" / "f").write_bytes(os.urandom(1 << 20))
    daemon(edge, A)
    out = client.run("curl -sS -m 5 -i http://172.31.36.2:8000/").stdout
    assert "HTTP/1.1 200 OK" in out and "hello from web" in out
    out = client.run("curl -sS -m 5 http://172.31.36.2:8000/file/f | sha256sum").stdout
    assert out.split()[0] == hashlib.sha256((lab.dir / "files" / "f").read_bytes()).hexdigest()
    out = client.run("curl -sS -m 5 " + "http://172.31.36.2:8000/ " * 20 + " -w '%{num_connects}\\n'").stdout
    assert out.count("hello from web") == 20
    assert client.run("h2load --h1 -n 500 -c 20 -t 1 http://172.31.36.2:8000/").stdout.count("500 succeeded") == 1
    # IPv6 as well: ":8000" is IPv4 only in HAProxy, `*` and `:` mean 0.0.0.0
    assert "0.0.0.0:8000" in edge.run("ss -ltn").stdout


# --- b ----------------------------------------------------------------------------------------------


class UnixLog:
    """A syslog daemon's socket."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.sock.settimeout(5)

    def wait(self, pattern):
        end = time.monotonic() + 5 * SLOW
        seen = []
        while time.monotonic() < end:
            try:
                line = self.sock.recv(65536).decode()
            except TimeoutError:
                break
            seen.append(line)
            if m := re.search(pattern, line):
                return m
        raise AssertionError(f"no line like {pattern} in {seen}")


def config_b(d):
    return replace(B, ("/var/run/haproxy.sock", d / "b.sock"), ("/dev/log", d / "log"))


def test_b_checked_server(one, background):
    d = one.lab.dir
    log = UnixLog(d / "log")
    srv = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server(b"go"))
    done, pid = background(config_b(d))
    assert done.returncode == 0, done.stderr
    assert pid and pid != 1
    assert os.stat(d / "b.sock").st_mode & 0o777 == 0o600
    assert "Maxconn: 20" in cli(d / "b.sock", "show info")
    for _ in range(3):
        out = raw(one, "127.0.0.1", 80, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert out.endswith(b"go")
    m = log.wait(r"^<(\d+)>.*: Connect from 127\.0\.0\.1:\d+ to 127\.0\.0\.1:80 \(lampros-pool-1/HTTP\)")
    assert int(m[1]) == 20 * 8 + 6
    row = stat(d / "b.sock", "lampros-pool-1", "go_http_server_1")
    assert row["status"].startswith("UP") and row["cookie"] == "go_http_server_1"
    wait_for("a check to have passed", lambda: stat(d / "b.sock", "lampros-pool-1", "go_http_server_1")["check_status"]
             .endswith("L4OK"), timeout=5 * SLOW)
    srv.close()
    os.unlink(d / "log")


def test_b_connections_beyond_maxconn_wait(one, background):
    d = one.lab.dir
    free = threading.Event()
    ScriptedServer(one, "127.0.0.1", 8080,
                   lambda s, c, n: read_head(c) and (free.wait(20), c.sendall(reply(b"go", headers=["Connection: close"]))))
    done, pid = background(config_b(d))
    assert done.returncode == 0, done.stderr
    get = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    first = [connect(one, "127.0.0.1", 80, timeout=20) for _ in range(20)]
    for c in first:
        c.sendall(get)
    wait_for("the limit", lambda: "CurrConns: 20" in cli(d / "b.sock", "show info"))
    more = [connect(one, "127.0.0.1", 80, timeout=20) for _ in range(10)]
    for c in more:
        c.sendall(get)
    time.sleep(0.3)
    assert "CurrConns: 20" in cli(d / "b.sock", "show info")
    for c in more:
        c.setblocking(False)
        with pytest.raises(BlockingIOError):
            c.recv(1)
        c.settimeout(20 * SLOW)
    free.set()
    for c in first + more:
        assert read_response(c)[2] == b"go"
        c.close()
    wait_for("all to be gone", lambda: "CurrConns: 0" in cli(d / "b.sock", "show info"))
    assert stat(d / "b.sock", "lampros-pool-1", "FRONTEND")["stot"] == "30"


def test_b_health_check_takes_the_server_out_and_in(one, background):
    d = one.lab.dir
    srv = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server(b"go"))
    text = replace(config_b(d), ("inter 2000", "inter 100"))
    done, pid = background(text)
    assert done.returncode == 0, done.stderr
    s = d / "b.sock"
    status = lambda: stat(s, "lampros-pool-1", "go_http_server_1")["status"]  # noqa: E731
    wait_for("UP", lambda: status() == "UP", timeout=5 * SLOW)
    srv.sock.shutdown(socket.SHUT_RDWR)
    srv.close()
    wait_for("DOWN", lambda: status() == "DOWN", timeout=5 * SLOW)
    out = raw(one, "127.0.0.1", 80, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert out.startswith(b"HTTP/1.1 503 ")
    srv = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server(b"go"))
    wait_for("UP again", lambda: status() == "UP", timeout=5 * SLOW)
    assert raw(one, "127.0.0.1", 80, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").endswith(b"go")
    row = stat(s, "lampros-pool-1", "go_http_server_1")
    assert int(row["chkdown"]) == 1 and int(row["chkfail"]) >= 3


# --- c ----------------------------------------------------------------------------------------------


def config_c(d):
    (d / "crt" / "ecc").mkdir(parents=True, exist_ok=True)
    if not (d / "crt/ecc/combined-ecc.crt").exists():
        make_cert(d / "crt/ecc/combined-ecc.crt", ["site.example"])
    pw = pwd.getpwnam("nobody")
    return replace(C, ("/etc/haproxy/crt", d / "crt"), ("/var/run/haproxy.pid", d / "c.pid"),
                   ("user haproxy", "user nobody"), ("group haproxy", f"group {grp.getgrgid(pw.pw_gid).gr_name}"))


def test_c_missing_backend_is_explained(one):
    d = one.lab.dir
    (d / "c.cfg").write_text(config_c(d), encoding="ascii")
    done = one.run([HEADGATED, "-f", d / "c.cfg"], check=False)
    assert done.returncode == 1
    line = config_c(d).splitlines().index("  default_backend servers") + 1
    m = re.search(rf"{re.escape(str(d / 'c.cfg'))}:{line}.*", done.stderr)
    assert m, done.stderr
    assert "servers" in m[0]
    assert re.search(r"add .*backend servers", done.stderr), done.stderr
    assert not (d / "c.pid").exists()
    assert "nbproc" in done.stderr


def test_c_serves_with_a_backend(one, background):
    d = one.lab.dir
    ScriptedServer(one, "127.0.0.1", 8081, keepalive_server(b"behind tls"))
    done, _ = background(config_c(d) + "backend servers\n  server s1 127.0.0.1:8081\n")
    assert done.returncode == 0, done.stderr
    assert re.search(r"WARNING.*nbproc.*(thread|worker)", done.stderr, re.I), done.stderr
    pid = int((d / "c.pid").read_text(encoding="ascii")) if (d / "c.pid").exists() else None
    pid = pid or int((d / "d.pid").read_text(encoding="ascii"))  # -p wins
    out = one.run(["curl", "-sS", "-m", "5", "--cacert", d / "crt/ecc/combined-ecc.crt", "--resolve",
                   "site.example:443:127.0.0.1", "https://site.example/x", "-w", " %{http_code}"]).stdout
    assert out == "behind tls 200"
    out = one.run(["curl", "-skS", "-m", "5", "-i", "https://127.0.0.1/test"]).stdout
    assert re.match(r"HTTP/(1.[01]|2) 200", out) and "behind" not in out
    status = open(f"/proc/{pid}/status", encoding="ascii").read()
    pw = pwd.getpwnam("nobody")
    assert re.search(rf"^Uid:\t{pw.pw_uid}\t{pw.pw_uid}\t", status, re.M)
    assert re.search(rf"^Gid:\t{pw.pw_gid}\t{pw.pw_gid}\t", status, re.M)


def test_c_pidfile_of_the_configuration(one, daemon):
    d = one.lab.dir
    cfg = d / "c2.cfg"
    cfg.write_text(config_c(d) + "backend servers\n  server s1 127.0.0.1:8081\n", encoding="ascii")
    done = one.run([HEADGATED, "-f", cfg], check=False)
    assert done.returncode == 0, done.stderr
    pid = int((d / "c.pid").read_text(encoding="ascii"))
    try:
        assert "headgated" in open(f"/proc/{pid}/cmdline", encoding="ascii").read()
        assert "headgated" in one.run(["ss", "-ltnp", "sport = :443"]).stdout
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_for("the daemon to end", lambda: is_gone(pid), timeout=5 * SLOW)


# --- d ----------------------------------------------------------------------------------------------


def test_d_tcp_transparent(lab, daemon):
    """Verbatim; the address of the bind line need not exist on the edge: that is what `transparent` is for."""
    lan, client, edge, real = lab.switch(), lab.host("client"), lab.host("edge"), lab.host("real")
    for h, a in ((client, "10.0.1.1/24"), (edge, "10.0.1.2/24"), (real, "10.0.1.11/24")):
        lab.plug(lan, h)
        h.addr("eth0", a)
    # what an operator of such a setup has: traffic for the address is delivered here
    edge.run("ip route add local 10.0.1.10/32 dev lo")
    edge.sysctl("net.ipv4.ip_nonlocal_bind", 0)
    client.run("ip route add 10.0.1.10/32 via 10.0.1.2")
    data = os.urandom(1 << 20) * 8
    got = []

    def handle(s, c, n):
        sha, size = hashlib.sha256(), 0
        while chunk := c.recv(1 << 18):
            sha.update(chunk)
            size += len(chunk)
        got.append(size)
        c.sendall(sha.hexdigest().encode())

    ScriptedServer(real, "10.0.1.11", 5001, handle)
    d = daemon(edge, D)
    out = raw(client, "10.0.1.10", 5001, data, timeout=20, shut=True)
    assert out.decode() == hashlib.sha256(data).hexdigest()
    assert got == [len(data)]
    row = d.stat("IPerf10", "Real1")
    assert (row["weight"], row["status"], row["mode"]) == ("100", "no check", "tcp")


def test_d_iperf(lab, daemon):
    lan, client, edge, real = lab.switch(), lab.host("client"), lab.host("edge"), lab.host("real")
    for h, a in ((client, "10.0.1.1/24"), (edge, "10.0.1.2/24"), (real, "10.0.1.11/24")):
        lab.plug(lan, h)
        h.addr("eth0", a)
    edge.addr("lo", "10.0.1.10/32")
    real.popen(["iperf3", "-s", "-p", "5001", "-1"], log="iperf.log")
    wait_for("iperf", lambda: ":5001 " in real.run("ss -ltn").stdout)
    daemon(edge, D)
    done = client.run("iperf3 -c 10.0.1.10 -p 5001 -t 1 -P 2 -J", timeout=30)
    assert '"bits_per_second"' in done.stdout and '"error"' not in done.stdout


def test_d_abort_on_close(one, daemon):
    """A client that gives up while the server cannot be reached takes its attempt with it."""
    full = HostSocket.make(one)
    full.bind(("10.0.1.11", 5001))
    full.listen(0)
    fill = []
    for _ in range(4):
        c = HostSocket.make(one)
        c.setblocking(False)
        c.connect_ex(("10.0.1.11", 5001))
        fill.append(c)
    d = daemon(one, "defaults\n  timeout connect 10s\n  timeout client 10s\n  timeout server 10s\n" + D)
    c = connect(one, "10.0.1.10", 5001)
    wait_for("the attempt", lambda: d.stat("IPerf10", "Real1")["scur"] == "1")
    c.close()
    wait_for("its end", lambda: d.stat("IPerf10", "Real1")["scur"] == "0", timeout=3 * SLOW)
    assert int(d.stat("IPerf10", "BACKEND")["cli_abrt"]) == 1
