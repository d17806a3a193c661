# SPDX-License-Identifier: BSD-2-Clause
"""Pictures of the statistics page for the documentation: the demo's network, half a minute of traffic, headless Chromium."""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from browser import CHROMIUM, Browser  # noqa: E402
from demo import HTTPS, L4, build_network, start_servers  # noqa: E402
from lab import BUILD, ROOT, Lab, make_cert, wait_for  # noqa: E402

LIMIT = 150_000  # bytes of a picture
PAGE = "http://127.0.0.1:8404/stats"
CONF = """
global
    stats socket /run/headgate/admin.sock mode 600 level admin
    nbthread 2
    description edge of the shop
    xdp interface eth0 mode native
    xdp deny-file "${HG_LAB_DIR}/deny.lst"

defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    timeout http-keep-alive 10s

frontend shop
    bind 192.0.2.10:443 ssl crt "${HG_LAB_DIR}/shop.pem"
    http-request deny if { path /admin }
    use_backend media if { path_beg /file/ }
    default_backend web

backend web
    balance roundrobin
    option httpchk GET /
    server web1 10.10.0.11:8080 check inter 500 weight 100
    server web2 10.10.0.12:8080 check inter 500 weight 100
    server web3 10.10.0.13:8080 check inter 500 weight 50
    server old 10.10.0.13:8081 check inter 500
    server spare 10.10.0.13:80 disabled backup

backend media
    balance leastconn
    server web1 10.10.0.11:8080
    server web2 10.10.0.12:8080

listen static
    mode l4
    bind tcp@192.0.2.20:80
    forward ipip
    option tcp-check
    server web1 10.10.0.11 check port 8080 inter 500
    server web2 10.10.0.12 check port 8080 inter 500
    server web3 10.10.0.13 check port 8080 inter 500

frontend page
    bind 127.0.0.1:8404
    stats uri /stats
    stats show-node edge1
    stats show-desc
    stats show-legends
    stats hide-version
    stats admin if TRUE
    stats refresh 1s
"""
# Requests per second that rise and fall; one connection each, as many do.
CLIENT = """
import math, socket, ssl, sys, time
ctx = ssl.create_default_context()
ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
began = time.monotonic()
while True:
    t = time.monotonic() - began
    for addr, port, path, tls in (("192.0.2.10", 443, "/", True), ("192.0.2.20", 80, "/", False), ("192.0.2.10", 443, "/file/picture", True)):
        if path != "/" and int(t * 10) % 3:
            continue
        s = socket.create_connection((addr, port), 5)
        s = ctx.wrap_socket(s) if tls else s
        path = "/admin" if int(t * 100) % 40 == 0 else path
        s.sendall(f"GET {path} HTTP/1.1\\r\\nHost: shop.example\\r\\nConnection: close\\r\\n\\r\\n".encode())
        while s.recv(65536):
            pass
        s.close()
    time.sleep(0.01 + 0.06 * (1 + math.sin(t / 2.5)) ** 2)
"""
PICTURES = [  # file, width, height, dark, phone, where on the page
    ("stats-desktop-light.png", 1280, 800, False, False, ""),
    ("stats-desktop-dark.png", 1280, 800, True, False, ""),
    ("stats-kernel-tier.png", 1280, 800, False, False, "Kernel tier"),
    ("stats-phone-light.png", 390, 844, False, True, ""),
    ("stats-phone-dark.png", 390, 844, True, True, ""),
]


def start(lab):
    client, edge, webs = build_network(lab)
    start_servers(webs)
    (lab.dir / "files").mkdir(exist_ok=True)
    (lab.dir / "files" / "picture").write_bytes(bytes(40_000))
    (lab.dir / "deny.lst").write_text("198.51.100.0/24\n")
    make_cert(lab.dir / "shop.pem", ["shop.example", HTTPS])
    cfg = lab.dir / "shots.cfg"
    cfg.write_text(CONF)
    edge.daemon = edge.popen([BUILD / "headgated", "-f", cfg], log="headgated.log", env={**os.environ, "HG_LAB_DIR": str(lab.dir)})

    def is_up():
        if edge.daemon.poll() is not None:
            raise RuntimeError("headgated ended:\n" + (lab.dir / "headgated.log").read_text())
        shown = edge.run([BUILD / "headgate", "status"], check=False).stdout
        stat = edge.run([BUILD / "headgate", "show", "stat"], check=False).stdout
        return shown.count(" resolved ") == 3 and re.search(r"^web,old,.*,DOWN,", stat, re.M)

    wait_for("the edge host to be up", is_up, timeout=30)
    return client, edge


def traffic(client):
    """Requests, and packets that have a reason not to pass."""
    proc = client.popen(["/usr/bin/python3", "-c", CLIENT], log="client.log")
    client.run("ip addr add 198.51.100.7/32 dev lo")
    client.run(f"ping -c 20 -i 0.05 -W 0.1 -I 198.51.100.7 {L4} >/dev/null", check=False)
    client.run(f"curl -s -m 0.3 --interface 198.51.100.7 http://{L4}/", check=False)
    client.run(f"ping -c 12 -i 0.05 -W 0.1 -t 1 {L4} >/dev/null", check=False)
    client.run(f"echo 1 >/proc/sys/net/ipv4/ip_default_ttl; curl -s -m 0.3 http://{L4}/; echo 64 >/proc/sys/net/ipv4/ip_default_ttl",
               check=False)
    return proc


def take(edge, out, seconds):
    """The pictures; the names of those that are too large."""
    large, browser = [], Browser(edge)
    browser.look(1280, 800)
    browser.go(PAGE)
    time.sleep(seconds)
    for name, width, height, dark, phone, where in PICTURES:
        browser.look(width, height, dark, phone, 1.5 if phone else 1)
        browser.ask("scrollTo(0, 0)")
        if where:
            browser.ask(f"[...document.querySelectorAll('h2')].find(h => h.textContent.startsWith('{where}')).scrollIntoView()")
        time.sleep(0.3)
        browser.screenshot(out / name)
        size = (out / name).stat().st_size
        print(f"  {name}: {size} bytes")
        if size > LIMIT:
            large.append(name)
    browser.close()
    if browser.complaints:
        raise RuntimeError("\n".join(browser.complaints))
    return large


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    args.add_argument("--seconds", type=float, default=30, help="of traffic before the pictures")
    args = args.parse_args()
    if not CHROMIUM:
        sys.exit("screenshots: needs chromium ('make deps-browser')")
    args.out.mkdir(exist_ok=True)
    with Lab("shots") as lab:
        client, edge = start(lab)
        proc = traffic(client)
        large = take(edge, args.out, args.seconds)
        client.stop(proc)
        edge.stop(edge.daemon)
    if large:
        sys.exit(f"screenshots: more than {LIMIT} bytes: {' '.join(large)}")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, TimeoutError, subprocess.SubprocessError) as e:
        sys.exit(f"screenshots: {e}")
