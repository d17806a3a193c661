#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A flood of forged SYNs at the generator's full rate, and what well-behaved clients have of it.

Three protections take turns: cookies by XDP, cookies by the kernel (net.ipv4.tcp_syncookies = 1), none. Client and forger share a
host at the far end of a veth pair; every answer to a forged address goes there, too. Established connections are opened before the
flood, and each asks four times a second; new requests come one after the other from a few threads, a connection each. A request counts
when its answer is whole within PATIENCE.

    tests/bench/flood.py            as `make bench-flood`; needs root
    tests/bench/flood.py client …   the clients of one run, in the client's network
"""

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

SECONDS = float(os.environ.get("BENCH_SECONDS", "8"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "1"))
N_THREADS, N_KEPT, PATIENCE = 4, 50, 5.0
GOAL = 0.999
EDGE, CLIENT = "10.31.0.1", "10.31.0.2"
CONF = f"""
global
    xdp interface eth0 mode native
    {{guard}}

defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 2s

listen web
    bind {EDGE}:80
    http-request return status 200 content-type text/plain string hello
"""
KEEP = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
CLOSE = KEEP[:-2] + b"Connection: close\r\n\r\n"
# name, of the configuration, net.ipv4.tcp_syncookies of the edge, must reach the goal
MODES = [("cookies by XDP", "xdp guard syn-cookies auto above 5k/s", 1, True),
         ("cookies by the kernel", "", 1, None),
         ("no protection", "", 0, False)]


# --- clients ----------------------------------------------------------------------------------------------


def ask(s, request):
    """Sends a request and reads its whole answer."""
    s.sendall(request)
    head = b""
    while not head.endswith(b"hello"):
        chunk = s.recv(4096)
        if not chunk:
            raise OSError("closed")
        head += chunk
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError("another answer")


def newcomer(until, ret):
    while time.monotonic() < until:
        ret["tried"] += 1
        began = time.monotonic()
        try:
            with socket.create_connection((EDGE, 80), timeout=PATIENCE) as s:
                ask(s, CLOSE)
            ret["took"].append(time.monotonic() - began)
        except OSError:
            pass


def kept(socks, until, ret):
    alive = dict.fromkeys(socks, True)
    while time.monotonic() < until:
        for s in [s for s in socks if alive[s]]:
            ret["tried"] += 1
            try:
                ask(s, KEEP)
                ret["done"] += 1
            except OSError:
                alive[s] = False
        time.sleep(0.25)
    ret["alive"] = sum(alive.values())


def clients(seconds):
    """One run: says "ready" when the connections are established, begins when told to, prints what it saw."""
    socks = [socket.create_connection((EDGE, 80), timeout=PATIENCE) for _ in range(N_KEPT)]
    for s in socks:
        ask(s, KEEP)
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + seconds
    news = [{"tried": 0, "took": []} for _ in range(N_THREADS)]
    old = {"tried": 0, "done": 0, "alive": 0}
    threads = [threading.Thread(target=newcomer, args=(until, n)) for n in news]
    threads.append(threading.Thread(target=kept, args=(socks, until, old)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    took = sorted(x for n in news for x in n["took"])
    print(json.dumps({"new": sum(n["tried"] for n in news), "done": len(took), "old": old["tried"], "old_done": old["done"],
                      "alive": old["alive"], "p50": took[len(took) // 2] if took else None,
                      "p99": took[len(took) * 99 // 100] if took else None}), flush=True)


# --- the lab ----------------------------------------------------------------------------------------------


def run(guard, syncookies):
    from conftest import BUILD, Daemon, Lab, wait_addresses

    with Lab("flood") as lab:
        client, edge = lab.host("client"), lab.host("edge")
        lab.cable(client, "eth0", edge, "eth0")
        lab.xdp_pass(client, "eth0")
        client.addr("eth0", f"{CLIENT}/24")
        edge.addr("eth0", f"{EDGE}/24")
        edge.route("default", "via", CLIENT)
        edge.sysctl("net.ipv4.tcp_syncookies", syncookies)
        wait_addresses(edge, client)
        mac = json.loads(edge.run("ip -j link show eth0").stdout)[0]["address"]
        daemon = Daemon(edge, CONF.replace("{guard}", guard)).start()
        try:
            return flood(lab, client, mac, BUILD, daemon)
        finally:
            daemon.stop()


def flood(lab, client, mac, build, daemon):
    import subprocess

    worker = client.popen([sys.executable, __file__, "client", str(SECONDS)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True)
    if worker.stdout.readline() != "ready\n":
        raise RuntimeError("the clients found no service:\n" + daemon.output())
    forger = client.popen([build / "e2e" / "synflood", "eth0", mac, EDGE, "80", "1e9", str(SECONDS + 0.5)],
                          stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    worker.stdin.write("go\n")
    worker.stdin.flush()
    ret = json.loads(worker.stdout.readline())
    ret["rate"] = int(forger.communicate()[0]) / (SECONDS + 0.5)
    row = next(r for r in json.loads(daemon.cli("show services json")) if r["service"] == f"tcp@{EDGE}:80")
    ret["cookies"] = row["cookies_sent"]
    worker.wait()
    return ret


def main():
    print(f"{'':24} {'SYNs/s':>9} {'cookies':>9} {'new':>7} {'done':>8} {'p50 ms':>8} {'p99 ms':>8} {'kept':>6} {'asked':>6} {'done':>8}")
    results, ok = [], True
    for name, guard, syncookies, must in MODES * ROUNDS:
        r = run(guard, syncookies)
        share = r["done"] / max(r["new"], 1)
        is_whole = r["alive"] == N_KEPT and r["old_done"] == r["old"]
        ms = [f"{r[k] * 1e3:8.1f}" if r[k] is not None else f"{'-':>8}" for k in ("p50", "p99")]
        print(f"{name:24} {r['rate']:9,.0f} {r['cookies']:9,} {r['new']:7,} {share:8.2%} {ms[0]} {ms[1]} "
              f"{r['alive']:6} {r['old']:6,} {r['old_done'] / max(r['old'], 1):8.2%}", flush=True)
        results.append(dict(r, mode=name, share=share))
        if must is not None:
            ok &= (share >= GOAL and is_whole) if must else share < GOAL
    out = Path(os.environ.get("HG_BUILD", ROOT / "build")) / "bench"
    out.mkdir(parents=True, exist_ok=True)
    (out / "flood.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(f"with cookies by XDP at least {GOAL:.1%} of new requests and all established connections, without any protection less: "
          f"{'reached' if ok else 'NOT REACHED'}")
    return 0 if ok else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        clients(float(sys.argv[2]))
    else:
        sys.exit(main())
