# SPDX-License-Identifier: BSD-2-Clause
"""`headgate tune`: on a host made of files, and on real queues and sysctls of a namespace."""

import json

import pytest
from conftest import run_cli

SYSCTLS = {"net/core/somaxconn": "4096", "net/ipv4/tcp_max_syn_backlog": "100000", "net/ipv4/tcp_syncookies": "0",
           "net/ipv4/tcp_tw_reuse": "2", "net/ipv4/tcp_slow_start_after_idle": "0", "net/core/bpf_jit_enable": "2"}
INTERRUPTS = """           CPU0       CPU1       CPU2       CPU3
  0:         43          0          0          0  IR-IO-APIC    2-edge      timer
 40:          0          0          0          0  IR-PCI-MSI 524288-edge      eth0-config
 41:       1000          0          0          0  IR-PCI-MSI 524289-edge      eth0-TxRx-0
 42:       1000          0          0          0  IR-PCI-MSI 524290-edge      eth0-TxRx-1
 43:       1000          0          0          0  IR-PCI-MSI 524291-edge      eth0-TxRx-2
 44:       1000          0          0          0  IR-PCI-MSI 524292-edge      eth0-TxRx-10
 50:       1000          0          0          0  IR-PCI-MSI 524292-edge      eth01-TxRx-0
 51:       1000          0          0          0  IR-PCI-MSI 524292-edge      nvme0q1
NMI:          0          0          0          0   Non-maskable interrupts
"""


def put(root, path, text):
    p = root / path
    p.parent.mkdir(parents=True, exist_ok=True)
    p.write_text(text + "\n", encoding="ascii")


@pytest.fixture
def fake(tmp_path):
    """Four CPUs on two nodes, and an interface with four queues whose interrupts all go to CPU 0."""
    root = tmp_path / "root"
    put(root, "sys/devices/system/cpu/online", "0-3")
    put(root, "sys/devices/system/node/node0/cpulist", "0-1")
    put(root, "sys/devices/system/node/node1/cpulist", "2-3")
    put(root, "sys/class/net/eth0/device/numa_node", "1")
    (root / "sys/bus/pci/drivers/ixgbe").mkdir(parents=True)
    (root / "sys/class/net/eth0/device/driver").symlink_to("../../../../bus/pci/drivers/ixgbe")
    for q in range(4):
        put(root, f"sys/class/net/eth0/queues/rx-{q}/rps_cpus", "0000,0000000f" if q == 1 else "0000,00000000")
        put(root, f"sys/class/net/eth0/queues/tx-{q}/xps_cpus", "1")
    put(root, "proc/interrupts", INTERRUPTS)
    for irq in (40, 41, 42, 43, 44, 50, 51):
        put(root, f"proc/irq/{irq}/smp_affinity_list", "0")
    for irq in range(40, 45):
        put(root, f"sys/class/net/eth0/device/msi_irqs/{irq}", "msix")
    for path, value in SYSCTLS.items():
        put(root, f"proc/sys/{path}", value)
    return root


def files(root):
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}


def tune(host, *args, check=True):
    return run_cli(host, "tune", *map(str, args), check=check)


