# SPDX-License-Identifier: BSD-2-Clause
"""QUIC connections of a real stack whose clients change their port, with and without `affinity quic-cid`."""

import json
import os
from pathlib import Path

import pytest
from conftest import ROOT, SLOW, make_cert, run_cli, wait_for

VIP, VIP6 = "192.0.2.20", "2001:db8::20"
PEER = Path(__file__).with_name("quic_peer.py")
PYTHON = ROOT / "build" / "tools" / "python"
ENV = {**os.environ, "PYTHONPATH": str(PYTHON)}

pytestmark = pytest.mark.skipif(not (PYTHON / "aioquic").is_dir(), reason="aioquic is not there (tools/quic.sh installs it)")

CONF = """
global
    stats socket {sock} level admin
    xdp interface eth0

defaults
    timeout connect 1s
    timeout client 10s
    timeout server 10s

listen quic
    mode l4
    bind udp@192.0.2.20:443
    bind udp@[2001:db8::20]:443
    forward @METHOD@
    @AFFINITY@
    server web1 10.10.0.11 @ID1@
    server web2 10.10.0.12 @ID2@
"""
IDS = {"web1": 0x0102, "web2": 7}


@pytest.fixture
def net(lab):
    """client, edge and two servers on a switch; a QUIC server for each family on both."""
    switch = lab.switch()
    client, edge, *webs = (lab.host(n) for n in ("client", "edge", "web1", "web2"))
    for h in (client, edge, *webs):
        lab.plug(switch, h)
        lab.xdp_pass(switch, h.name)
    client.addr("eth0", "10.10.0.2/24", "fd00:10::2/64")
    edge.addr("eth0", "10.10.0.1/24", "fd00:10::1/64")
    client.route("192.0.2.0/24", "via", "10.10.0.1")
    client.route("2001:db8::/64", "via", "fd00:10::1")
    pem = Path(make_cert(lab.dir / "quic.pem", ["quic.test"])).read_text(encoding="ascii")
    at = pem.index("-----BEGIN", 1)
    parts = {"CERT" in part.split("\n")[0]: part for part in (pem[:at], pem[at:])}
    for is_cert, part in parts.items():
        (lab.dir / ("quic.crt" if is_cert else "quic.key")).write_text(part, encoding="ascii")
    for i, web in enumerate(webs, 11):
        web.addr("eth0", f"10.10.0.{i}/24", f"fd00:10::{i}/64")
        web.addr("lo", f"{VIP}/32", f"{VIP6}/128")
        run_cli(web, "attach", "eth0", "--role", "backend", "--address", f"10.10.0.{i}")
        for vip in (VIP, VIP6):
            web.popen(["/usr/bin/python3", PEER, "server", vip, "443", lab.dir / "quic.crt", lab.dir / "quic.key", web.name,
                       IDS[web.name]], log=f"{web.name}.quic.log", env=ENV)
    for web in webs:
        log = lab.dir / f"{web.name}.quic.log"
        wait_for(f"QUIC servers of {web.name}", lambda: log.read_text(errors="replace").count("listening") == 2, timeout=30 * SLOW)
    lab.client, lab.edge = client, edge
    return lab


def start(daemon, net, method, affinity, has_ids):
    ids = {f"@ID{n}@": f"quic-id {IDS[f'web{n}']}" if has_ids else "" for n in (1, 2)}
    text = CONF.replace("@METHOD@", method).replace("@AFFINITY@", affinity)
    for k, v in ids.items():
        text = text.replace(k, v)
    d = daemon(net.edge, text)
    wait_for("next hops", lambda: d.cli("show l4").count(" resolved ") == 2, timeout=15 * SLOW)
    return d


def connections(net, vip, n, moves, seconds):
    """For each connection the (server, number of the request in its connection) of every answer; None: no answer."""
    out = net.client.run(["/usr/bin/python3", PEER, "client", vip, "443", n, moves, seconds * SLOW], env=ENV, timeout=120 * SLOW)
    return [[a and (a.split()[0], int(a.split()[1])) for a in c] for c in json.loads(out.stdout)]


def test_connections_stay_when_their_client_moves(net, daemon):
    """Three changes of the port, one of them with a new connection id: the same server, and the same connection there."""
    start(daemon, net, "ipip", "affinity quic-cid length 2", True)
    got = connections(net, VIP, 10, 3, 15) + connections(net, VIP6, 6, 3, 15)
    for c in got:
        assert c[0] is not None and c == [(c[0][0], n) for n in (1, 2, 3, 4)], got
    assert {c[0][0] for c in got} == {"web1", "web2"}
    events = json.loads(run_cli(net.edge, "status", "--json").stdout)["events"]
    assert events["QUIC_BY_ID"] >= 16 * 3 and events["QUIC_UNKNOWN_ID"] == 0, events


def test_without_the_keyword_they_do_not(net, daemon):
    """By flow a new port is another flow: with two servers half of the connections end at the one that does not know them."""
    start(daemon, net, "ipip", "affinity flow", False)
    got = connections(net, VIP, 16, 1, 4)
    assert all(c[0] is not None for c in got), got
    lost = sum(c[1] is None for c in got)
    assert 0 < lost < 16, got
