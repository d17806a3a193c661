# SPDX-License-Identifier: BSD-2-Clause
"""Operation in figures: reloads, upgrades and deaths under load; large configurations. Each against its goal (root)."""

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from conftest import Daemon, Lab, connect, make_cert, raw, read_response, start_nginx, wait_for  # noqa: E402
from load import Clients, during, h2load, h2load_result  # noqa: E402

CFG = """
global
    stats socket {sock} level admin expose-fd listeners
    nbthread 2
    hard-stop-after 30s
defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 5s
    option idle-close-on-response
frontend page
    bind 127.0.0.1:8404
    http-request use-service prometheus-exporter if { path /metrics }
    stats uri /stats
listen web
    bind 127.0.0.1:8000
    bind 127.0.0.1:8002 proto h2
    bind 127.0.0.1:8443 ssl crt {dir}/site.pem alpn h2,http/1.1
    server s1 127.0.0.1:9001
    server s2 127.0.0.1:9002
"""
# Everything that is built anew or carried over by a reload, once: servers that are verified and checked, a table, ACLs, a map of texts.
RICH = """
backend rich
    balance leastconn
    stick-table type ipv6 size 100k expire 10m store gpc0,conn_cur,http_req_rate(10s),bytes_out_rate(60s)
    stick on src
    cookie SRV insert indirect nocache
    option httpchk GET /health
    http-request track-sc0 src
    http-request set-header x-a %[req.hdr(host),lower] if {{ path_beg /a /b /c }}
    http-request deny if {{ path_reg ^/x[0-9]+$ }} || {{ sc0_http_req_rate gt 1000 }}
""".replace("{{", "{").replace("}}", "}") + "".join(
    f"    server t{i} 127.0.0.1:{20000 + i} ssl verify required ca-file {{dir}}/site.pem sni str(a) check inter 1h cookie c{i} maxconn 20\n"
    for i in range(100))
# name, port, TLS, requests per connection (0: as many as it gives), at once, pause
KINDS = [("new", 8000, False, 1, 1, 0), ("kept", 8000, False, 0, 1, 0.001), ("pauses", 8000, False, 0, 1, 0.13),
         ("tls new", 8443, True, 1, 1, 0.005), ("tls pauses", 8443, True, 0, 1, 0.07), ("pipelined", 8000, False, 0, 6, 0.002)]
