# SPDX-License-Identifier: BSD-2-Clause
"""What is said, and how the process ends, when the configuration or its surroundings are wrong."""

import os
import re
import signal
import socket
import subprocess

import pytest
from conftest import HEADGATED, SLOW, HostSocket, make_cert, wait_for

OK = """\
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 1s
listen web
    bind 127.0.0.1:8000
    server s1 127.0.0.1:9001
"""


def start(one, text, *args, name="x.cfg", prefix=()):
    """Runs until it ends (a start that must fail); the result."""
    cfg = one.lab.dir / name
    cfg.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.chmod(cfg, 0o644)
    os.chmod(one.lab.dir, 0o755)
    return one.run([*prefix, HEADGATED, *args, "-f", cfg], check=False, timeout=20 * SLOW)


def check(one, text, *args):
    return start(one, text, "-c", *args)


def test_check_exit_codes(one):
    done = check(one, OK)
    assert (done.returncode, done.stdout) == (0, "")
    done = check(one, OK, "-V")
    assert done.returncode == 0 and "Configuration file is valid" in done.stdout
    assert check(one, OK + "    nonsense\n").returncode == 1
    done = check(one, "defaults\n    timeout client 1s\n    timeout server 1s\n    timeout connect 1s\n"
                      "backend b\n    server s 127.0.0.1:1\n")
    assert done.returncode == 2, done.stderr
    assert check(one, OK, "-dW").returncode == 0
    assert check(one, OK.replace("    timeout client 5s\n", ""), "-dW").returncode == 1
    done = one.run([HEADGATED, "-c", "-f", one.lab.dir / "not-there.cfg"], check=False)
    assert done.returncode == 1 and "not-there.cfg" in done.stderr


def test_unknown_keyword(one):
    done = check(one, OK + "    blance roundrobin\n")
    assert done.returncode == 1
    m = re.search(r"x\.cfg:9:5: (.*)", done.stderr)
    assert m, done.stderr
    assert "blance" in m[1] and "balance" in m[1]


def test_unknown_option_of_a_line(one):
    done = check(one, OK.replace("127.0.0.1:9001", "127.0.0.1:9001 chekc inter 2s"))
    assert done.returncode == 1
    m = re.search(r"x\.cfg:8:30: (.*)", done.stderr)
    assert m, done.stderr
    assert "chekc" in m[1] and "'check'" in m[1]


def test_all_errors_in_one_run(one):
    text = """\
global
    nbthred 2
    maxconn many
defaults
    mode htp
    timeout client 5 parsecs
listen web
    bind 127.0.0.1:99999
    balance rondrobin
    server s1 127.0.0.1:9001 weight 300
    use_backend nowhere
    acl x path_bg /a
    http-request dennny if x
"""
    done = check(one, text)
    assert done.returncode == 1
    lines = {int(n) for n in re.findall(r"x\.cfg:(\d+):\d+:", done.stderr)}
    assert {2, 3, 5, 6, 8, 9, 10, 11, 12, 13} <= lines, done.stderr
    order = [int(n) for n in re.findall(r"ALERT.*?x\.cfg:(\d+):", done.stderr)]
    assert order == sorted(order)
    for near in ("nbthread", "'http'", "roundrobin", "path", "deny"):
        assert near in done.stderr, near


@pytest.mark.parametrize("text", [
    b"\x00\x01\x02\xff\xfe garbage\n", b"listen", b"listen web\n bind\n", b"'unterminated\n", b"\"${\n", b"\\", b".if\n",
    b"global\n" + b"x" * 100000 + b"\n", b"defaults\n mode http\n" * 50 + b"}{\n", bytes(range(256)) * 20,
], ids=range(10))
def test_garbage(one, text):
    done = check(one, text)
    assert done.returncode in (1, 2), done
    assert done.stderr.strip()
    assert len(done.stderr) < 200000


def test_missing_certificate(one):
    text = OK.replace("bind 127.0.0.1:8000", "bind 127.0.0.1:8000 ssl crt {d}/nothere.pem".replace("{d}", str(one.lab.dir)))
    for args in (("-c",), ()):
        done = start(one, text, *args)
        assert done.returncode == 1
        assert "nothere.pem" in done.stderr and "No such file" in done.stderr, done.stderr
        assert re.search(r"x\.cfg:7", done.stderr), done.stderr


