# SPDX-License-Identifier: BSD-2-Clause
"""The HTTP tier under what real configurations ask of it, against haproxy with the same file.

Proxy and load take turns on a machine of two CPUs, the candidates in turns, too (A B B A …): ratios are taken per round,
and their median is what counts. The figure is the proxy's processor time per request, from /proc/<pid>/task/*/schedstat:
a busy machine lengthens the clock, but hardly the work. Latencies are by the clock, so only a quiet machine has them.

    tests/bench/l7.py [case …]      cases: plain rules workers many half; default: all
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
OUT = ROOT / "build" / "bench"
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "9"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
WARM_UP = 0.3  # of tests/bench/load, whose requests are not in its count
SERVER, SYSLOG = 18080, 18514
PROXIES = {"headgate": [str(BUILD / "headgated"), "-f"], "haproxy": ["haproxy", "-db", "-f"]}

HEAD = """global
    nbthread {threads}
    maxconn 8000
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
"""
PLAIN = """listen px
    bind 127.0.0.1:{port}
    server s1 127.0.0.1:{server}
"""
# 20 ACLs, none of which holds, so that all of them are asked; 10 header rules; one counter; a line per request over UDP.
ACLS = [
    "path_beg /api/v1/", "path_beg /static/ /images/ /fonts/", "path_end .php .cgi", "path /login", "path_sub /../",
    "path_reg ^/user/[0-9]+/edit$", "hdr(host) -i www.other.example api.other.example", "hdr_end(host) -i .invalid",
    "hdr_beg(user-agent) -i curl wget", "hdr_sub(user-agent) -i bot spider", "hdr_reg(user-agent) ^Mozilla/[1-3]",
    "hdr(content-type) -m found", "hdr_cnt(x-forwarded-for) gt 1", "hdr_sub(cookie) session=", "method POST PUT",
    "url_param(debug) -m found", "url_param(x) -m int 2:9", "src 10.0.0.0/8 192.168.0.0/16", "dst_port 443",
    "sc_http_req_rate(0) gt 1000000000",
]
RULES = """frontend px
    bind 127.0.0.1:{port}
    log 127.0.0.1:{syslog} local0
    option httplog
    stick-table type ip size 100k expire 60s store http_req_rate(10s),http_req_cnt
    http-request track-sc0 src
""" + "".join(f"    acl a{i} {acl}\n" for i, acl in enumerate(ACLS)) + """
    http-request set-header X-Forwarded-Proto http
    http-request set-header X-Client %[src]
    http-request set-header X-Path %[path]
    http-request add-header Via headgate
    http-request del-header X-Internal
    http-response set-header X-Frame-Options DENY
    http-response set-header X-Content-Type-Options nosniff
    http-response set-header Strict-Transport-Security "max-age=31536000"
    http-response add-header X-Served-By %[srv_name]
    http-response del-header Server
""" + "".join(f"    use_backend other if a{i}\n" for i in range(len(ACLS))) + """    default_backend b
backend b
    server s1 127.0.0.1:{server}
backend other
    http-request deny
