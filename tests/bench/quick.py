# SPDX-License-Identifier: BSD-2-Clause
"""The short benchmark: plain HTTP/1.1 keep-alive through one worker, and X of the XDP program.

Proxy on one core, client and server on the other; the candidates take turns (A B C D A B C D …), so that
what disturbs the machine disturbs all of them. Only ratios of the medians mean anything.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HG_BUILD", ROOT / "build"))
OUT = ROOT / "build" / "bench"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
PROXY_CPU, LOAD_CPU = "0", "1"

NGINX = """daemon off; worker_processes 1; pid {d}/nginx.pid; error_log {d}/nginx.err;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 300s;
  upstream s {{ server 127.0.0.1:18080; keepalive 512; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:18003 backlog=4096; location / {{ proxy_pass http://s; proxy_http_version 1.1;
    proxy_set_header Connection ""; }} }} }}
"""
COMMON = """global
    nbthread 1
    maxconn 8000
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
listen px
    bind 127.0.0.1:{port}
    balance roundrobin
    server s1 127.0.0.1:18080
"""
PORTS = {"headgate": 18001, "haproxy": 18002, "nginx": 18003, "relay": 18004}


class Bench:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="headgate-bench-")
        os.chmod(self.dir, 0o755)
        self.procs = {}

    def start(self, name, args, cpu):
        log = open(f"{self.dir}/{name}.log", "wb")
        self.procs[name] = subprocess.Popen(["taskset", "-c", cpu, *args], stdout=log, stderr=log)

    def write(self, name, text):
        path = f"{self.dir}/{name}"
        Path(path).write_text(text, encoding="ascii")
        return path

    def up(self):
        self.start("headgate", [str(BUILD / "headgated"), "-f",
                                self.write("headgate.cfg", COMMON.format(port=PORTS["headgate"]))], PROXY_CPU)
        self.start("haproxy", ["haproxy", "-db", "-f",
                               self.write("haproxy.cfg", COMMON.format(port=PORTS["haproxy"]))], PROXY_CPU)
        self.start("nginx", ["nginx", "-c", self.write("nginx.conf", NGINX.format(d=self.dir))], PROXY_CPU)
        self.start("relay", [str(BUILD / "bench" / "relay"), str(PORTS["relay"]), "18080"], PROXY_CPU)
        for name, port in PORTS.items():
            self.wait(name, port)

    def wait(self, name, port):
        for _ in range(100):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        sys.exit(f"bench: {name} does not answer:\n" + Path(f"{self.dir}/{name}.log").read_text(errors="replace"))

    def cpu_seconds(self, name):
        """User and system time of a proxy and its children so far."""
        total = [0, 0]
        pids = [self.procs[name].pid]
        kids = subprocess.run(["pgrep", "-P", str(pids[0])], capture_output=True, text=True, check=False).stdout
        for pid in pids + [int(k) for k in kids.split()]:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
            except OSError:
                continue
            total[0] += int(fields[11])
            total[1] += int(fields[12])
        tick = os.sysconf("SC_CLK_TCK")
        return total[0] / tick, total[1] / tick

    def load(self, name, connections):
        before = self.cpu_seconds(name)
        out = subprocess.run(["taskset", "-c", LOAD_CPU, str(BUILD / "bench" / "load"), str(PORTS[name]), "18080",
                              str(connections), f"{SECONDS * 1000:.0f}"], capture_output=True, text=True, check=False)
        after = self.cpu_seconds(name)
        if out.returncode != 0:
            sys.exit(f"bench: {name}: {out.stderr}")
        r = json.loads(out.stdout)
        if r["errors"]:
            sys.exit(f"bench: {r['errors']} errors through {name}")
        spent = r["rate"] * (SECONDS + 0.3)  # the warm-up's CPU time is in the difference, too
        r["user_us"] = (after[0] - before[0]) / spent * 1e6
        r["cpu_us"] = (after[0] + after[1] - before[0] - before[1]) / spent * 1e6
        return r

    def down(self):
        for p in self.procs.values():
            p.terminate()
        for p in self.procs.values():
            p.wait()


def l7():
    b = Bench()
    runs = {name: [] for name in PORTS}
    try:
        b.up()
        for i in range(ROUNDS + 1):
            for name in PORTS:
                result = b.load(name, 100)
                if i:  # the first round warms up
                    runs[name].append(result)
    finally:
        b.down()
    print(f"\nHTTP/1.1 keep-alive, 100 connections, one worker, {ROUNDS} interleaved rounds of {SECONDS:g} s")
    print(f"{'':10} {'requests/s':>12} {'min':>10} {'max':>10} {'user µs/req':>12} {'CPU µs/req':>11}")
    table = {}
    for name, rs in runs.items():
        rates = [r["rate"] for r in rs]
        table[name] = {"median": statistics.median(rates), "min": min(rates), "max": max(rates),
                       "user_us": statistics.median(r["user_us"] for r in rs),
                       "cpu_us": statistics.median(r["cpu_us"] for r in rs), "rates": rates}
        t = table[name]
        print(f"{name:10} {t['median']:12.0f} {t['min']:10.0f} {t['max']:10.0f} {t['user_us']:12.2f} {t['cpu_us']:11.2f}")
    ratios = {}
    for other in ("haproxy", "nginx", "relay"):
        pairs = [a["rate"] / c["rate"] for a, c in zip(runs["headgate"], runs[other])]
        ratios[other] = {"median": statistics.median(pairs), "min": min(pairs), "max": max(pairs),
                         "of_medians": table["headgate"]["median"] / table[other]["median"]}
        print(f"headgate / {other:8} {ratios[other]['median']:.2f}   (pairs {ratios[other]['min']:.2f} … "
              f"{ratios[other]['max']:.2f}, of medians {ratios[other]['of_medians']:.2f})")
    return {"table": table, "ratios": ratios}


def xdp():
    path = OUT / "xdp.json"
    done = subprocess.run([str(BUILD / "bench" / "bench_xdp"), "--json", str(path)], check=False)
    if done.returncode != 0:
        sys.exit("bench: bench_xdp failed (root?)")
    return json.loads(path.read_text(encoding="ascii"))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    result = {"l7": l7()}
    print("\nX: cost of the balancer in units of a bare program that swaps MACs and returns XDP_TX")
    result["xdp"] = xdp()
    r = result["l7"]["ratios"]
    goals = [("requests/s against haproxy", r["haproxy"]["median"], 1.25, ">="),
             ("requests/s against the bare relay", r["relay"]["median"], 0.95, ">= (goal)"),
             ("X, IPIP at one flow", result["xdp"]["x_ipip_1"], 2.2, "<="),
             ("X, not ours", result["xdp"]["x_not_ours"], 2.2, "<=")]
    print()
    for what, value, bound, sign in goals:
        ok = value >= bound if sign.startswith(">") else value <= bound
        print(f"{what:36} {value:6.2f}   {sign} {bound}   {'reached' if ok else 'NOT REACHED'}")
    (OUT / "quick.json").write_text(json.dumps(result, indent=1), encoding="ascii")
    print(f"\nwritten: {OUT / 'quick.json'}")


if __name__ == "__main__":
    main()