def test_bad_certificates(one):
    d = one.lab.dir
    make_cert(d / "a.pem", ["a"])
    make_cert(d / "b.pem", ["b"])
    key = (d / "b.pem").read_text().split("-----BEGIN PRIVATE")[1]
    (d / "mixed.pem").write_text((d / "a.pem").read_text().split("-----BEGIN PRIVATE")[0] + "-----BEGIN PRIVATE" + key)
    (d / "nokey.pem").write_text((d / "a.pem").read_text().split("-----BEGIN PRIVATE")[0])
    (d / "junk.pem").write_text("hello\n")
    for name in ("mixed.pem", "nokey.pem", "junk.pem"):
        done = start(one, OK.replace("bind 127.0.0.1:8000", f"bind 127.0.0.1:8000 ssl crt {d}/{name}"))
        assert done.returncode == 1, name
        assert name in done.stderr and len(done.stderr.strip().splitlines()) >= 1, done.stderr
    done = start(one, OK.replace("bind 127.0.0.1:8000", "bind 127.0.0.1:8000 ssl"))
    assert done.returncode == 1 and "crt" in done.stderr


def test_tls_mistakes(one):
    """Each with the line of the configuration and the file that it is about; all of them in one run of -c."""
    d = one.lab.dir

    def openssl(*args):
        return subprocess.run(["openssl", *map(str, args)], cwd=d, check=True, capture_output=True, text=True).stdout

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    make_cert(d / "good.pem", ["a"])
    good = (d / "good.pem").read_text()
    crt = good[:good.index("-----BEGIN PRIVATE")]
    make_cert(d / "other.pem", ["b"])
    other = (d / "other.pem").read_text()
    (d / "wrongkey.pem").write_text(crt + other[other.index("-----BEGIN PRIVATE"):])
    (d / "nokey.pem").write_text(crt)
    (d / "cut.pem").write_text(good[:300])
    (d / "encrypted.pem").write_text(crt + openssl("ec", "-in", "good.pem", "-aes256", "-passout", "pass:x"))
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-subj", "/CN=Some Root", "-out", "ca.pem")
    openssl("req", "-new", *key, "-keyout", "leaf.key", "-subj", "/CN=leaf", "-out", "leaf.csr")
    for name, days in (("leaf", 30), ("expired", -1)):
        out = openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", days)
        (d / f"{name}.pem").write_text(out + (d / "leaf.key").read_text() + ((d / "ca.pem").read_text() if days < 0 else ""))
    (d / "list").write_text("good.pem\ngood.pem [ciphers NO-SUCH] a.test\n")
    (d / "empty").mkdir()
    cases = [  # what stands on the line, what has to be said about it
        ("crt wrongkey.pem", "'wrongkey.pem': the private key does not match the certificate"),
        ("crt nokey.pem", "no private key in 'nokey.pem'"),
        ("crt encrypted.pem", "encrypted.pem: the private key that ends in line"),
        ("crt cut.pem", "cut.pem: bad PEM before line"),
        ("crt nothere.pem", "nothere.pem"),
        ("crt empty", "no certificate in directory 'empty'"),
        ("crt expired.pem", "certificate 'expired.pem' has expired"),
        ("crt leaf.pem", "certificate 'leaf.pem' comes without that of its issuer '/CN=Some Root'"),
        ("crt good.pem ciphers NO-SUCH", "ciphers 'NO-SUCH': no cipher match"),
        ("crt good.pem ciphersuites TLS_NO", "ciphersuites 'TLS_NO': no cipher match"),
        ("crt good.pem curves P-1", "curves 'P-1'"),
        ("crt good.pem sigalgs NONE", "sigalgs 'NONE'"),
        ("crt good.pem ca-file nothere.pem verify required", "cannot open CA file 'nothere.pem'"),
        ("crt good.pem tls-ticket-keys ca.pem", "ca.pem:1: a ticket key is 48 or 80 bytes"),
        ("crt-list list", "list:2: ciphers 'NO-SUCH'"),
    ]
    text = "frontend f\n    mode http\n    timeout client 1s\n    http-request return status 200\n"
    text += "".join(f"    bind 127.0.0.1:{8441 + i} ssl {line}\n" for i, (line, _) in enumerate(cases))
    cfg = d / "x.cfg"
    cfg.write_text(text)
    done = one.run(f"cd {d} && {HEADGATED} -c -f x.cfg", check=False, timeout=20 * SLOW)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    for i, (line, want) in enumerate(cases):
        mine = [s for s in said if f"x.cfg:{5 + i}:" in s]
        assert len(mine) == 1 and want in mine[0], (line, mine, said)
    # Those two are warnings: a configuration with nothing else is good.
    cfg.write_text("\n".join(s for s in text.splitlines() if "bind" not in s or "leaf.pem" in s or "expired.pem" in s) + "\n")
    done = one.run(f"cd {d} && {HEADGATED} -c -f x.cfg", check=False, timeout=20 * SLOW)
    assert done.returncode == 0 and "has expired" in done.stderr and "issuer" in done.stderr, done.stderr


