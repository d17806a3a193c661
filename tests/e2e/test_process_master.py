# SPDX-License-Identifier: BSD-2-Clause
"""Processes: master and worker, restart without a refused connection, replacement of an old process."""

import os
import pathlib
import re
import signal
import socket
import sys
import threading
import time

from conftest import HEADGATED, ScriptedServer, connect, keepalive_server, read_response, wait_for
from load import Clients

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
defaults
    mode http
    timeout connect 2s
    timeout client 10s
    timeout server 10s
listen px
    bind 127.0.0.1:8000
    server s1 127.0.0.1:8080
"""


def get(host, port=8000, timeout=5):
    with connect(host, "127.0.0.1", port, timeout) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return read_response(s)[0]


def worker_of(d):
    return int(re.search(r"^Pid: (\d+)$", d.cli("show info"), re.M).group(1))


def master_of(d):
    """The daemon is a child of nsenter, or nsenter itself after exec."""
    return d.proc.pid


COUNTS_SIGNALS = "import signal; signal.signal(signal.SIGUSR1, lambda *_: print('told', flush=True)); print('up', flush=True)\n" \
    "while True: signal.pause()"


def test_who_is_replaced_is_told_once(one, daemon, tmp_path):
    """Its number may be another process's when a worker process dies days later."""
    said = tmp_path / "said"
    old = one.popen([sys.executable, "-c", COUNTS_SIGNALS], log=said)
    wait_for("the other process", lambda: said.read_text() == "up\n")
    d = daemon(one, CFG, args=["-W", "-sf", str(old.pid)])
    wait_for("the signal", lambda: "told" in said.read_text())
    first = worker_of(d)
    os.kill(first, signal.SIGKILL)

    def is_replaced():
        try:
            return worker_of(d) != first
        except (OSError, AttributeError):
            return False

    wait_for("another worker process", is_replaced)
    d.stop()
    assert said.read_text() == "up\ntold\n"
    old.kill()
    old.wait()


