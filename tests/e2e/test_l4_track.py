# SPDX-License-Identifier: BSD-2-Clause
"""No broken connection: real TCP connections live through every change of an L4 service's servers."""

import json
import signal
import threading
import time
from functools import partial

import pytest
from conftest import SLOW, connect, read_response, run_cli, start_nginx, together, wait_for

VIP = "192.0.2.20"
WINDOW = 4  # seconds
SERVERS = 4

HEAD = """
global
    stats socket {sock} level admin
    xdp interface eth0
    xdp flow-entries 20000

defaults
    timeout connect 1s
    timeout client 10s
    timeout server 10s

listen web
    mode l4
    bind tcp@192.0.2.20:80
    forward ipip
    learn-window %ds
    maglev-table-size 1021
    option tcp-check
""" % WINDOW


def text_of(*numbers, extra=""):
    rows = [f"    server web{i} 10.10.0.{10 + i} check port 80 inter 300 fall 2 rise 2\n" for i in numbers]
    return HEAD + extra + "".join(rows)


@pytest.fixture
def net(lab):
    switch = lab.switch()
    client, edge = lab.host("client"), lab.host("edge")
    webs = [lab.host(f"web{i}") for i in range(1, SERVERS + 1)]
    for h in (client, edge, *webs):
        lab.plug(switch, h)
        lab.xdp_pass(switch, h.name)
    client.addr("eth0", "10.10.0.2/24")
    edge.addr("eth0", "10.10.0.1/24")
    client.route("192.0.2.0/24", "via", "10.10.0.1")
    for i, web in enumerate(webs, 11):
        web.addr("eth0", f"10.10.0.{i}/24")
        web.addr("lo", f"{VIP}/32")
        web.nginx = start_nginx(web, ["80"], keepalive="600s")
    together(*(partial(run_cli, web, "attach", "eth0", "--role", "backend", "--address", f"10.10.0.{i}")
               for i, web in enumerate(webs, 11)))
    lab.client, lab.edge, lab.webs = client, edge, webs
    return lab


