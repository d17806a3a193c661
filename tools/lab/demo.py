# SPDX-License-Identifier: BSD-2-Clause
"""A small network on this machine, both tiers of Headgate in it, and real requests through them."""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from lab import BUILD, Lab, make_cert, start_nginx, wait_for  # noqa: E402

HTTPS, L4, L4V6 = "192.0.2.10", "192.0.2.20", "2001:db8::20"
REQUESTS = 24

PICTURE = """
   client 10.10.0.2 ──┐                ┌── web1 10.10.0.11  nginx + Headgate's agent
                      ├── switch ──────┼── web2 10.10.0.12
   edge   10.10.0.1 ──┘                └── web3 10.10.0.13
     XDP + headgated

   https://192.0.2.10/   TLS and HTTP end in headgated on the edge host, which asks web1..3
   http://192.0.2.20/    XDP on the edge host sends each packet on, IP in IP; web1..3 answer the client directly
"""


def say(text=""):
    print(text, flush=True)


def title(text):
    say(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}")


def build_network(lab):
    switch, client, edge = lab.switch(), lab.host("client"), lab.host("edge")
    webs = [lab.host(f"web{i}") for i in (1, 2, 3)]
    for host in (client, edge, *webs):
        lab.plug(switch, host)
        lab.xdp_pass(switch, host.name)
    client.addr("eth0", "10.10.0.2/24", "fd00:10::2/64")
    edge.addr("eth0", "10.10.0.1/24", "fd00:10::1/64")
    edge.addr("lo", f"{HTTPS}/32")
    client.route("192.0.2.0/24", "via", "10.10.0.1")
    client.route("2001:db8::/64", "via", "fd00:10::1")
    for i, web in enumerate(webs, 11):
        web.addr("eth0", f"10.10.0.{i}/24", f"fd00:10::{i}/64")
        web.addr("lo", f"{L4}/32", f"{L4V6}/128")  # the service address: answers go out with it
        web.route("192.0.2.0/24", "via", "10.10.0.1")
    return client, edge, webs


def start_servers(webs):
    for i, web in enumerate(webs, 11):
        start_nginx(web, ["80", "[::]:80", "8080"])
        web.run([BUILD / "headgate", "attach", "eth0", "--role", "backend",
                 "--address", f"10.10.0.{i}", "--address", f"fd00:10::{i}"])


def start_edge(lab, edge):
    make_cert(lab.dir / "shop.pem", ["shop.example", HTTPS])
    cfg = Path(__file__).parent / "demo.cfg"
    env = {**os.environ, "HG_LAB_DIR": str(lab.dir)}
    proc = edge.popen([BUILD / "headgated", "-f", cfg], log="headgated.log", env=env)

    def is_up():
        if proc.poll() is not None:
            raise RuntimeError("headgated ended:\n" + (lab.dir / "headgated.log").read_text())
        shown = edge.run([BUILD / "headgate", "show", "servers", "state"], check=False)
        states = re.findall(r"^\d+ web \d+ web\d \S+ (\d)", shown.stdout, re.M)
        return states == ["2", "2", "2"]

    wait_for("the edge host to be up", is_up, timeout=20)
    wait_for("the kernel tier to know its backends", lambda: edge.run(
        [BUILD / "headgate", "status"], check=False).stdout.count(" resolved ") == 3)
    return proc


def ask(client, url, n, *options):
    """n requests on connections of their own; who answered how often."""
    seen = collections.Counter()
    for _ in range(n):
        done = client.run(["curl", "-sS", "-g", "--max-time", "5", *options, url], check=False)
        if done.returncode != 0:
            raise RuntimeError(f"curl {url}: {done.stderr.strip()}")
        seen[done.stdout.strip()] += 1
    return seen


def show_answers(what, seen):
    say(f"{what}")
    for text, n in sorted(seen.items()):
        say(f"    {n:3d} x  {text}")


