# SPDX-License-Identifier: BSD-2-Clause
"""As a service: what the service manager is told, the unit file, shell completion."""

import shutil
import signal
import socket
import subprocess

import pytest
from conftest import HEADGATE, ROOT, SLOW, wait_for

CFG = """
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
listen web
    bind 127.0.0.1:8080
    http-request return status 200
"""


class Manager:
    """The service manager's end of sd_notify(3)."""

    def __init__(self, directory):
        self.path = directory / "notify"
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(self.path))
        self.sock.setblocking(False)
        self.said = []

    def heard(self, word):
        try:
            while True:
                self.said.append(self.sock.recv(4096).decode())
        except BlockingIOError:
            pass
        return any(word in text.splitlines() for text in self.said)

    def wait(self, word):
        wait_for(word, lambda: self.heard(word), timeout=10 * SLOW)


@pytest.mark.parametrize("args", [(), ("-Ws",)])
def test_service_manager(one, daemon, args):
    m = Manager(one.lab.dir)
    d = daemon(one, CFG, args=args, env={"NOTIFY_SOCKET": str(m.path), "WATCHDOG_USEC": "3000000"})
    m.wait("READY=1")
    assert m.heard(f"MAINPID={d.proc.pid}")
    m.said.clear()
    m.wait("WATCHDOG=1")
    m.said.clear()
    d.signal(signal.SIGUSR2 if args else signal.SIGHUP)
    m.wait("RELOADING=1")
    m.wait("READY=1")
    assert m.heard("STATUS=Ready, configuration 2.")
    d.signal(signal.SIGUSR1)
    m.wait("STOPPING=1")


def test_nobody_watches(one, daemon):
    """Another process's watchdog is not ours."""
    m = Manager(one.lab.dir)
    daemon(one, CFG, env={"NOTIFY_SOCKET": str(m.path), "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"})
    m.wait("READY=1")
    d2 = one.lab.daemons[0]
    before = d2.cli("show info").split("Uptime_sec: ")[1].split()[0]
    wait_for("two more seconds", lambda: int(d2.cli("show info").split("Uptime_sec: ")[1].split()[0]) >= int(before) + 2)
    assert not m.heard("WATCHDOG=1")


def test_unit_file():
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not there")
    done = subprocess.run([ROOT / "packaging/systemd/check.sh"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout


def test_completion():
    script = subprocess.run([HEADGATE, "completion", "bash"], check=True, stdout=subprocess.PIPE, text=True).stdout

    def complete(*words):
        line = " ".join(f"'{w}'" for w in ("headgate", *words))
        run = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _headgate; echo \"${{COMPREPLY[@]}}\""
        return subprocess.run(["bash", "-c", script + run], check=True, stdout=subprocess.PIPE, text=True).stdout.split()

    assert complete("relo") == ["reload"] and "undrain" in complete("")
    assert set(complete("show", "sta")) == {"startup-logs", "stat"}
    assert set(complete("show", "ssl", "")) >= {"cert", "crt-list"}
    assert complete("set", "server", "a/b", "state", "dr") == ["drain"]