def test_port_in_use(one):
    s = HostSocket.make(one)
    s.bind(("127.0.0.1", 8000))
    s.listen(5)
    done = start(one, OK)
    assert done.returncode == 1
    assert "127.0.0.1:8000" in done.stderr and "in use" in done.stderr, done.stderr
    assert re.search(r"x\.cfg:7", done.stderr) or "web" in done.stderr, done.stderr
    s.close()
    assert one.run("ls /sys/fs/bpf/headgate 2>/dev/null", check=False).stdout == ""


def test_address_of_another_host(one):
    done = start(one, OK.replace("127.0.0.1:8000", "192.0.2.77:8000"))
    assert done.returncode == 1
    assert "192.0.2.77:8000" in done.stderr and "no interface has this address" in done.stderr, done.stderr


def test_unreadable_file(one):
    cfg = one.lab.dir / "secret.cfg"
    cfg.write_text(OK)
    os.chmod(cfg, 0o600)
    os.chmod(one.lab.dir, 0o755)
    done = one.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", HEADGATED, "-f", cfg], check=False)
    assert done.returncode == 1
    assert "secret.cfg" in done.stderr and "Permission denied" in done.stderr, done.stderr


def test_directory_that_is_not_one(one):
    done = one.run([HEADGATED, "-c", "-f", "/proc/self/nothing"], check=False)
    assert done.returncode == 1 and "/proc/self/nothing" in done.stderr
    (one.lab.dir / "conf.d").mkdir()
    done = one.run([HEADGATED, "-c", "-f", one.lab.dir / "conf.d"], check=False)
    assert done.returncode in (1, 2) and done.stderr.strip()


def test_unknown_command_line_option(one):
    done = start(one, OK, "-nonsense")
    assert done.returncode == 1 and "-nonsense" in done.stderr
    assert one.run([HEADGATED], check=False).returncode == 1
    assert one.run([HEADGATED, "-v"]).stdout.startswith("H")
    done = one.run([HEADGATED, "-vv"])
    assert "HAProxy-compatible version 3.5" in done.stdout


def test_conditions(one):
    for expr, code in (("1", 0), ("0", 1), ("version_atleast(3.4)", 0), ("version_before(3.4)", 1), ("feature(OPENSSL)", 0),
                       ("feature(LUA)", 1), ("streq(a,b)", 1), ("!streq(a,b) && 1", 0), ("streq(a", 2)):
        assert one.run([HEADGATED, "-cc", expr], check=False).returncode == code, expr


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")


def test_low_port_without_privileges(one):
    one.run("echo 1024 > /proc/sys/net/ipv4/ip_unprivileged_port_start")
    done = start(one, OK.replace(":8000", ":80"), prefix=NOBODY)
    assert done.returncode == 1
    assert "127.0.0.1:80" in done.stderr and "permission denied" in done.stderr, done.stderr


def test_xdp_without_privileges(one):
    done = start(one, "global\n    xdp interface lo\n" + OK, prefix=NOBODY)
    assert done.returncode == 1
    assert re.search(r"root|CAP_|privilege", done.stderr), done.stderr


