# SPDX-License-Identifier: BSD-2-Clause
"""New connections with `sk-steer` off, cpu and least, in turns in one process by reload (root).

Two workers, one on either CPU, and as many clients, over loopback: the kernel handles a SYN on the client's CPU. In the second
case both clients are on one CPU, as where all packets come in by one queue. Each connection has one request, which the daemon answers itself. What counts is the processor time that daemon and clients
spend on a connection, the kernel's share included; connections per second are by the clock of a machine that others use, too.
"""

import glob
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
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "1"))
MODES = ["off", "cpu", "least"]
CASES = {"clients on both CPUs": (0, 1), "clients on one CPU": (0, 0)}
PORT, AT_ONCE = 18080, 16
CONF = """global
    stats socket {dir}/sock level admin
    nbthread 2
    cpu-map 1 0
    cpu-map 2 1
    sk-steer {mode}
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
frontend web
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string "hello"
"""


def ask(where, command):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(f"{where}/sock")
        s.sendall(command.encode() + b"\n")
        return b"".join(iter(lambda: s.recv(65536), b"")).decode()


def set_mode(where, mode):
    Path(where, "cfg").write_text(CONF.format(dir=where, mode=mode, port=PORT), encoding="ascii")
    if Path(where, "sock").exists() and "Success=1" not in ask(where, "reload"):
        sys.exit("bench: the reload failed")


def cpu_us(pid):
    return sum(int(Path(p).read_text(encoding="ascii").split()[0]) for p in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e3


def run(pid, cpus):
    before = cpu_us(pid)
    clients = [subprocess.Popen(["taskset", "-c", str(cpu), str(BUILD / "bench" / "connect"), str(PORT), str(AT_ONCE),
                                 f"{SECONDS * 1000:.0f}"], stdout=subprocess.PIPE) for cpu in cpus]
    results = [json.loads(c.communicate()[0]) for c in clients]
    n = sum(r["connections"] for r in results)
    return {"us": (cpu_us(pid) - before + sum(r["cpu_us"] for r in results)) / n, "rate": n / SECONDS}


def report(case, runs):
    print(case)
    for mode in MODES:
        us, rate = ([r[k] for r in runs[mode]] for k in ("us", "rate"))
        ratios = [o["us"] / r["us"] for o, r in zip(runs["off"], runs[mode])]
        rates = [r["rate"] / o["rate"] for o, r in zip(runs["off"], runs[mode])]
        q, qr = statistics.quantiles(ratios, n=4), statistics.quantiles(rates, n=4)
        print(f"  {mode:6} {statistics.median(us):7.1f} us per connection, {statistics.median(rate):8.0f} connections/s; against off: "
              f"time {statistics.median(ratios):.2f} ({q[0]:.2f} … {q[2]:.2f}), rate {statistics.median(rates):.2f} ({qr[0]:.2f} … {qr[2]:.2f})")


def rounds(where, pid, cpus):
    runs = {m: [] for m in MODES}
    for i in range(ROUNDS + 1):
        for mode in MODES if i % 2 else MODES[::-1]:
            set_mode(where, mode)
            time.sleep(0.05)
            runs[mode].append(run(pid, cpus))
        if i == 0:  # warms up
            runs = {m: [] for m in MODES}
    return runs


def main():
    where = tempfile.mkdtemp(prefix="headgate-bench-")
    set_mode(where, "off")
    with open(f"{where}/log", "wb") as log:
        proc = subprocess.Popen([str(BUILD / "headgated"), "-f", f"{where}/cfg"], stdout=log, stderr=log)
    try:
        while not Path(where, "sock").exists():
            if proc.poll() is not None:
                sys.exit("bench: " + Path(where, "log").read_text(errors="replace"))
            time.sleep(0.05)
        print(f"{ROUNDS} interleaved rounds of {SECONDS:g} s; runnable tasks now: {os.getloadavg()[0]:.0f}")
        for case, cpus in CASES.items():
            report(case, rounds(where, proc.pid, cpus))
        print(ask(where, "show steering").strip())
    finally:
        proc.terminate()
        proc.wait()


if __name__ == "__main__":
    main()