def test_layout_and_recommendations(lab, fake):
    edge = lab.host("edge")
    out = json.loads(tune(edge, "--root", fake, "--json").stdout)
    assert [(c["cpu"], c["node"], c["worker"]) for c in out["cpus"]] == [(0, 0, None), (1, 0, None), (2, 1, None), (3, 1, None)]
    (eth0,) = out["interfaces"]
    assert (eth0["name"], eth0["driver"], eth0["node"], eth0["rx_queues"], eth0["tx_queues"]) == ("eth0", "ixgbe", 1, 4, 4)
    assert [(i["irq"], i["queue"], i["cpus"]) for i in eth0["interrupts"]] == [(41, 0, [0]), (42, 1, [0]), (43, 2, [0]), (44, 10, [0])]
    want = {s["path"]: (s["now"], s["recommended"], s["ok"]) for s in out["settings"]}
    # Its own node's CPUs in turn, by number of the queue.
    assert [want[f"/proc/irq/{n}/smp_affinity_list"] for n in (41, 42, 43, 44)] == [
        ("0", "2", False), ("0", "3", False), ("0", "2", False), ("0", "2", False)]
    assert want["/sys/class/net/eth0/queues/rx-0/rps_cpus"] == ("0", "0", True)
    assert want["/sys/class/net/eth0/queues/rx-1/rps_cpus"] == ("0000,0000000f", "0", False)
    assert want["/sys/class/net/eth0/queues/tx-3/xps_cpus"] == ("1", "0", False)
    assert want["/proc/sys/net/core/somaxconn"] == ("4096", "65535", False)
    assert want["/proc/sys/net/ipv4/tcp_max_syn_backlog"] == ("100000", "100000", True)
    assert want["/proc/sys/net/ipv4/tcp_slow_start_after_idle"] == ("0", "0", True)
    assert want["/proc/sys/net/core/bpf_jit_enable"] == ("2", "2", True)
    assert not any("/40/" in p or "/50/" in p or "/51/" in p for p in want)
    text = tune(edge, "--root", fake).stdout
    assert "eth0          q..    .    .    ." in text, text
    assert "NUMA node       0    0    1    1" in text, text
    assert out["sk_steer"] is None and "New connections" not in text
    assert "No daemon answers" in text and "irqbalance" not in text
    put(fake, "proc/77/comm", "irqbalance")
    assert "irqbalance is running" in tune(edge, "--root", fake).stdout


def test_apply_and_undo_on_files(lab, fake, tmp_path):
    edge, state = lab.host("edge"), tmp_path / "state"
    before = files(fake)
    out = tune(edge, "eth0", "--root", fake, "--state", state, "--nic-cpus", "1,3", "--apply").stdout
    assert "/proc/irq/42/smp_affinity_list: 0 -> 3" in out and "/proc/sys/net/core/somaxconn: 4096 -> 65535" in out
    after = files(fake)
    assert {p: v for p, v in after.items() if before[p] != v} == {
        "proc/irq/41/smp_affinity_list": "1", "proc/irq/42/smp_affinity_list": "3", "proc/irq/43/smp_affinity_list": "1",
        "proc/irq/44/smp_affinity_list": "1", "sys/class/net/eth0/queues/rx-1/rps_cpus": "0",
        **{f"sys/class/net/eth0/queues/tx-{q}/xps_cpus": "0" for q in range(4)},
        "proc/sys/net/core/somaxconn": "65535", "proc/sys/net/ipv4/tcp_syncookies": "1", "proc/sys/net/ipv4/tcp_tw_reuse": "1"}
    assert "eth0            .  q..    .   q1" in tune(edge, "eth0", "--root", fake, "--nic-cpus", "1,3").stdout
    again = tune(edge, "eth0", "--root", fake, "--state", state, "--nic-cpus", "1,3", "--apply").stdout
    assert again == "all is as recommended\n"
    # Another wish in between: undo goes back to what was before the first.
    tune(edge, "eth0", "--root", fake, "--state", state, "--nic-cpus", "0", "--apply")
    out = tune(edge, "--undo", "--root", fake, "--state", state).stdout
    assert "/proc/irq/42/smp_affinity_list: 0 -> 0" in out
    assert {p: v.strip() for p, v in files(fake).items()} == {p: v.strip() for p, v in before.items()}
    assert not state.exists()
    assert "nothing to undo" in tune(edge, "--undo", "--state", state, check=False).stderr