GET = b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Figures:
    """What was measured, what it should be."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, unit, goal, is_good):
        self.rows.append({"what": what, "value": value, "unit": unit, "goal": goal, "ok": bool(is_good)})
        print(f"  {'ok  ' if is_good else 'MISS'} {what:62} {value:>10} {unit:9} goal {goal}", flush=True)


def servers(n):
    return "".join(f"backend b{b}\n" + "".join(f"    server srv{s} 10.9.{b}.{s}:80\n" for s in range(100)) for b in range(n // 100))


def http2_loads(host, seconds):
    return [(url, h2load(host, url, seconds)) for url in ("http://127.0.0.1:8002/", "https://127.0.0.1:8443/")]


def http2_ends(host, loads):
    """Requests, and of those that failed."""
    results = [h2load_result(host, proc, url) for url, proc in loads]
    for url, _ in loads:
        (host.lab.dir / f"h2load-{re.sub('[^a-z0-9]', '', url)}0.log").unlink()
    return sum(r[0] for r in results), sum(r[1] for r in results)


def reloads(host, f, seconds):
    d = Daemon(host, CFG).start()
    loads, clients, refused = http2_loads(host, int(seconds) + 1), Clients(host, KINDS), []

    def reload(i):
        d.write(CFG + f"    http-response set-header x-generation {i}\n" + ("" if i % 2 else f"listen x{i % 7}\n    bind 127.0.0.1:{8100 + i % 7}\n"))
        if "Success=1" not in (out := d.cli("reload")):
            refused.append(out)

    n = during(seconds, 0.1, reload)
    clients.stop()
    done, failed = http2_ends(host, loads)
    done, failed = done + sum(clients.done.values()), failed + len(clients.failures)
    f.add(f"reloads per second under load, for {seconds:g} s", round(n / seconds, 1), "/s", "10 (a free machine)", n >= 5 * seconds and not refused)
    f.add(f"requests that failed, of {done}", failed, "", "0", failed == 0)
    d.stop()


def upgrades(host, f):
    d = Daemon(host, CFG).start()
    clients, loads = Clients(host, KINDS), http2_loads(host, 6)
    clients.until(10)
    for i in range(3):
        new = Daemon(host, CFG, name=f"new{i}", args=["-x", str(d.sock), "-sf", str(d.proc.pid)])
        new.sock = d.sock
        new.write(CFG)
        new.start()
        d.proc.wait(40)
        d = new
        clients.until(10)
    clients.stop()
    done, failed = http2_ends(host, loads)
    # A client of HTTP/2 that is told to go has to come again; h2load does not, and counts what it had not sent yet as failed.
    f.add(f"binary upgrades: requests that failed, of {sum(clients.done.values())}", len(clients.failures), "", "0", not clients.failures)
    f.add(f"the same over HTTP/2, of {done} (h2load: it never comes again)", failed, "", "(shown)", True)
    d.stop()


class Http2Clients(threading.Thread):
    """One HTTP/2 connection after the other, three requests on each, until stopped: how curl ended, by its status."""

    def __init__(self, host):
        super().__init__()
        self.host, self.ended, self.is_stopped = host, Counter(), False
        self.start()

    def run(self):
        while not self.is_stopped:
            out = self.host.run("curl -sk --http2 -o /dev/null -m 20 'https://127.0.0.1:8443/[1-3]'", check=False)
            self.ended[out.returncode] += 1

    def stop(self):
        self.is_stopped = True
        self.join()
        return self.ended


def deaths(host, f):
    d = Daemon(host, CFG, args=["-W"]).start()
    clients, http2 = Clients(host, KINDS), Http2Clients(host)
    clients.until(10)
    for _ in range(3):
        first = int(re.search(r"^Pid: (\d+)$", d.cli("show info"), re.M)[1])
        time.sleep(1.5)
        os.kill(first, signal.SIGKILL)
        wait_for("another worker", lambda: (m := re.search(r"^Pid: (\d+)$", d.cli("show info", check=False), re.M)) and int(m[1]) != first,
                 timeout=30)
        clients.until(10)
    clients.stop()
    ended = http2.stop()
    refused = sum("Refused" in str(x) for x in clients.failures)
    most = 3 * len(KINDS)
    f.add("kill -9 of the worker, three times: connections refused", refused, "", "0", refused == 0)
    f.add(f"requests lost, of {sum(clients.done.values())}", len(clients.failures), "", f"{most}: those in flight", len(clients.failures) <= most)
    f.add(f"the same over HTTP/2, of {sum(ended.values())} connections: refused", ended[7], "", "0", ended[7] == 0)
    f.add("the same: connections cut", sum(ended.values()) - ended[0] - ended[7], "", "3: those open", sum(ended.values()) - ended[0] - ended[7] <= 3)
    d.stop()


def busy_ns(host):
    page = raw(host, "127.0.0.1", 8404, GET % b"/metrics?scope=global", timeout=30).decode()
    return [int(n) for n in re.findall(r"^headgate_worker_busy_ns_total\{[^}]*\} (\d+)", page, re.M)]


def sizes(host, f):
    d = Daemon(host, CFG + servers(10_000)).start()
    took, paused = [], []
    for _ in range(7):
        rest = [b - a for a, b in zip(busy_ns(host), busy_ns(host))]  # what the question itself costs
        before, began = busy_ns(host), time.monotonic()
        assert "Success=1" in d.cli("reload", timeout=60)
        took.append(time.monotonic() - began)
        paused.append(max(b - a - r for a, b, r in zip(before, busy_ns(host), rest)) / 1e6)
    f.add("reload with 10,000 servers (best of 7)", round(min(took) * 1e3), "ms", "500", min(took) < 0.5)
    f.add("time a worker spends on it (median)", round(max(0, sorted(paused)[3]), 3), "ms", "1", sorted(paused)[3] < 1)
    scrape = []
    for _ in range(7):
        out = host.run("curl -s -o /dev/null -w '%{time_total} %{size_download}' http://127.0.0.1:8404/metrics", timeout=60).stdout.split()
        scrape.append(float(out[0]))
    f.add(f"scrape of 10,000 servers, {int(out[1]) / 1e6:.0f} MB (best of 7)", round(min(scrape) * 1e3), "ms", "200", min(scrape) < 0.2)
    d.stop()
    d = Daemon(host, CFG + servers(1_000)).start()
    page = []
    for _ in range(9):
        began = time.monotonic()
        body = raw(host, "127.0.0.1", 8404, GET % b"/stats", timeout=30)
        page.append(time.monotonic() - began)
    f.add("statistics page of 1,000 servers (best of 9)", round(min(page) * 1e3, 1), "ms", "50", min(page) < 0.05)
    f.add("its size", round(len(body) / 1e6, 2), "MB", "2", len(body) < 2e6)
    d.stop()


def rss(d):
    with open(f"/proc/{d.proc.pid}/status", encoding="ascii") as s:
        return next(int(line.split()[1]) for line in s if line.startswith("VmRSS"))


def memory(host, f, what, text, reloads):
    """Resident size after ten reloads, and after many: each ends with one configuration alone, and a request served."""
    d = Daemon(host, text).start()

    def after(n):
        for _ in range(n):
            said = d.cli("reload", timeout=30)
            while "try again" in said:  # three milliseconds each: a worker that got no CPU for long has 64 to let go
                time.sleep(0.1)
                said = d.cli("reload", timeout=30)
            assert "Success=1" in said, said
        for _ in range(40):  # both workers have served
            with connect(host, "127.0.0.1", 8000) as c:
                c.sendall(GET % b"/")
                assert read_response(c)[0] == 200
        wait_for("old configurations to go", lambda: len(re.findall(r"^\s*\d+", d.cli("show snapshots"), re.M)) == 1, timeout=30)
        time.sleep(1.5)  # memory is given back once a second
        return rss(d)

    ten = after(10)
    many = after(reloads - 10)
    grown = (many - ten) / ten * 100
    f.add(f"memory after {reloads:,} reloads of {what} against {ten // 1024} MB after 10", round(grown, 2), "%", "2", grown < 2)
    d.stop()


def memories(host, f, reloads):
    memory(host, f, "two servers", CFG, reloads)
    memory(host, f, "1,000 servers", CFG + servers(1_000), reloads)
    memory(host, f, "100 servers, TLS, a stick table", CFG + RICH, reloads)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--seconds", type=float, default=30, help="of reloads under load")
    args.add_argument("--reloads", type=int, default=1000, help="before memory is looked at")
    args.add_argument("--only", nargs="*", metavar="PART", help="of: reloads upgrades deaths sizes memories")
    args.add_argument("--json", type=Path, help="write the figures there, too")
    args = args.parse_args()
    f = Figures()
    with Lab("operation") as lab:
        host = lab.host("edge")
        make_cert(lab.dir / "site.pem", ["a", "127.0.0.1"])
        start_nginx(host, ["127.0.0.1:9001", "127.0.0.1:9002"])
        parts = {"reloads": lambda: reloads(host, f, args.seconds), "upgrades": lambda: upgrades(host, f), "deaths": lambda: deaths(host, f),
                 "sizes": lambda: sizes(host, f), "memories": lambda: memories(host, f, args.reloads)}
        for name in args.only or parts:
            parts[name]()
    if args.json:
        args.json.write_text(json.dumps(f.rows, indent=1) + "\n", encoding="ascii")
    sys.exit(not all(r["ok"] for r in f.rows))


if __name__ == "__main__":
    main()
