# SPDX-License-Identifier: BSD-2-Clause
"""Limits and allow lists of a section's services, in XDP: by configuration, and changed while it runs."""

from conftest import connect, run_cli, wait_for
from test_guard import VIP, VIP6, conf, drops, get, net, service_rows  # noqa: F401
from test_live_counts import count, refused


def test_allow_list(net, daemon, tmp_path):  # noqa: F811
    path = tmp_path / "allow.lst"
    path.write_text("10.20.0.3 # alice\n")
    rules = f"xdp allow 192.0.2.0/24 fd00:20::/64\n    xdp allow-file {path}"
    d = daemon(net.edge, conf(rules=rules))
    assert get(net.alice) == 200 and refused(net.mallory)
    assert get(net.mallory, VIP6) == 200
    assert drops(net.edge, "NOT_ALLOWED") > 0
    assert any(r["denied"] for r in service_rows(d)["services"])
    assert "web allow 3 prefixes" in d.cli("show guard")
    path.write_text("10.20.0.2\n")
    d.cli("reload", timeout=20)
    wait_for("mallory to be let in", lambda: get(net.mallory) == 200)
    assert refused(net.alice)
    # A restart with another list: what the process before had is gone.
    d.stop()
    path.write_text("10.20.0.3\n")
    d.start()
    assert get(net.alice) == 200 and refused(net.mallory)
    d.write(conf())
    d.cli("reload", timeout=20)
    wait_for("everybody to be let in", lambda: get(net.mallory) == 200)


def test_limits_of_a_section(net, daemon):  # noqa: F811
    """Counted over all clients; set while it runs, until the next reload."""
    text = conf(rules="xdp guard syn-rate 1/s burst 4\n    xdp guard max-conn 100")
    d = daemon(net.edge, text)
    assert [get(h) for h in (net.mallory, net.alice, net.mallory)] == [200] * 3
    wait_for("the limit", lambda: get(net.alice, timeout=0.4) == 0)
    assert drops(net.edge, "SERVICE_SYNS") > 0
    assert "web syn-rate 1/s burst 4\n" in d.cli("show guard")
    run_cli(net.edge, "-s", str(d.sock), "set", "guard", "web", "syn-rate", "off")
    assert [get(net.alice) for _ in range(10)] == [200] * 10
    d.cli("set guard web max-conn 2")
    assert "web max-conn 2 now 0" in d.cli("show guard")
    held = [connect(net.mallory, VIP, 80), connect(net.alice, VIP, 80)]
    wait_for("both to be counted", lambda: count(net.edge, "10.20.0.2") + count(net.edge, "10.20.0.3") == 2)
    assert refused(net.alice) and drops(net.edge, "MAXCONN") > 0
    assert get(net.alice, VIP6) == 200  # another address, another service
    d.cli("set guard source max-conn 1")
    d.cli("set guard web max-conn off")
    assert refused(net.alice) and drops(net.edge, "SOURCE_CONNS") > 0
    held.pop().close()
    wait_for("room for alice", lambda: get(net.alice) == 200)
    # Changes of servers go on without touching what was set by hand; a reload has the file's limits again.
    d.cli("disable server web/s1")
    d.cli("enable server web/s1")
    assert "source max-conn 1\n" in d.cli("show guard") and "web max-conn" not in d.cli("show guard")
    d.cli("reload", timeout=20)
    shown = wait_for("the file's limits", lambda: (s := d.cli("show guard")) and "web max-conn 100 now" in s and s)
    assert "web syn-rate 1/s burst 4\n" in shown and "source" not in shown
    for s in held:
        s.close()
    for bad, answer in (("source", "expects"), ("source x 1", "expects"), ("source syn-rate 5", "A rate such"),
                        ("nobody syn-rate 5/s", "no section 'nobody'"), ("web max-conn x", "A number"),
                        ("web packet-rate 1/s", "expects"), ("web syn-rate 50/s burst 0", "A rate such")):
        assert answer in d.cli(f"set guard {bad}"), bad
