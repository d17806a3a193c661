# SPDX-License-Identifier: BSD-2-Clause
"""The benchmark of the kernel tier: X of every path, packets over veth, Maglev tables, a large configuration.

Prints a table with goals and writes build/bench/l4.json. Needs root. docs/PERFORMANCE.md says how to read it.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "lab"))
from lab import BUILD, Lab, wait_for  # noqa: E402

OUT = BUILD / "bench"
ADDRESSES, PORTS = 200, 50  # 10,000 services, a server of its own for each


def run(name, *args):
    path = OUT / f"{name}.json"
    if subprocess.run([str(OUT / name), "--json", str(path), *args], check=False).returncode != 0:
        sys.exit(f"bench: {name} failed (root?)")
    print()
    return json.loads(path.read_text(encoding="ascii"))


def config(n_addresses, n_ports):
    """One section per service, as an operator's generator would write it."""
    text = ["global", "    stats socket {sock} level admin", "    xdp interface eth0", "    nbthread 1", "defaults",
            "    timeout connect 1s", "    timeout client 10s", "    timeout server 10s"]
    n = 0
    for a in range(n_addresses):
        for port in range(n_ports):
            n += 1
            text += [f"listen s{n}", "    mode l4", f"    bind tcp@192.0.{2 + a // 250}.{a % 250 + 1}:{1000 + port}",
                     "    forward ipip", f"    server b 10.{128 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}"]
    return "\n".join(text) + "\n"


def rss_mib(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def large():
    """Seconds until the daemon answers with everything loaded, and memory."""
    with Lab("bench") as lab:
        edge, gateway = lab.host("edge"), lab.host("gateway")
        lab.cable(edge, "eth0", gateway, "eth0")
        edge.addr("eth0", "10.10.0.1/24")
        gateway.addr("eth0", "10.10.0.254/24")
        edge.route("10.128.0.0/9", "via", "10.10.0.254")
        sock, cfg = lab.dir / "admin.sock", lab.dir / "headgate.cfg"
        cfg.write_text(config(ADDRESSES, PORTS).replace("{sock}", str(sock)), encoding="ascii")

        def cli(*words):
            return edge.run([BUILD / "headgate", "-s", sock, *words], check=False, timeout=60).stdout

        start = time.monotonic()
        proc = edge.popen([BUILD / "headgated", "-f", cfg], log="headgated.log")
        log = lab.dir / "headgated.log"

        def ready():
            if proc.poll() is not None:
                sys.exit("bench: headgated ended:\n" + log.read_text(errors="replace")[-2000:])
            return sock.exists() and "Name:" in cli("show", "info")

        wait_for("headgated with 10,000 services", ready, timeout=120)
        load_s = time.monotonic() - start
        wait_for("next hops", lambda: len(re.findall(r" resolved ", cli("show", "backends"))) == ADDRESSES * PORTS,
                 timeout=60)
        hops_s = time.monotonic() - start
        maps = json.loads(edge.run("bpftool -j map show").stdout)
        pinned = set(edge.run("ls /sys/fs/bpf/headgate").stdout.split())
        mine = {m["name"]: m.get("bytes_memlock", 0) for m in maps if m.get("name") in pinned}
        # One server more or less: what a reload of all of it costs.
        cfg.write_text(cfg.read_text(encoding="ascii").replace(":1000\n", ":999\n", 1), encoding="ascii")
        start = time.monotonic()
        assert "reloaded" in cli("reload")
        reload_s = time.monotonic() - start
        result = {"load_10k_s": round(load_s, 2), "load_10k_hops_s": round(hops_s, 2), "reload_10k_s": round(reload_s, 2),
                  "load_10k_rss_mib": round(rss_mib(proc_pid(edge, "headgated")), 1),
                  "load_10k_maps_mib": round(sum(mine.values()) / 2**20, 1),
                  "maps_mib": {k: round(v / 2**20, 1) for k, v in sorted(mine.items(), key=lambda x: -x[1]) if v > 2**19}}
        edge.stop(proc)
        return result


def proc_pid(host, name):
    """The daemon itself: `host.popen` knows the pid of nsenter, which became it."""
    return next(p.pid for p in reversed(host.procs) if name in Path(f"/proc/{p.pid}/cmdline").read_text(encoding="utf-8"))


GOALS = [
    ("load of 10,000 services, seconds", "load_10k_s", 10, False),
    ("Maglev of 1,000 backends, ms", "maglev_1000_ms", 5, False),
    ("the same with 100 weights, ms", "maglev_1000_weighted_ms", 5, False),
    ("over veth: ipip, 1 flow, of bare", "veth_ipip_1", 0.85, True),
    ("over veth: ipip, 65,536 flows, of bare", "veth_ipip_64k", 0.85, True),
]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    result = {}
    xdp = run("bench_xdp")
    goals = [(f"X {k[2:]}", k, v, False) for k, v in xdp["goals"].items()] + GOALS
    result.update(xdp)
    result.update(run("bench_veth"))
    result.update(run("bench_maglev"))
    result.update(large())
    for key in ("load_10k_hops_s", "reload_10k_s", "load_10k_rss_mib", "load_10k_maps_mib", "maps_mib"):
        print(f"{key:24} {result[key]}")
    print()
    for what, key, bound, at_least in goals:
        ok = result[key] >= bound if at_least else result[key] <= bound
        print(f"{what:42} {result[key]:8.2f}   {'>=' if at_least else '<='} {bound:<6} {'reached' if ok else 'NOT REACHED'}")
    (OUT / "l4.json").write_text(json.dumps(result, indent=1), encoding="ascii")
    print(f"\nwritten: {OUT / 'l4.json'}")


if __name__ == "__main__":
    os.environ.setdefault("HG_BUILD", str(BUILD))
    main()