def test_queues_and_sysctls_of_a_namespace(lab, tmp_path):
    edge, state = lab.host("edge"), tmp_path / "state"
    edge.run("ip link add eth0 numrxqueues 4 numtxqueues 4 type veth peer name p0 numrxqueues 4 numtxqueues 4")
    edge.run("ip link set eth0 up; ip link set p0 up; ethtool -L eth0 rx 4 tx 4 2>/dev/null || true")
    edge.run("echo 1 > /sys/class/net/eth0/queues/rx-0/rps_cpus")
    edge.sysctl("net.core.somaxconn", 1000)

    def now():
        return (edge.run("cat /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/tcp_tw_reuse "
                         "/sys/class/net/eth0/queues/rx-0/rps_cpus").stdout, queues())

    def queues():
        (i,) = json.loads(tune(edge, "eth0", "--json").stdout)["interfaces"]
        return i["rx_queues"], i["tx_queues"], i["max_queues"]

    before = now()
    assert before[1][2] == 4
    out = tune(edge, "eth0", "--state", state, "--nic-cpus", "0", "--apply").stdout
    assert "/proc/sys/net/core/somaxconn: 1000 -> 65535" in out and "rps_cpus: 1 -> 0" in out, out
    after = now()
    assert after[0].split()[:2] == ["65535", "1"] and int(after[0].split()[2].replace(",", ""), 16) == 0
    assert after[1] == (1, 1, 4)
    tune(edge, "--undo", "--state", state)
    assert now() == before


def test_workers_of_a_daemon_have_their_cores(lab, daemon):
    """Queues go to the cores that no worker is pinned to, if there are some."""
    edge = lab.host("edge")
    edge.run("ip link add eth0 type veth peer name p0")
    d = daemon(edge, "global\n    nbthread 1\n    cpu-map 1 0\n\nlisten web\n    mode tcp\n    bind 127.0.0.1:80\n"
               "    server s1 127.0.0.1:9001\n    timeout client 5s\n    timeout server 5s\n    timeout connect 5s\n")
    out = json.loads(run_cli(edge, "-s", str(d.sock), "tune", "eth0", "--json").stdout)
    assert out["daemon"] and out["workers"] == 1 and out["sk_steer"] == "off"
    assert [c["worker"] for c in out["cpus"]] == [0 if c["cpu"] == 0 else None for c in out["cpus"]]
    text = run_cli(edge, "-s", str(d.sock), "tune", "eth0").stdout
    assert "workers        w0    ." in text and "No daemon" not in text, text
    assert "by a hash" in text, text
    d.write(d.cfg.read_text().replace("    nbthread 1\n", "    nbthread 1\n    sk-steer cpu\n"))
    d.cli("reload")
    assert "on the CPU that took their SYN (sk-steer cpu)" in run_cli(edge, "-s", str(d.sock), "tune", "eth0").stdout


def test_mistakes(lab, fake, tmp_path):
    edge, state = lab.host("edge"), tmp_path / "state"
    for args, text in ((["nowhere"], "no interface 'nowhere'"), (["--nic-cpus", "3-1"], "no list of CPUs"),
                       (["--nic-cpus", ""], "no list of CPUs"), (["--nic-cpus", "9"], "CPU 9 is not online"),
                       (["--aply"], "usage:"), (["--apply", "--undo"], "usage:"), (["--state"], "usage:")):
        out = tune(edge, "--root", fake, *args, check=False)
        assert out.returncode == 1 and text in out.stderr, (args, out.stderr)
    # A state file of others is neither written nor obeyed; without it nothing is changed.
    state.write_text("rm -rf\n", encoding="ascii")
    before = files(fake)
    out = tune(edge, "--root", fake, "--state", state, "--apply", check=False)
    assert out.returncode == 1 and "not a state file" in out.stderr and files(fake) == before
    out = tune(edge, "--root", fake, "--state", state, "--undo", check=False)
    assert out.returncode == 1 and files(fake) == before and state.read_text() == "rm -rf\n"
    # What cannot be changed is told; the rest is.
    gone = fake / "proc/irq/41/smp_affinity_list"
    gone.unlink()
    gone.mkdir()
    state.unlink()
    out = tune(edge, "--root", fake, "--state", state, "--apply", check=False)
    assert out.returncode == 1 and "/proc/irq/41/smp_affinity_list" in out.stderr
    assert (fake / "proc/sys/net/core/somaxconn").read_text() == "65535"