"""

#         file   threads connections  what
CASES = {
    "plain": (PLAIN, 1, 100, "keep-alive, one worker, 100 connections"),
    "rules": (RULES, 1, 100, "20 ACLs, 10 header rules, a stick counter, httplog over UDP"),
    "workers": (PLAIN, 2, 100, "two workers, which share both CPUs with the load"),
    "many": (PLAIN, 1, 1000, "1,000 connections"),
    "half": (PLAIN, 1, 100, "half of what the slower one can do, evenly paced"),
}


class Proxy:
    def __init__(self, name, text, threads, port):
        self.port = port
        self.dir = tempfile.mkdtemp(prefix="headgate-bench-")
        path = Path(self.dir, "cfg")
        path.write_text(text.format(threads=threads, port=port, server=SERVER, syslog=SYSLOG), encoding="ascii")
        self.log = open(f"{self.dir}/log", "wb")
        cpus = "0" if threads == 1 else "0,1"
        self.proc = subprocess.Popen(["taskset", "-c", cpus, *PROXIES[name], str(path)], stdout=self.log, stderr=self.log)
        for _ in range(200):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        sys.exit(f"bench: {name} does not answer:\n" + Path(f"{self.dir}/log").read_text(errors="replace"))

    def cpu_ns(self):
        total = 0
        for path in glob.glob(f"/proc/{self.proc.pid}/task/*/schedstat"):
            total += int(Path(path).read_text(encoding="ascii").split()[0])
        return total

    def load(self, connections, rate=0):
        before = self.cpu_ns()
        args = [str(BUILD / "bench" / "load"), str(self.port), str(SERVER), str(connections), f"{SECONDS * 1000:.0f}"]
        out = subprocess.run(["taskset", "-c", "1", *args, *([str(rate)] if rate else [])], capture_output=True,
                             text=True, check=False)
        if out.returncode != 0:
            sys.exit(f"bench: load: {out.stderr}")
        r = json.loads(out.stdout)
        if r["errors"]:
            sys.exit(f"bench: {r['errors']} errors on port {self.port}")
        r["cpu_us"] = (self.cpu_ns() - before) / 1e3 / (r["rate"] * (SECONDS + WARM_UP))
        return r

    def stop(self):
        self.proc.terminate()
        self.proc.wait()
        self.log.close()


def run_case(case):
    text, threads, connections, what = CASES[case]
    names = list(PROXIES)
    runs = {name: [] for name in names}
    proxies = {}
    rate = 0
    try:
        for i, name in enumerate(names):
            proxies[name] = Proxy(name, HEAD + text, threads, 18001 + i)
        for i in range(ROUNDS + 1):
            for name in names if i % 2 else reversed(names):
                runs[name].append(proxies[name].load(connections, rate))
            if i == 0:  # the first round warms up, and tells what half is
                if case == "half":
                    rate = int(min(r[0]["rate"] for r in runs.values()) / 2)
                runs = {name: [] for name in names}
    finally:
        for p in proxies.values():
            p.stop()
    return report(what + (f" ({rate}/s)" if rate else ""), runs, bool(rate))


def report(what, runs, is_paced):
    """Ratios above 1 are in our favour."""
    figures = ["cpu_us"] + (["p50_us", "p99_us", "p999_us"] if is_paced else ["rate"])
    result = {}
    print(f"\n{what}")
    for f in figures:
        medians = {name: statistics.median(r[f] for r in rs) for name, rs in runs.items()}
        pairs = [b[f] / a[f] for a, b in zip(runs["headgate"], runs["haproxy"])]
        if f == "rate":
            pairs = [1 / p for p in pairs]
        q = statistics.quantiles(pairs, n=4) if len(pairs) > 1 else [pairs[0]] * 3
        result[f] = {"medians": medians, "ratio": statistics.median(pairs), "quartiles": [q[0], q[2]]}
        print(f"  {f:8}" + "".join(f" {name} {m:10.2f}" for name, m in medians.items()) +
              f"   ratio {statistics.median(pairs):.2f} (middle half {q[0]:.2f} … {q[2]:.2f})")
    return result


def main():
    cases = sys.argv[1:] or list(CASES)
    for case in cases:
        if case not in CASES:
            sys.exit(f"bench: there is no case '{case}': {' '.join(CASES)}")
    OUT.mkdir(parents=True, exist_ok=True)
    print(f"{ROUNDS} interleaved rounds of {SECONDS:g} s; runnable tasks now: {os.getloadavg()[0]:.0f}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:  # nobody reads it: what is too much is dropped
        sink.bind(("127.0.0.1", SYSLOG))
        result = {case: run_case(case) for case in cases}
    (OUT / "l7.json").write_text(json.dumps(result, indent=1), encoding="ascii")
    print(f"\nwritten: {OUT / 'l7.json'}")


if __name__ == "__main__":
    main()