class Keeper(threading.Thread):
    """Many open connections; each asks once per round and must be answered by the server it began with."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.lock = client, threading.Lock()
        self.connections, self.broken, self.rounds, self.is_over = [], [], 0, False

    @staticmethod
    def ask(s):
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, body = read_response(s)
        assert status == 200
        return body.decode().strip().removeprefix("hello from ")

    def open(self, n):
        """n more connections; how many each server got."""
        new = []
        for _ in range(n):
            s = connect(self.client, VIP, 80, timeout=5)
            new.append((s, self.ask(s)))
        with self.lock:
            self.connections += new
        names = [name for _, name in new]
        return {name: names.count(name) for name in names}

    def count(self):
        names = [name for _, name in self.connections]
        return {name: names.count(name) for name in names}

    def close(self, name):
        """Ends the connections to this server; how many there were."""
        with self.lock:
            gone = [c for c in self.connections if c[1] == name]
            self.connections = [c for c in self.connections if c[1] != name]
        for s, _ in gone:
            s.close()
        return len(gone)

    def run(self):
        while not self.is_over:
            with self.lock:
                for s, name in self.connections:
                    try:
                        now = self.ask(s)
                        assert now == name, f"answered by {now}"
                    except (OSError, EOFError, AssertionError) as e:
                        self.broken.append((name, repr(e)))
                self.rounds += 1
            if self.broken:
                return
            time.sleep(0.2)

    def check(self, what, rounds=2):
        """All of them have been asked again, so often, and have answered."""
        want = self.rounds + rounds
        wait_for(f"rounds after {what}", lambda: self.rounds >= want or self.broken, timeout=60 * SLOW)
        assert not self.broken, f"{what}: {len(self.broken)} broken: {self.broken[:5]}"

    def finish(self):
        self.is_over = True
        self.join(60 * SLOW)
        assert not self.broken, self.broken[:5]
        for s, _ in self.connections:
            s.close()


def shown(d, what):
    return json.loads(d.cli(f"show {what} json"))


def service(d):
    return next(s for s in shown(d, "services") if s["service"] == f"tcp@{VIP}:80")


def backends(d):
    """State by the last byte of the address."""
    return {int(b["addr"].rsplit(".", 1)[1]) - 10: b["state"] for b in shown(d, "backends")}


def ready(d, n):
    return sum(b["neighbour"] == "resolved" for b in shown(d, "backends")) >= n


def reload(net, d, *numbers, extra=""):
    d.write(text_of(*numbers, extra=extra))
    assert "reloaded" in run_cli(net.edge, "-s", d.sock, "reload").stdout


@pytest.fixture
def kept(net, daemon):
    """Three servers, 240 connections on them."""
    d = daemon(net.edge, text_of(1, 2, 3))
    wait_for("next hops", lambda: ready(d, 3))
    keeper = Keeper(net.client)
    assert set(keeper.open(240)) == {"web1", "web2", "web3"}
    keeper.start()
    keeper.check("the start")
    assert service(d)["tracked"] == 0 and service(d)["flows"] == 0, "no change, no memory"
    yield net, d, keeper
    keeper.is_over = True


def test_add_drain_weigh_remove(kept):
    net, d, keeper = kept

    reload(net, d, 1, 2, 3, 4)
    keeper.check("a server was added")
    moved = service(d)["tracked"]
    assert 1021 / 8 < moved < 1021 / 2, "about a quarter of the slots"
    wait_for("next hop of the new server", lambda: ready(d, 4))
    assert keeper.open(60).get("web4", 0) > 0

    # Within the same window: a second and a third change.
    d.cli("set server web/web1 state drain")
    keeper.check("web1 drains")
    before = keeper.count()
    assert "web1" not in keeper.open(40)
    d.cli("set server web/web2 weight 10%")
    d.cli("set server web/web3 weight 200")
    keeper.check("weights have changed")
    assert keeper.open(40).get("web3", 0) > 20

    # Past the window: flows of the former owners are known by name now.
    time.sleep(2.5 * WINDOW)
    keeper.check("the window is over", rounds=3)
    assert keeper.count()["web1"] == before["web1"]
    assert service(d)["flows"] > 0

    reload(net, d, 2, 3, 4)
    keeper.check("web1 was removed")
    assert backends(d)[1] == "draining"
    time.sleep(2.5 * WINDOW)
    keeper.check("the window after that", rounds=3)
    assert backends(d)[1] == "draining", "its connections still live"
    assert keeper.close("web1") == before["web1"]
    wait_for("web1's row to go", lambda: 1 not in backends(d), timeout=12 * WINDOW * SLOW)
    d.cli("set server web/web4 state maint")
    keeper.check("web4 in maintenance")
    d.cli("set server web/web4 state ready")
    keeper.check("web4 back")
    keeper.finish()


def test_flap_harms_nobody_else(kept):
    net, d, keeper = kept
    keeper.close("web2")
    for _ in range(3):
        net.webs[1].stop(net.webs[1].nginx)
        d.wait_server("web", "web2", "DOWN")
        keeper.check("web2 is down")
        assert "web2" not in keeper.open(15)
        net.webs[1].nginx = start_nginx(net.webs[1], ["80"], keepalive="600s")
        d.wait_server("web", "web2", "UP")
        # Who began while it was away stays where they are; new ones are its own again.
        keeper.check("web2 is back")
    assert keeper.open(60).get("web2", 0) > 0
    time.sleep(2.5 * WINDOW)
    keeper.check("the window after the last flap", rounds=3)
    keeper.finish()


def test_kill_9_restart_reload_and_attach(kept):
    net, d, keeper = kept
    reload(net, d, 1, 2, 3, 4)
    keeper.check("a server was added")
    wait_for("next hop of the new server", lambda: ready(d, 4))
    keeper.open(40)
    tracked = service(d)["tracked"]

    # In the middle of the window the daemon dies; the next one finds what it knew in the maps.
    d.proc.send_signal(signal.SIGKILL)
    d.proc.wait()
    keeper.check("kill -9")
    assert run_cli(net.edge, "attach", "eth0").returncode == 0
    keeper.check("attached again without a daemon")
    d.start()
    keeper.check("a new daemon")
    assert service(d)["tracked"] >= tracked
    busy = run_cli(net.edge, "attach", "eth0", check=False)
    assert busy.returncode == 1 and "another Headgate process owns" in busy.stderr

    # A server is gone when it comes back: its connections stay, nobody knows its name any more.
    d.proc.send_signal(signal.SIGKILL)
    d.proc.wait()
    d.write(text_of(1, 3, 4))
    d.start()
    keeper.check("started without web2")
    assert backends(d)[2] == "draining"
    time.sleep(2.5 * WINDOW)
    keeper.check("its window is over", rounds=3)
    for _ in range(3):
        reload(net, d, 1, 3, 4)
    keeper.check("reloads")
    assert d.stop() == 0
    keeper.check("stopped")

    # So much more that larger maps are needed: what the older ones hold goes along.
    big = "listen big\n    mode l4\n    bind tcp@192.0.2.21:80\n    forward ipip\n" \
          "    maglev-table-size 655373\n    server web1 10.10.0.11\n"
    d.write(text_of(1, 4).replace("flow-entries 20000", "flow-entries 200000") + big)
    d.start()
    assert "pinned maps are too small: loading larger ones" in d.output()
    keeper.check("larger maps")
    assert backends(d)[2] == backends(d)[3] == "draining"
    time.sleep(2.5 * WINDOW)
    keeper.check("the window after that", rounds=3)
    keeper.finish()


def test_when_all_is_quiet_nothing_is_tracked(kept):
    net, d, keeper = kept
    d.cli("set server web/web1 state drain")
    keeper.check("web1 drains")
    d.cli("set server web/web1 state ready")
    keeper.check("web1 is back")
    assert service(d)["tracked"] > 0
    wait_for("slots to settle", lambda: service(d)["tracked"] == 0, timeout=15 * WINDOW * SLOW)
    keeper.check("nothing is tracked")
    wait_for("entries to go", lambda: service(d)["flows"] == 0, timeout=10 * WINDOW * SLOW)
    keeper.check("nothing is remembered")
    keeper.finish()


def connections(d):
    """Now, by server."""
    return {b["server"]: b["conns"] for b in shown(d, "backends")}


def test_track_on_remembers_and_counts_all(net, daemon):
    d = daemon(net.edge, text_of(1, 2, extra="    track on\n").replace("10.10.0.11 ", "10.10.0.11 maxconn 1000 "))
    wait_for("next hops", lambda: ready(d, 2))
    keeper = Keeper(net.client)
    opened = keeper.open(50)
    wait_for("all counted", lambda: connections(d) == opened)
    keeper.start()
    wait_for("entries", lambda: service(d)["flows"] >= 50)
    assert service(d)["tracked"] == 0
    keeper.check("track on")

    # No more than it has: it gets no new ones, and nobody else notices.
    d.cli(f"set maxconn server web/web1 {opened['web1']}")
    wait_for("the limit", lambda: shown(d, "backends")[0]["maxconn"] == opened["web1"])
    refused = 0
    while not refused:
        try:
            connect(net.client, VIP, 80, timeout=0.3).close()
        except TimeoutError:
            refused += 1
    keeper.check("web1 is full")
    d.cli("set maxconn server web/web1 0")
    gone = keeper.close("web1")
    assert gone == opened["web1"]
    wait_for("closed ones not to count", lambda: connections(d) == {"web1": 0, "web2": opened["web2"]})
    keeper.finish()