def talk(lab, client, edge):
    title(f"{REQUESTS} requests through the L7 tier: https://{HTTPS}/")
    tls = ["--cacert", lab.dir / "shop.pem", "--resolve", f"shop.example:443:{HTTPS}"]
    show_answers("answered by", ask(client, "https://shop.example/", REQUESTS, *tls))
    done = client.run(["curl", "-sS", *tls, "-o", "/dev/null", "-w",
                       "%{ssl_verify_result} %{http_version} %{http_code}", "https://shop.example/"])
    say(f"    (verify result, HTTP version, status: {done.stdout})")
    title(f"{REQUESTS} requests through the L4 tier: http://{L4}/ and http://[{L4V6}]/")
    show_answers("over IPv4, answered by", ask(client, f"http://{L4}/", REQUESTS))
    show_answers("over IPv6, answered by", ask(client, f"http://[{L4V6}]/", REQUESTS))
    title("What the kernel tier counted (headgate status)")
    say(edge.run([BUILD / "headgate", "status"]).stdout.rstrip())
    title("What the HTTP tier counted (show stat)")
    show_stat(edge)
    title("The last lines of the traffic log")
    lines = (lab.dir / "headgated.log").read_text(errors="replace").splitlines()
    for line in [x for x in lines if '"GET ' in x][-3:]:
        say("    " + line)


def show_stat(edge):
    csv = edge.run([BUILD / "headgate", "show", "stat"]).stdout.lstrip("# ").splitlines()
    names = csv[0].split(",")
    say("    {:10} {:10} {:>8} {:>9} {:>9} {:>9}  {}".format(
        "proxy", "server", "sessions", "requests", "bytes in", "bytes out", "status"))
    for line in csv[1:]:
        row = dict(zip(names, line.split(",")))
        if row.get("svname"):
            say("    {:10} {:10} {:>8} {:>9} {:>9} {:>9}  {}".format(
                row["pxname"], row["svname"], row["stot"], row["req_tot"] or "-", row["bin"], row["bout"],
                row["status"]))


def show_further(edge, stays):
    title("Look further")
    enter = f"nsenter -t {edge.pid} -n -m --"
    pins = "/sys/fs/bpf/headgate"
    if not stays:
        say("    ('make demo-shell' keeps the network up; these are for the edge host)")
    for what in (f"bpftool map dump pinned {pins}/stats_backends", f"bpftool map dump pinned {pins}/services",
                 f"bpftool map dump pinned {pins}/xdp_verdicts", "bpftool net show",
                 f"{BUILD}/headgate show info"):
        say(f"    {enter} {what}")


def proof_of_maps(edge):
    title("The same numbers, straight out of the kernel's maps (bpftool)")
    dump = json.loads(edge.run(["bpftool", "-j", "map", "dump", "pinned",
                                "/sys/fs/bpf/headgate/stats_backends"]).stdout)
    rows = [r.get("formatted", r)["value"] for r in dump]
    for row in rows:
        if row.get("requests"):
            say(f"    stats_backends: row {row['id']}, worker {row['worker']}: "
                f"{row['requests']} requests, {row['bytes_out']} bytes out")


def shell(client, edge, lab):
    title("A shell in the client; leave it with exit, and the network goes away")
    say(f"    curl -k https://{HTTPS}/       curl http://{L4}/      ping 10.10.0.1")
    say(f"    the edge host: nsenter -t {edge.pid} -n -m bash      its log: {lab.dir}/headgated.log")
    subprocess.run(client.cmd(["bash", "--norc", "-i"]), env={**os.environ, "PS1": "client# "}, check=False)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--shell", action="store_true", help="leave the network up, with a shell in the client")
    stays = args.parse_args().shell
    with Lab("demo") as lab:
        say(PICTURE)
        client, edge, webs = build_network(lab)
        start_servers(webs)
        daemon = start_edge(lab, edge)
        talk(lab, client, edge)
        proof_of_maps(edge)
        show_further(edge, stays)
        if stays:
            shell(client, edge, lab)
        edge.stop(daemon)
    say()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, TimeoutError, subprocess.SubprocessError) as e:
        sys.exit(f"demo: {e}")
