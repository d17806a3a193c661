# SPDX-License-Identifier: BSD-2-Clause
"""Looking at packets while they flow: `headgate capture` and `headgate show events`."""

import json
import re
import signal
import struct
import subprocess
import time

import pytest
from conftest import BUILD, run_cli, wait_for
from test_l4_forward import L4, VIP, balanced, get, net  # noqa: F401

HEADGATE = BUILD / "headgate"


def control_capture(edge):
    """The word that switches captures on, as it lies in the map."""
    dump = json.loads(edge.run("bpftool -j map dump pinned /sys/fs/bpf/headgate/control").stdout)
    return int(str(dump[0].get("formatted", dump[0])["value"]["capture"]), 0)


def start_capture(b, name, *args):
    """The tool in the background, capturing when this returns."""
    proc = b.edge.popen([HEADGATE, "-s", b.daemon.sock, "capture", *args], log=f"{name}.log")
    wait_for("the capture", lambda: proc.poll() is not None or control_capture(b.edge) == 1)
    return proc


def said(b, name):
    return (b.dir / f"{name}.log").read_text()


def blocks(path):
    """The packets of a pcapng file, read without anybody's library."""
    data, at, out, interfaces = path.read_bytes(), 0, [], []
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        assert size >= 12 and size % 4 == 0 and struct.unpack_from("<I", data, at + size - 4)[0] == size
        body = data[at + 8:at + size - 4]
        if at == 0:
            assert kind == 0x0A0D0D0A and struct.unpack_from("<I", body)[0] == 0x1A2B3C4D
        elif kind == 1:
            assert struct.unpack_from("<H", body)[0] == 1
            interfaces.append(options(body[8:])[2].decode())
        elif kind == 6:
            index, hi, lo, cap, length = struct.unpack_from("<IIIII", body)
            opts = options(body[20 + (cap + 3) // 4 * 4:])
            out.append({"frame": body[20:20 + cap], "len": length, "if": interfaces[index],
                        "time": (hi << 32 | lo) / 1e9, "comment": opts.get(1, b"").decode(),
                        "out": struct.unpack("<I", opts[2])[0] & 3 == 2, "id": struct.unpack("<Q", opts[5])[0]})
        at += size
    return out


def options(data):
    out, at = {}, 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from("<HH", data, at)
        if code == 0:
            break
        out[code] = data[at + 4:at + 4 + size]
        at += 4 + (size + 3) // 4 * 4
    return out


def test_whole_connections_before_and_after(balanced):  # noqa: F811
    b, path = balanced, balanced.dir / "all.pcapng"
    proc = start_capture(b, "all", "--service", "web", "-w", path)
    began = time.time()
    get(b.client, f"http://{VIP}/", 5)
    assert b.edge.stop(proc, signal.SIGINT) == 0
    assert "packets captured, 0 lost" in said(b, "all")
    assert control_capture(b.edge) == 0
    packets = blocks(path)
    came, left = [p for p in packets if not p["out"]], [p for p in packets if p["out"]]
    assert len(came) == len(left) >= 5 * 4
    assert {p["id"] for p in came} == {p["id"] for p in left}
    assert {p["if"] for p in packets} == {"eth0"}
    assert all(abs(p["time"] - began) < 60 for p in packets)
    by_id = {p["id"]: p for p in came}
    for p in left:
        inner = by_id[p["id"]]["frame"]
        assert p["len"] == len(p["frame"]) == len(inner) + 20
        assert p["frame"][23] == 4 and p["frame"][30:33] == bytes([10, 10, 0]) and p["frame"][33] in (11, 12, 13)
        # Behind the outer header: the packet that came, but for its time to live and the sum over that.
        assert p["frame"][46:54] == inner[26:34] and p["frame"][54:] == inner[34:]
        assert re.fullmatch(r"to backend \d+ web[123]", p["comment"])
    text = subprocess.run(["tcpdump", "-n", "-r", path], capture_output=True, text=True, check=True).stdout
    assert f"> {VIP}.80: Flags [S]" in text and "IP 10.10.0." in text
    assert "GET / HTTP/1.1" in subprocess.run(["tcpdump", "-n", "-A", "-r", path], capture_output=True, text=True, check=True).stdout


def test_classic_pcap_count_snaplen_and_stdout(balanced):  # noqa: F811
    b, path = balanced, balanced.dir / "some.pcap"
    proc = start_capture(b, "some", "-w", path, "-c", "7", "-s", "60", "--point", "in")
    get(b.client, f"http://{VIP}/", 5)
    assert proc.wait(10) == 0
    assert "7 packets captured" in said(b, "some")
    assert path.read_bytes()[:4] == bytes.fromhex("4d3cb2a1")
    out = subprocess.run(["tcpdump", "-n", "-e", "-r", path], capture_output=True, text=True, check=True)
    assert len(out.stdout.splitlines()) == 7 and "snapshot length 60" in out.stderr
    pipe = b.edge.popen(f"{HEADGATE} -s {b.daemon.sock} capture -w - -c 3 --backend web1 --point out | tcpdump -n -r -",
                        log="pipe.log")
    wait_for("the capture", lambda: control_capture(b.edge) == 1)
    get(b.client, f"http://{VIP}/", 30)
    assert pipe.wait(20) == 0
    lines = [x for x in said(b, "pipe").splitlines() if " IP " in x]
    assert len(lines) == 3 and all("> 10.10.0.11: IP" in x for x in lines)


def test_sampling_takes_a_part(balanced):  # noqa: F811
    b, path = balanced, balanced.dir / "part.pcapng"
    proc = start_capture(b, "part", "--rate", "1/10", "--point", "in", "-w", path)
    before = json.loads(run_cli(b.edge, "-s", b.daemon.sock, "show", "l4", "--json").stdout)
    get(b.client, f"http://{VIP}/", 150)
    after = json.loads(run_cli(b.edge, "-s", b.daemon.sock, "show", "l4", "--json").stdout)
    assert b.edge.stop(proc, signal.SIGTERM) == 0
    n = sum(s["packets"] for s in after["services"]) - sum(s["packets"] for s in before["services"])
    got = len(blocks(path))
    assert n > 500 and n / 20 < got < n / 5, (n, got)


def drop_some(b):
    """Packets whose time to live ends here."""
    b.client.sysctl("net.ipv4.ip_default_ttl", 1)
    b.client.run(f"curl -s --max-time 1 http://{VIP}/", check=False)
    b.client.sysctl("net.ipv4.ip_default_ttl", 64)


def test_drops_have_their_reason(balanced):  # noqa: F811
    b, path = balanced, balanced.dir / "drops.pcapng"
    proc = start_capture(b, "drops", "--drops", "TTL", "-w", path)
    get(b.client, f"http://{VIP}/", 5)
    drop_some(b)
    assert b.edge.stop(proc, signal.SIGINT) == 0
    packets = blocks(path)
    assert packets and all(p["comment"] == "dropped: TTL (time to live would reach zero)" for p in packets)
    assert all(p["frame"][22] == 1 and not p["out"] for p in packets)
    assert re.search(r"^  TTL +[1-9]", said(b, "drops"), re.M)


def test_show_events_with_and_without_a_daemon(balanced):  # noqa: F811
    b = balanced

    def events(*more):
        return json.loads(run_cli(b.edge, "-s", b.daemon.sock, "show", "events", "--json", *more).stdout)

    assert events() == []
    follow = b.edge.popen([HEADGATE, "-s", b.daemon.sock, "show", "events", "--follow", "--json"], log="follow.log")
    drop_some(b)
    seen = events()
    assert seen
    for e in seen:
        assert e["drop"] == "TTL" and e["service"] == f"tcp@{VIP}:80" and e["name"] == "web"
        assert e["protocol"] == 6 and e["destination"] == f"{VIP}:80" and e["interface"] == "eth0"
        assert re.fullmatch(r"10\.10\.0\.2:\d+", e["source"])
    wait_for("events as they come", lambda: '"drop":"TTL"' in said(b, "follow"))
    b.edge.stop(follow)
    assert b.daemon.stop() == 0
    again = events()
    assert len(again) == len(seen) and all(e["name"] == "" and e["service"] == f"tcp@{VIP}:80" for e in again)
    assert re.search(rf"TTL +tcp@{re.escape(VIP)}:80 .* 10\.10\.0\.2:\d+ > {re.escape(VIP)}:80 eth0",
                     run_cli(b.edge, "show", "events").stdout)


def test_one_capture_at_a_time_and_a_killed_one_ends(balanced):  # noqa: F811
    b = balanced
    proc = start_capture(b, "first", "-w", b.dir / "first.pcapng")
    second = run_cli(b.edge, "capture", "-w", b.dir / "second.pcapng", "-c", "1", check=False)
    assert second.returncode == 1 and "another capture is running (process " in second.stderr
    assert not (b.dir / "second.pcapng").exists()
    assert control_capture(b.edge) == 1 and proc.poll() is None
    b.edge.stop(proc, signal.SIGKILL)

    def is_off():
        get(b.client, f"http://{VIP}/", 1)
        return control_capture(b.edge) == 0

    wait_for("the program to notice", is_off, timeout=15)
    third = start_capture(b, "third", "-w", b.dir / "third.pcapng", "--duration", "500ms")
    assert third.wait(10) == 0 and "packets captured" in said(b, "third")


def test_privileges_missing_pins_and_bad_options(balanced, lab):  # noqa: F811
    b = balanced
    for args, text in ((["capture"], "where to? -w FILE"),
                       (["capture", "-w", "x", "--rate", "often"], "--rate wants 1/N, one packet in N, not 'often'"),
                       (["capture", "-w", "x", "--drops", "TTLS"], "no such drop reason: 'TTLS'"),
                       (["capture", "-w", "x", "--duration", "5 days"], "--duration wants a time"),
                       (["capture", "-w", "x", "-s", "0"], "--snaplen wants bytes, 1 to 9216"),
                       (["capture", "-w", "x", "--service", "wep"], "no service of the kernel tier is called 'wep'"),
                       (["capture", "-w", "x", "--backend", "web9"], "no server of the kernel tier is called 'web9'"),
                       (["capture", "-w", "/nowhere/x"], "cannot write /nowhere/x: No such file or directory"),
                       (["show", "events", "--now"], "usage: headgate show events"),
                       (["show", "events", "now"], "No such event sink")):  # a name is a ring of the log
        out = run_cli(b.edge, "-s", b.daemon.sock, *args, check=False)
        assert out.returncode == 1 and text in out.stderr, (args, out.stderr)
        assert control_capture(b.edge) == 0
    stranger = lab.host("stranger")
    for args in (["capture", "-w", "x"], ["show", "events"]):
        out = run_cli(stranger, *args, check=False)
        assert out.returncode == 1 and "nothing of Headgate is loaded (no pins in /sys/fs/bpf/headgate)" in out.stderr
    out = b.edge.run(["setpriv", "--reuid", "65534", "--clear-groups", HEADGATE, "capture", "-w", "/tmp/x"], check=False)
    assert out.returncode == 1 and "not allowed to look at the pins" in out.stderr and "run it as root" in out.stderr


@pytest.mark.parametrize("method", ["gue", "l2"])
def test_other_methods_are_captured(net, daemon, method):  # noqa: F811
    d = daemon(net.edge, L4.replace("forward ipip", f"forward {method}"))
    net.daemon = d
    wait_for("next hops", lambda: run_cli(net.edge, "-s", d.sock, "show", "l4").stdout.count(" resolved ") == 3)
    path = net.dir / "m.pcapng"
    proc = start_capture(net, "m", "-w", path)
    get(net.client, f"http://{VIP}/", 3)
    assert net.edge.stop(proc, signal.SIGINT) == 0
    packets = blocks(path)
    came = {p["id"]: p for p in packets if not p["out"]}
    left = [p for p in packets if p["out"]]
    assert len(left) == len(came) >= 12
    for p in left:
        grown = p["len"] - came[p["id"]]["len"]
        assert grown == (32 if method == "gue" else 0)
        if method == "gue":
            assert p["frame"][23] == 17 and struct.unpack_from(">H", p["frame"], 36)[0] == 6080
