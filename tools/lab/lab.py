# SPDX-License-Identifier: BSD-2-Clause
"""Small networks on one machine: hosts are network and mount namespaces, cables are veth pairs.

Used by the demo and by the end-to-end tests. A host lives as long as its holder process: when the
lab is closed, or its creator dies, everything is gone. Each host has its own /sys (with its own bpffs) and
its own /run/headgate, so that several edge hosts can run side by side.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HG_BUILD", ROOT / "build"))

HOLDER = r"""
mount -t sysfs sysfs /sys && mount -t bpf bpf /sys/fs/bpf &&
mkdir -p /run/headgate && mount -t tmpfs tmpfs /run/headgate &&
ip link set lo up && echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter &&
echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter &&
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad && echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad &&
echo ready && exec sleep infinity
"""


class Host:
    """One machine of the lab."""

    def __init__(self, lab, name):
        self.lab = lab
        self.name = name
        self.holder = subprocess.Popen(
            ["unshare", "-n", "-m", "--propagation", "private", "--kill-child", "bash", "-c", HOLDER],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        if self.holder.stdout.readline().strip() != "ready":
            self.holder.kill()
            raise RuntimeError(f"host {name}: {self.holder.stderr.read().strip() or 'no namespaces (root?)'}")
        self.pid = self.holder.pid
        self.procs = []
        self.at_close = []  # functions: what lives in this process but belongs to the host

    def cmd(self, args):
        """The command line that runs `args` on this host."""
        if isinstance(args, str):
            args = ["bash", "-c", args]
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "--", *map(str, args)]

    def run(self, args, check=True, timeout=30, **kw):
        """Runs to the end; returns the CompletedProcess (text)."""
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        kw.setdefault("text", True)
        done = subprocess.run(self.cmd(args), timeout=timeout, **kw)
        if check and done.returncode != 0:
            raise RuntimeError(f"{self.name}: {args}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def popen(self, args, log=None, **kw):
        """Starts in the background; stopped when the lab closes. Output goes to a file of that name."""
        if log:
            out = open(self.lab.dir / log, "ab", buffering=0)
            kw.setdefault("stdout", out)
            kw.setdefault("stderr", subprocess.STDOUT)
        proc = subprocess.Popen(self.cmd(args), start_new_session=True, **kw)
        self.procs.append(proc)
        return proc

    def sysctl(self, key, value):
        self.run(f"echo {value} > /proc/sys/{key.replace('.', '/')}")

    def addr(self, ifname, *addrs):
        lines = "".join(f"addr add {a} dev {ifname}{' nodad' if ':' in str(a) else ''}\n" for a in addrs)
        self.run(["ip", "-batch", "-"], input=lines)

    def route(self, *args):
        self.run(["ip", *(["-6"] if any(":" in str(a) for a in args) else []), "route", "add", *args])

    def stop(self, proc, sig=signal.SIGTERM, timeout=10):
        """Ends a process of popen(); returns its exit status."""
        if proc.poll() is None:
            proc.send_signal(sig)
            # Popen.wait() with a timeout looks only every now and then.
            fd = os.pidfd_open(proc.pid)
            try:
                if not readable([fd], timeout):
                    proc.kill()
            finally:
                os.close(fd)
            proc.wait()
        return proc.returncode

    def close(self):
        for end in self.at_close:
            end()
        for proc in reversed(self.procs):
            if proc.poll() is None:
                try:
                    os.killpg(proc.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                proc.wait()
        self.holder.kill()
        self.holder.communicate()


class Lab:
    """A network. Use as a context manager."""

    def __init__(self, name="lab"):
        self.dir = Path(tempfile.mkdtemp(prefix=f"headgate-{name}-"))
        self.hosts = {}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self, keep_files=False):
        for h in reversed(list(self.hosts.values())):
            h.close()
        self.hosts.clear()
        if not keep_files:
            shutil.rmtree(self.dir, ignore_errors=True)

    def host(self, name):
        h = Host(self, name)
        self.hosts[name] = h
        return h

    def cable(self, a, if_a, b, if_b, mtu=1500):
        """A veth pair between two hosts, up on both ends."""
        subprocess.run(["ip", "link", "add", "name", if_a, "netns", str(a.pid), "mtu", str(mtu), "type", "veth",
                        "peer", "name", if_b, "netns", str(b.pid), "mtu", str(mtu)], check=True)
        for h, name in ((a, if_a), (b, if_b)):
            # On a wire a frame has its checksums; on veth they are left to whoever looks, and XDP's copy loses that note.
            h.run(f"ethtool -K {name} tx off && ip link set dev {name} up")

    def switch(self, name="switch"):
        """A host that is nothing but a learning bridge."""
        h = self.host(name)
        h.run("ip link add br0 type bridge && ip link set br0 up")
        return h

    def plug(self, switch, host, ifname="eth0", mtu=1500):
        """Connects `host` to the switch; its port there is called like the host."""
        self.cable(switch, host.name, host, ifname, mtu)
        switch.run(["ip", "link", "set", "dev", host.name, "master", "br0"])

    def xdp_pass(self, host, ifname):
        """Frames sent by XDP_TX or redirect reach a veth only when its far end runs a program, too."""
        obj = BUILD / "bpf" / "xdp_pass.bpf.o"
        host.run(["ip", "link", "set", "dev", ifname, "xdpdrv", "obj", obj, "sec", "xdp.frags"])


def readable(files, seconds):
    """Those of `files` (descriptors, sockets) that can be read now or within a time. select() knows none above 1,023."""
    by_fd = {f if isinstance(f, int) else f.fileno(): f for f in files}
    poll = select.poll()
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(max(0, seconds) * 1000)]


def wait_for(what, test, timeout=10.0, interval=0.05):
    """Polls until test() is true, quickly at first; its value. Raises with `what` otherwise."""
    end, pause = time.monotonic() + timeout, min(0.005, interval)
    while True:
        value = test()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(pause)
        pause = min(1.5 * pause, interval)


def make_cert(path, names, days=30, key="ec"):
    """A self-signed certificate and its key in one PEM file."""
    alg = {"ec": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
           "rsa": ["-newkey", "rsa:2048"]}[key]
    san = ",".join(("IP:" if n.replace(".", "").isdigit() or ":" in n else "DNS:") + n for n in names)
    crt, pem = f"{path}.crt", f"{path}.key"
    subprocess.run(["openssl", "req", "-x509", "-nodes", *alg, "-days", str(days), "-subj", f"/CN={names[0]}",
                    "-addext", f"subjectAltName={san}", "-keyout", pem, "-out", crt],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(path, "w", encoding="ascii") as out:
        for part in (crt, pem):
            out.write(Path(part).read_text(encoding="ascii"))
            os.unlink(part)
    os.chmod(path, 0o600)
    return path


NGINX = """
daemon off; worker_processes 1; pid {dir}/{name}.pid; error_log {dir}/{name}.err;
events {{ worker_connections 2048; }}
http {{
  access_log {access}; keepalive_timeout {keepalive}; keepalive_requests 1000000;
  client_body_temp_path {dir}/{name}.body; proxy_temp_path {dir}/{name}.proxy; fastcgi_temp_path {dir}/{name}.f;
  uwsgi_temp_path {dir}/{name}.u; scgi_temp_path {dir}/{name}.s; default_type text/plain;
  server {{
    {listens}
    location / {{ add_header X-Served-By {name} always; return 200 "hello from {name}\\n"; }}
    location /file/ {{ alias {dir}/files/; add_header X-Served-By {name} always; }}
  }}
}}
"""


def start_nginx(host, listens, name=None, keepalive="75s", access="off"):
    """A web server that says who it is; `listens`: addresses such as "80" or "[::]:80"."""
    name = name or host.name
    d = host.lab.dir
    (d / "files").mkdir(exist_ok=True)
    os.chmod(d, 0o755)
    conf = d / f"{name}.nginx.conf"
    conf.write_text(NGINX.format(dir=d, name=name, keepalive=keepalive, access=access,
                                 listens=" ".join(f"listen {x};" for x in listens)), encoding="ascii")
    proc = host.popen(["nginx", "-c", conf], log=f"{name}.nginx.log")
    port = listens[0].rsplit(":", 1)[-1].split()[0]
    wait_for(f"nginx on {name}", lambda: f":{port} " in host.run(["ss", "-ltn"]).stdout)
    return proc
