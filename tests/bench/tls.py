# SPDX-License-Identifier: BSD-2-Clause
"""TLS and HTTP/2 against Debian's haproxy and nginx: one worker each, pinned to one core, clients and server on the other.

The candidates take turns (A B C A B C …) and what counts is the processor time of the proxy's process per request,
handshake or byte, from /proc/<pid>/task/*/schedstat: client and server share the other core, and a busy machine lengthens the
clock but not the work. Ratios are taken per round, and their median is what is compared with the goals.

    tests/bench/tls.py [case …]     cases: keep full resumed h2 bulk idle certs; default: all
"""

import glob
import json
import os
import re
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HG_BUILD", ROOT / "build"))
OUT = ROOT / "build" / "bench"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "7"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
BULK_MIB = int(os.environ.get("BENCH_BULK_MIB", "1024"))
PROXY_CPU, LOAD_CPU = "0", "1"
INSECURE = ssl._create_unverified_context()  # pylint: disable=protected-access
SERVER = 18480

# "local" answers by itself, so that a handshake is all there is to pay for; "px" asks the server.
PROXY = """global
    nbthread 1
    maxconn 4000
    tune.ssl.default-dh-param 2048
{extra}
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 60s
frontend local
    bind 127.0.0.1:{local} ssl crt {crt} alpn h2,http/1.1
    http-request return status 200 content-type text/plain string hello
frontend px
    bind 127.0.0.1:{px} ssl crt {crt} alpn h2,http/1.1
    default_backend b
backend b
    server s1 127.0.0.1:{server}
"""
NGINX = """daemon off; worker_processes 1; pid {d}/nginx.pid; error_log {d}/nginx.err crit;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 300s; http2_max_requests 100000000;
  client_body_temp_path {d}/t1; proxy_temp_path {d}/t2; fastcgi_temp_path {d}/t3; uwsgi_temp_path {d}/t4; scgi_temp_path {d}/t5;
  proxy_max_temp_file_size 0; ssl_session_cache shared:s:10m; ssl_protocols TLSv1.2 TLSv1.3;
  ssl_certificate {crt}; ssl_certificate_key {crt};
  upstream s {{ server 127.0.0.1:{server}; keepalive 512; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{local} ssl http2 backlog=4096; location / {{ default_type text/plain; return 200 hello; }} }}
  server {{ listen 127.0.0.1:{px} ssl http2 backlog=4096; location / {{ proxy_pass http://s; proxy_http_version 1.1;
    proxy_set_header Connection ""; }} }} }}
"""
BEHIND = """daemon off; worker_processes 1; pid {d}/server.pid; error_log {d}/server.err crit;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 300s; sendfile on; tcp_nopush on;
  client_body_temp_path {d}/t6; proxy_temp_path {d}/t7; fastcgi_temp_path {d}/t8; uwsgi_temp_path {d}/t9; scgi_temp_path {d}/ta;
  server {{ listen 127.0.0.1:{server} backlog=4096; root {d}/www; location = / {{ default_type text/plain; return 200 "hello, server"; }} }} }}
"""
PORTS = {"headgate": (18441, 18444), "haproxy": (18442, 18445), "nginx": (18443, 18446)}  # local, px


def run(args, **kw):
    return subprocess.run(["taskset", "-c", LOAD_CPU, *map(str, args)], capture_output=True, text=True, check=False, **kw)


def make_cert(path, name, days=30):
    key = run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", days,
               "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", "-"])
    if key.returncode:
        sys.exit(f"bench: openssl: {key.stderr}")
    path.write_text(key.stdout, encoding="ascii")


