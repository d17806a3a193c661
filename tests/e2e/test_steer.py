# SPDX-License-Identifier: BSD-2-Clause
"""`xdp steer`: the kernel says of each connection of the daemon on which CPU its packets come in."""

import ctypes
import json
import os
import socket

import pytest
from conftest import ScriptedServer, connect, keepalive_server, raw, wait_addresses, wait_for

EDGE, EDGE6 = "10.40.0.1", "fd00:40::1"
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
SO_INCOMING_CPU = 49
CONF = """
global
    xdp interface eth0 mode native
    {extra}

defaults
    mode http
    timeout client 20s
    timeout server 20s
    timeout connect 2s

listen web
    bind 10.40.0.1:80
    bind [fd00:40::1]:80
    server s1 127.0.0.1:9001
"""


@pytest.fixture
def net(lab):
    client, edge = lab.host("client"), lab.host("edge")
    lab.cable(client, "eth0", edge, "eth0")
    lab.xdp_pass(client, "eth0")
    client.addr("eth0", "10.40.0.2/24", "fd00:40::2/64")
    edge.addr("eth0", f"{EDGE}/24", f"{EDGE6}/64")
    lab.client, lab.edge = client, edge
    lab.origin = ScriptedServer(edge, "127.0.0.1", 9001, keepalive_server())
    wait_addresses(edge, client)
    yield lab
    lab.origin.close()


def incoming_cpus(d):
    """Of the daemon's established connections on port 80: a copy of each socket is asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    pid = int(next(x for x in d.cli("show info").splitlines() if x.startswith("Pid:")).split()[1])
    pidfd = os.pidfd_open(pid)
    cpus = []
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                    continue
            except FileNotFoundError:  # closed meanwhile
                continue
            copy = libc.syscall(438, pidfd, int(fd), 0)  # pidfd_getfd
            if copy < 0:
                continue
            with socket.socket(fileno=copy) as s:
                try:
                    if s.getsockname()[1] == 80 and s.getpeername():
                        cpus.append(s.getsockopt(socket.SOL_SOCKET, SO_INCOMING_CPU))
                except (OSError, IndexError, TypeError):
                    pass
    finally:
        os.close(pidfd)
    return cpus


def cpus_of_connections(net, d, addr, n=12):
    conns = [connect(net.client, addr, 80) for _ in range(n)]
    for s in conns:
        for _ in range(3):
            s.sendall(GET)
            assert s.recv(1000).startswith(b"HTTP/1.1 200")
    cpus = incoming_cpus(d)
    for s in conns:
        s.close()
    assert len(cpus) >= n, cpus
    wait_for("the connections to end", lambda: not incoming_cpus(d))
    return set(cpus)


def conf(extra):
    return CONF.replace("{extra}", extra)


@pytest.mark.parametrize("cookies", ["", "xdp guard syn-cookies on\n    "])
def test_flows_go_to_the_cpus_of_the_list(net, daemon, cookies):
    last = os.cpu_count() - 1
    if last < 1:
        pytest.skip("needs two CPUs")
    d = daemon(net.edge, conf(cookies + "xdp steer cpus 0"))
    for addr in (EDGE, EDGE6):
        assert cpus_of_connections(net, d, addr) == {0}
    # By reload: another one, several, none.
    d.write(conf(cookies + f"xdp steer {last}"))
    d.cli("reload", timeout=20)
    for addr in (EDGE, EDGE6):
        assert cpus_of_connections(net, d, addr) == {last}
    d.write(conf(cookies + "xdp steer auto"))
    d.cli("reload", timeout=20)
    assert len(cpus_of_connections(net, d, EDGE, 40)) > 1
    local = json.loads(d.cli("show services json"))[0]["local"]
    assert local > 0
    d.write(conf(cookies))
    d.cli("reload", timeout=20)
    assert raw(net.client, EDGE, 80, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")
    rows = json.loads(net.edge.run("bpftool -j map dump pinned /sys/fs/bpf/headgate/steer_cpus").stdout)
    assert all("error" in r["value"] for r in rows), rows  # no CPU is left in it


def test_a_cpu_that_is_not_there_is_refused(net, daemon):
    d = daemon(net.edge, conf("xdp steer 0,255"), start=False)
    with pytest.raises(RuntimeError):
        d.start()
    assert "'xdp steer': CPU 255 cannot take packets" in d.output()