def test_a_killed_worker_is_replaced_and_no_connection_is_refused(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    d = daemon(one, CFG, args=["-W"])
    assert get(one) == 200
    first = worker_of(d)
    assert first != master_of(d)
    failures, counts, stop = [], [0], threading.Event()

    def load():
        while not stop.is_set():
            try:
                assert get(one, timeout=10) == 200
                counts[0] += 1
            except ConnectionRefusedError as e:
                failures.append(repr(e))
            except (OSError, EOFError):
                pass  # in flight when the worker died: lost, and allowed to be

    t = threading.Thread(target=load)
    t.start()
    wait_for("traffic", lambda: counts[0] > 10)
    time.sleep(1.2)
    os.kill(first, signal.SIGKILL)
    wait_for("another worker", lambda: d.cli("show info", check=False) and worker_of(d) != first, timeout=15)
    before = counts[0]
    wait_for("traffic again", lambda: counts[0] > before + 10)
    stop.set()
    t.join()
    backend.close()
    assert not failures, failures
    assert "died of signal 9" in d.output()


def test_signals_go_through_the_master(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    d = daemon(one, CFG, args=["-W"])
    worker = worker_of(d)
    d.signal(signal.SIGUSR2)
    wait_for("the reload", lambda: "configuration reloaded, generation 2" in d.output())
    assert worker_of(d) == worker
    d.signal(signal.SIGTERM)
    assert d.proc.wait(10) == 0
    wait_for("no worker left", lambda: not os.path.exists(f"/proc/{worker}"))
    backend.close()
    d.proc = None


def test_a_worker_that_cannot_start_ends_the_master(one, daemon):
    d = daemon(one, CFG.replace("{sock}", "/nonexistent/dir/sock"), start=False, args=["-W"])
    d.start(wait=False)
    assert d.proc.wait(10) == 1
    assert "cannot bind /nonexistent/dir/sock" in d.output()
    d.proc = None


def test_replacing_an_old_process(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    old = daemon(one, CFG)
    assert get(one) == 200
    second = one.run([HEADGATED, "-f", old.cfg], check=False)
    assert second.returncode == 1 and "address already in use" in second.stderr
    new = daemon(one, CFG, args=["-sf", str(old.proc.pid)])
    assert old.proc.wait(10) == 0
    assert get(one) == 200
    assert worker_of(new) == new.proc.pid
    backend.close()
    old.proc = None


def ask(path, command):
    """One line for a master's socket; the whole answer."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    with s:
        s.connect(str(path))
        s.sendall(command.encode() + b"\n")
        out = b""
        while chunk := s.recv(65536):
            out += chunk
        return out.decode()


def test_the_masters_own_socket(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    master = one.lab.dir / "master.sock"
    d = daemon(one, CFG, args=["-W", "-S", f"{master},mode,600,level,admin"])
    assert master.stat().st_mode & 0o777 == 0o600
    worker = worker_of(d)
    wait_for("the worker's word", lambda: f"\n{worker} " in ask(master, "show proc"))
    rows = [line.split() for line in ask(master, "show proc").strip().splitlines()]
    assert rows[0] == ["#<PID>", "<type>", "<reloads>", "<uptime>", "<version>"]
    assert rows[1][:2] == [str(master_of(d)), "master"] and rows[1][2:5] == ["0", "[failed:", "0]"]
    assert rows[2] == ["#", "workers"] and rows[3][:3] == [str(worker), "worker", "0"]
    # One command for the worker, by number and by pid; several after a switch; back again.
    for prefix in ("@1", f"@!{worker}"):
        assert f"\nPid: {worker}\n" in ask(master, f"{prefix} show info")
    out = ask(master, "@1; show backend; get weight px/s1; @master; show version")
    assert re.search(r"# name\npx\n\n1 \(initial 1\)\n", out), out
    assert "@1" not in ask(master, "@1 echo hello") and "hello" in ask(master, "@1 echo hello")
    for wrong in ("@2 show info", "@!1 show info", "@x show info"):
        prefix = wrong.split()[0]
        assert f"Can't find the target PID matching the prefix '{prefix}'" in ask(master, wrong)
    assert "Unknown command" in ask(master, "show info")
    assert "show proc" in ask(master, "help") and "show stat" in ask(master, "@1 help")
    # Levels count on the other side, too.
    assert "Permission denied" in ask(master, "operator; @1 set weight px/s1 5")
    # Long answers and payloads arrive whole.
    big = "x" * 300_000
    assert ask(master, f"@1 echo {big}").strip() == big
    assert "Unknown map identifier" in ask(master, "@1 add map #99 <<\na b\n")
    out = ask(master, "reload")
    assert out.startswith("Success=1\n--\n"), out
    d.write(CFG.replace("bind 127.0.0.1:8000", "bind 127.0.0.1:8000\n    nonsense"))
    out = ask(master, "reload")
    assert out.startswith("Success=0\n--\n") and "unknown keyword 'nonsense'" in out, out
    wait_for("the counts", lambda: "2 [failed: 1]" in ask(master, "show proc"))
    assert get(one) == 200
    assert ask(master, "show startup-logs") == ask(master, "@1 show startup-logs")
    backend.close()
    d.stop()
    assert not master.exists()


def test_addresses_of_a_reload_outlive_the_worker(one, daemon):
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    master = one.lab.dir / "master.sock"
    text = CFG.replace("bind 127.0.0.1:8000", "bind 127.0.0.1:8001\n    bind 127.0.0.1:8002\n    bind unix@{dir}/px.sock")
    d = daemon(one, CFG, args=["-W", "-S", str(master)])
    time.sleep(1.1)  # a worker that lives longer is replaced at once
    d.write(text)
    assert ask(master, "reload").startswith("Success=1")
    wait_for("the address that went", lambda: refused(one, 8000))
    assert get(one, 8001) == get(one, 8002) == 200
    # While the worker is stopped, and then dead, connections to both addresses wait.
    worker = worker_of(d)
    os.kill(worker, signal.SIGSTOP)
    wait_for("every thread to stand still", lambda: all(
        t.read_text().rsplit(")", 1)[1].split()[0] == "T" for t in pathlib.Path(f"/proc/{worker}/task").glob("*/stat")))
    waiting = [connect(one, "127.0.0.1", port, 20) for port in (8001, 8002)]
    for s in waiting:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    os.kill(worker, signal.SIGKILL)
    for s in waiting:
        with s:
            assert read_response(s)[0] == 200
    assert worker_of(d) != worker
    assert get(one, 8001) == get(one, 8002) == 200 and refused(one, 8000)
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(one.lab.dir / "px.sock"))
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_response(s)[0] == 200
    # A later reload takes one away again, for good.
    d.write(text.replace("bind 127.0.0.1:8002\n", "\n"))
    assert ask(master, "reload").startswith("Success=1")
    wait_for("the other address that went", lambda: refused(one, 8002))
    backend.close()
    d.stop()
    assert not (one.lab.dir / "px.sock").exists()


def refused(host, port):
    try:
        connect(host, "127.0.0.1", port).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_faulty_option_of_the_master_socket(one):
    for value, said in (("/tmp/x,level,king", "'king' is no value of 'level'"), ("/tmp/x,colour,1", "unknown option"),
                        ("/tmp/x,mode,999", "'999' is no value of 'mode'")):
        cfg = one.lab.dir / "x.cfg"
        cfg.write_text("defaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n"
                       "listen l\n bind 127.0.0.1:8000\n", encoding="utf-8")
        out = one.run([HEADGATED, "-W", "-S", value, "-f", cfg], check=False)
        assert out.returncode == 1 and said in out.stderr, out.stderr


def replace(path, content, mode=0o755):
    """As a package manager does: another file takes the name."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(mode)
    new.rename(path)


def test_sigusr2_becomes_the_new_executable(one, daemon):
    """Another executable on the disk: the process stays, its program is the new one, and no request fails."""
    backend = ScriptedServer(one, "127.0.0.1", 8080, keepalive_server())
    exe = one.lab.dir / "headgated"
    ours = HEADGATED.read_bytes()
    replace(exe, ours)
    master = one.lab.dir / "master.sock"
    text = CFG.replace("nbthread 1", "nbthread 1\n    hard-stop-after 20s") + "    option idle-close-on-response\n"
    d = daemon(one, text, args=["-W", "-S", str(master)], start=False, exe=exe)
    d.start()
    pid, first = d.proc.pid, worker_of(d)

    def refused_by(content, said):
        replace(exe, content)
        n = d.output().count("nothing has changed")
        d.signal(signal.SIGUSR2)
        wait_for("the refusal", lambda: d.output().count("nothing has changed") > n)
        assert re.search(said, d.output()[d.output().rindex("was replaced"):]), d.output()
        assert worker_of(d) == first and get(one) == 200

    refused_by(b"\x7fELF no program", "cannot execute .*: Exec format error")
    refused_by(b"#!/bin/sh\nexit 0\n", "cannot take over from a running master")
    refused_by(b"#!/bin/sh\nkill -ABRT $$\n", "died of signal 6")
    # A good one that does not like the file.
    good = d.cfg.read_text(encoding="utf-8")
    d.cfg.write_text(good + "    nonsense\n", encoding="utf-8")
    refused_by(ours, "unknown keyword 'nonsense'")
    # And one whose master or worker process cannot start, which its check does not see.
    for n, text in enumerate((good + "    bind 127.0.0.1:8080\n", good.replace(str(d.sock), "/nonexistent/dir/sock"))):
        d.cfg.write_text(text, encoding="utf-8")
        replace(exe, ours)
        d.signal(signal.SIGUSR2)
        wait_for("the old worker to go on", lambda: d.output().count(f"the old worker process {first} goes on") > n)  # noqa: B023
        assert get(one) == 200 and worker_of(d) == first
        assert f"\n{first} " in ask(master, "show proc")
    d.cfg.write_text(good, encoding="utf-8")

    with Clients(one, [("new", 8000, False, 1, 1, 0), ("kept", 8000, False, 0, 1, 0.001), ("pauses", 8000, False, 0, 1, 0.07)]) as clients:
        workers = [first]
        for n in range(2):
            clients.until(20)
            replace(exe, ours)
            d.signal(signal.SIGUSR2)
            wait_for("the new worker", lambda: (w := worker_of(d) if d.cli("show info", check=False) else 0) and w not in workers, timeout=20)
            workers.append(worker_of(d))
            wait_for("the old worker's end", lambda: not os.path.exists(f"/proc/{workers[n]}"), timeout=30)
            clients.until(20)
    assert not clients.failures, clients.failures
    assert d.proc.poll() is None and os.readlink(f"/proc/{pid}/exe") == str(exe)
    wait_for("the master's socket", lambda: f"\n{workers[-1]} " in ask(master, "show proc"))
    # Nothing new: a reload in place, as before.
    d.signal(signal.SIGUSR2)
    wait_for("the reload", lambda: d.output().rstrip().endswith("configuration reloaded, generation 2"))
    assert worker_of(d) == workers[-1]
    # A worker that dies is replaced, with the same addresses.
    time.sleep(1.1)
    os.kill(workers[-1], signal.SIGKILL)
    assert get(one, timeout=15) == 200
    backend.close()
    assert d.stop() == 0


def test_system_calls_are_given_up(one, daemon):
    """Every thread of the process that serves has the filter, and no way to more rights; the master and `seccomp off` have none."""
    def filters(pid, field="Seccomp"):
        return {re.search(rf"^{field}:\s*(\d)$", t.read_text(), re.M)[1] for t in pathlib.Path(f"/proc/{pid}/task").glob("*/status")}

    d = daemon(one, CFG, args=["-W"])
    before = filters(master_of(d))
    assert filters(worker_of(d)) == {"2"} and filters(worker_of(d), "NoNewPrivs") == {"1"}
    d.write(CFG.replace("nbthread 1", "nbthread 1\n    seccomp off"))
    assert "note: 'seccomp' has an effect at a start only" in d.cli("reload")
    assert filters(worker_of(d)) == {"2"} and filters(master_of(d)) == before
    d.stop()
    d.start()
    assert filters(worker_of(d)) == before