def test_serves_without_privileges(one, daemon):
    """A plain L7 service needs no root: it runs, and says what it goes without."""
    os.chmod(one.lab.dir, 0o777)
    from conftest import Daemon, ScriptedServer, keepalive_server, raw
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"plain"))
    d = Daemon(one, OK)
    os.chmod(d.cfg, 0o644)
    d.proc = one.popen([*NOBODY, HEADGATED, "-f", d.cfg], log="headgated.log", env=d.env)
    d.wait_ready()
    out = raw(one, "127.0.0.1", 8000, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert out.endswith(b"plain")
    assert d.stop() == 0


def test_transparent_without_privileges(one):
    done = start(one, OK.replace("127.0.0.1:8000", "192.0.2.77:8000 transparent"), prefix=NOBODY)
    assert done.returncode == 1
    assert "transparent" in done.stderr or "192.0.2.77" in done.stderr, done.stderr


def test_interface_that_does_not_exist(one):
    done = start(one, "global\n    xdp interface nope0\n" + OK)
    assert done.returncode == 1
    assert "nope0" in done.stderr, done.stderr
    assert one.run("ls /sys/fs/bpf/headgate 2>/dev/null", check=False).stdout == ""


def test_unknown_user(one):
    done = start(one, "global\n    user nosuchuser\n" + OK)
    assert done.returncode == 1 and "nosuchuser" in done.stderr and re.search(r"x\.cfg:2:\d+", done.stderr), done.stderr


def test_socket_path_that_cannot_be_made(one):
    done = start(one, "global\n    stats socket /nonexistent/dir/s.sock\n" + OK)
    assert done.returncode == 1 and "/nonexistent/dir/s.sock" in done.stderr, done.stderr


def test_nothing_is_left_of_a_failed_start(one):
    """The runtime socket is opened before the last step fails: no file stays, the port is free."""
    sock = one.lab.dir / "left.sock"
    done = start(one, f"global\n    stats socket {sock}\n    pidfile /nonexistent/dir/pid\n" + OK)
    assert done.returncode == 1, done.stderr
    assert "/nonexistent/dir/pid" in done.stderr
    assert not sock.exists()
    assert ":8000" not in one.run("ss -ltn").stdout


def test_several_files_and_directories(one, daemon):
    d = one.lab.dir
    (d / "conf.d").mkdir()
    (d / "conf.d" / "10-defaults.cfg").write_text(OK.split("listen")[0])
    (d / "conf.d" / "20-web.cfg").write_text("listen" + OK.split("listen")[1])
    (d / "conf.d" / "ignored.txt").write_text("nonsense\n")
    assert one.run([HEADGATED, "-c", "-f", d / "conf.d"]).returncode == 0
    (d / "more.cfg").write_text("listen more\n    bind 127.0.0.1:8001\n    srver x\n")
    done = one.run([HEADGATED, "-c", "-f", d / "conf.d", "-f", d / "more.cfg"], check=False)
    assert done.returncode == 1 and re.search(r"more\.cfg:3:5", done.stderr), done.stderr


def test_environment_and_conditions_in_a_file(one):
    text = OK.replace("127.0.0.1:8000", '"${ADDR-127.0.0.1}:${PORT}"') + """
.if defined(PORT) && !streq("$PORT",1)
listen second
    bind 127.0.0.1:8055
.else
    nonsense
.endif
"""
    cfg = one.lab.dir / "env.cfg"
    cfg.write_text(text)
    env = {**os.environ, "PORT": "8077"}
    assert one.run([HEADGATED, "-c", "-f", cfg], env=env, check=False).returncode == 0
    env["PORT"] = "1"
    done = one.run([HEADGATED, "-c", "-f", cfg], env=env, check=False)
    assert done.returncode == 1 and "nonsense" in done.stderr


def test_not_implemented_is_said(one):
    """A keyword of HAProxy that is not there is an error that says so, not an unknown word."""
    done = check(one, "global\n    lua-load x.lua\n" + OK)
    assert done.returncode == 1
    assert re.search(r"x\.cfg:2:5: .*lua-load.*(not (supported|implemented))", done.stderr), done.stderr


def test_signal_before_and_socket_file_after(one, daemon):
    """SIGTERM right after the start ends it cleanly; the socket file is gone."""
    d = daemon(one, OK)
    assert d.sock.exists()
    assert d.stop(signal.SIGTERM) == 0
    assert not d.sock.exists()
    d2 = socket.socket()
    d2.close()
    wait_for("port to be free", lambda: ":8000" not in one.run("ss -ltn").stdout)