class Bench:
    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="headgate-bench-"))
        self.dir.chmod(0o755)
        self.procs = {}

    def start(self, name, args, cpu, env=None):
        log = open(self.dir / f"{name}.log", "wb")
        self.procs[name] = subprocess.Popen(["taskset", "-c", cpu, *map(str, args)], stdout=log, stderr=log, env=env)

    def write(self, name, text):
        (self.dir / name).write_text(text, encoding="ascii")
        return self.dir / name

    def up(self):
        d = self.dir
        make_cert(d / "bench.pem", "bench.test")
        (d / "www").mkdir()
        with open(d / "www" / "big", "wb") as f:
            f.truncate(BULK_MIB << 20)
        self.start("server", ["nginx", "-c", self.write("server.conf", BEHIND.format(d=d, server=SERVER))], LOAD_CPU)
        for name, (local, px) in PORTS.items():
            text = (NGINX if name == "nginx" else PROXY).format(d=d, crt=d / "bench.pem", local=local, px=px, server=SERVER,
                                                                extra="")
            cfg = self.write(f"{name}.cfg", text)
            self.start(name, {"headgate": [BUILD / "headgated", "-f", cfg], "haproxy": ["haproxy", "-db", "-f", cfg],
                              "nginx": ["nginx", "-c", cfg]}[name], PROXY_CPU)
            self.wait(name, px)

    def wait(self, name, port, seconds=20.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self.procs[name].poll() is not None:
                break
            time.sleep(0.02)
        sys.exit(f"bench: {name} does not answer:\n" + (self.dir / f"{name}.log").read_text(errors="replace"))

    def pids(self, name):
        pid = self.procs[name].pid
        kids = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
        return [pid, *map(int, kids.split())]

    def cpu(self, name):
        """Processor seconds of all threads of a proxy and its children so far, as the scheduler counts them."""
        return sum(int(Path(task).read_text(encoding="ascii").split()[0]) for pid in self.pids(name)
                   for task in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e9

    def rss_kib(self, name):
        total = 0
        for pid in self.pids(name):
            m = re.search(r"Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii"))
            total += int(m[1])
        return total

    def stop(self, name):
        p = self.procs.pop(name)
        p.terminate()
        p.wait()

    def down(self):
        for name in list(self.procs):
            self.stop(name)
        shutil.rmtree(self.dir)

    @staticmethod
    def client(port, mode, connections=1, server_name="bench.test"):
        args = ["taskset", "-c", LOAD_CPU, BUILD / "bench" / "tls_load", port, mode, int(SECONDS * 1000), connections, server_name]
        return subprocess.Popen(list(map(str, args)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)

    # --- one turn each: {"cpu_us": per unit, "rate": units per second} ---

    def tls_load(self, name, port, mode, connections=1, server_name="bench.test"):
        with self.client(port, mode, connections, server_name) as p:
            if mode == "keep":
                p.stdout.readline()
            before = self.cpu(name)
            out, err = p.communicate("x", timeout=300)
            used = self.cpu(name) - before
        if p.returncode:
            sys.exit(f"bench: {name} {mode}: {err}")
        r = json.loads(out)
        if mode == "resumed" and r["resumed"] < r["done"] * 0.95 - 8:  # the first ones have no ticket yet
            sys.exit(f"bench: {name}: only {r['resumed']} of {r['done']} resumed")
        return {"cpu_us": used / r["done"] * 1e6, "rate": r["done"] / r["seconds"]}

    def keep(self, name):
        return self.tls_load(name, PORTS[name][1], "keep", 100)

    def full(self, name):
        return self.tls_load(name, PORTS[name][0], "full")

    def resumed(self, name):
        return self.tls_load(name, PORTS[name][0], "resumed")

    def h2(self, name):
        before = self.cpu(name)
        n = int(20000 * SECONDS)
        t0 = time.monotonic()
        out = run(["h2load", "-n", n, "-c", 10, "-m", 100, f"https://127.0.0.1:{PORTS[name][1]}/"])
        seconds = time.monotonic() - t0
        used = self.cpu(name) - before
        if f"{n} succeeded" not in out.stdout or "Application protocol: h2" not in out.stdout:
            sys.exit(f"bench: {name} h2load: {out.stdout}{out.stderr}")
        return {"cpu_us": used / n * 1e6, "rate": n / seconds}

    def bulk(self, name):
        before = self.cpu(name)
        t0 = time.monotonic()
        out = run(["curl", "-sk", "--http1.1", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256", "-o", "/dev/null", "-w",
                   "%{size_download}", f"https://127.0.0.1:{PORTS[name][1]}/big"])
        seconds = time.monotonic() - t0
        used = self.cpu(name) - before
        if out.stdout != str(BULK_MIB << 20):
            sys.exit(f"bench: {name} download: {out.stdout} bytes, {out.stderr}")
        return {"cpu_us": used / BULK_MIB * 1e6, "rate": BULK_MIB / seconds}


def turns(b, case):
    """Interleaved rounds; the first one warms up."""
    rounds = {name: [] for name in PORTS}
    for i in range((3 if case == "bulk" else ROUNDS) + 1):
        for name in PORTS:
            r = getattr(b, case)(name)
            if i:
                rounds[name].append(r)
    unit = {"h2": "request", "keep": "request", "bulk": "MiB"}.get(case, "handshake")
    table = {}
    print(f"\n{case}: {len(rounds['headgate'])} interleaved rounds")
    for name, rs in rounds.items():
        table[name] = {k: statistics.median(r[k] for r in rs) for k in ("cpu_us", "rate")}
        print(f"  {name:9} {table[name]['cpu_us']:8.1f} us of CPU per {unit}  {table[name]['rate']:9.0f}/s by the clock")
    for other in ("haproxy", "nginx"):
        for key in ("cpu_us", "rate"):
            pairs = [(o[key] / h[key] if key == "cpu_us" else h[key] / o[key])
                     for h, o in zip(rounds["headgate"], rounds[other])]
            table[f"{key}/{other}"] = statistics.median(pairs)
            print(f"  {'by CPU ' if key == 'cpu_us' else 'by rate'} against {other:8} {statistics.median(pairs):5.2f}"
                  f"   ({min(pairs):.2f} - {max(pairs):.2f})")
    return table


def idle(b):
    """Memory that a connection costs which did one request and keeps still."""
    n, table = 2000, {}
    print(f"\nidle: {n} connections, one request on each, then still")
    for name in PORTS:
        b.tls_load(name, PORTS[name][1], "keep", 100)  # pools and code are there
        time.sleep(1)
        before = b.rss_kib(name)
        with b.client(PORTS[name][1], "idle", n) as client:
            if not client.stdout.readline():
                sys.exit(f"bench: idle: {client.stderr.read()}")
            time.sleep(2)
            table[name] = (b.rss_kib(name) - before) / n
            client.communicate("x")
        print(f"  {name:9} {table[name]:6.1f} KiB each")
    return table


def certs(b):
    """Two daemons, 1 certificate and 10,000 of them, in turns; the name asked for is not the default one."""
    count = int(os.environ.get("BENCH_CERTS", "10000"))
    ports, table = {1: 18451, count: 18452}, {}
    made = subprocess.run([BUILD / "bench" / "make_certs", str(b.dir / "many"), str(count)], check=False)
    if made.returncode:
        sys.exit("bench: make_certs failed")
    (b.dir / "one").mkdir()
    shutil.copy(b.dir / "bench.pem", b.dir / "one")
    shutil.copy(b.dir / "bench.pem", b.dir / "many" / "zz.pem")
    for n, port in ports.items():
        cfg = b.write(f"certs{n}.cfg", PROXY.format(crt=b.dir / ("one" if n == 1 else "many"), local=port, px=port + 10,
                                                    server=SERVER, extra=""))
        t0 = time.monotonic()
        b.start(f"certs{n}", [BUILD / "headgated", "-f", cfg], PROXY_CPU)
        b.wait(f"certs{n}", port, 120)
        # The sockets are open before the certificates are read.
        with socket.create_connection(("127.0.0.1", port), timeout=120) as c, INSECURE.wrap_socket(c, server_hostname="bench.test"):
            pass
        table[f"load_{n}_s"] = time.monotonic() - t0
        table[f"load_{n}_cpu_s"] = b.cpu(f"certs{n}")
    pairs = []
    for i in range(ROUNDS + 1):
        one = b.tls_load("certs1", ports[1], "full")["cpu_us"]
        many = b.tls_load(f"certs{count}", ports[count], "full")["cpu_us"]
        if i:
            pairs.append(many / one)
    table["cost"] = statistics.median(pairs)
    for n in ports:
        b.stop(f"certs{n}")
    print(f"\ncerts: {count} against 1: {table['cost']:.3f} of the CPU time per handshake ({min(pairs):.2f} - {max(pairs):.2f});"
          f" started with {count} after {table[f'load_{count}_s']:.1f} s, {table[f'load_{count}_cpu_s']:.1f} s of CPU time,"
          f" two bind lines")
    return table


GOALS = [
    ("keep", "cpu_us/haproxy", ">=", 1.3), ("keep", "rate/haproxy", ">=", 1.3), ("keep", "cpu_us/nginx", ">=", 1.1),
    ("keep", "rate/nginx", ">=", 1.1), ("full", "cpu_us/haproxy", ">=", 1.25), ("resumed", "cpu_us/haproxy", ">=", 1.25),
    ("h2", "cpu_us/haproxy", ">=", 1.3), ("h2", "rate/haproxy", ">=", 1.3), ("bulk", "cpu_us/nginx", ">=", 1.0),
    ("idle", "headgate", "<=", 10.0), ("certs", "cost", "<=", 1.05), ("certs", "load_10000_s", "<=", 5.0),
]


def main():
    cases = sys.argv[1:] or ["keep", "full", "resumed", "h2", "bulk", "idle", "certs"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    OUT.mkdir(parents=True, exist_ok=True)
    result = {}
    b = Bench()
    try:
        b.up()
        for case in cases:
            result[case] = idle(b) if case == "idle" else certs(b) if case == "certs" else turns(b, case)
    finally:
        b.down()
    print()
    for case, key, sign, bound in GOALS:
        value = result.get(case, {}).get(key)
        if value is not None:
            ok = value >= bound if sign == ">=" else value <= bound
            print(f"{case + ' ' + key:28} {value:7.2f}  {sign} {bound:<6} {'reached' if ok else 'NOT REACHED'}")
    (OUT / "tls.json").write_text(json.dumps(result, indent=1), encoding="ascii")


if __name__ == "__main__":
    main()
