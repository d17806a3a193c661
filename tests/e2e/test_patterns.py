# SPDX-License-Identifier: BSD-2-Clause
"""Maps and ACLs that the runtime API changes while requests come in."""

import re
import threading

from conftest import SLOW, connect, raw, read_response, wait_for

HEAD = """
defaults
    mode http
    timeout client 10s
    timeout server 10s
    timeout connect 2s
"""
UNKNOWN = "Unknown map identifier. Please use #<id> or <file>."


def ask(one, path):
    out = raw(one, "127.0.0.1", 8000, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    return out.split(b"\r\n\r\n", 1)[1].decode() if b" 200 " in out.split(b"\r\n")[0] else out.split()[1].decode()


def pairs(d, name, what="map"):
    out = d.cli(f"show {what} {name}").strip().splitlines()
    assert all(re.match(r"0x[0-9a-f]+ \S", line) for line in out), out
    return [line.split(" ", 1)[1] for line in out]


def start(one, daemon, extra=""):
    d = daemon(one, HEAD + """
frontend web
    bind 127.0.0.1:8000
    acl blocked path -f {dir}/blocked.acl
    acl nets src -u 50 10.0.0.0/8
    http-request deny if blocked
    http-request return status 200 content-type text/plain lf-string "%[path,map({dir}/a.map,none)] %[path,map_beg({dir}/a.map,none)]"
""" + extra, start=False)
    (d.dir / "a.map").write_text("/a one\n/b two words\n")
    (d.dir / "nets.acl").write_text("10.0.0.0/8\n")
    (d.dir / "blocked.acl").write_text("# nothing here\n/bad\n")
    return d.start()


def test_change(one, daemon):
    """An answered command is in force for the next request."""
    d = start(one, daemon)
    m, a = d.dir / "a.map", d.dir / "blocked.acl"
    assert ask(one, "/a") == "one one" and ask(one, "/b/c") == "none two words" and ask(one, "/bad") == "403"
    assert d.cli(f"add map {m} /b/c three") == "\n"
    assert ask(one, "/b/c") == "three three" and ask(one, "/b/cd") == "none three"
    assert d.cli(f"set map {m} /a uno") == "\n"
    assert ask(one, "/a") == "uno uno"
    assert d.cli(f"del map {m} /b") == "\n"
    assert ask(one, "/b/x") == "none none"
    assert d.cli(f"add acl {a} /worse; del acl {a} /bad") == "\n\n"
    assert ask(one, "/worse") == "403" and ask(one, "/bad") == "none none"
    assert d.cli(f"add map {m} <<\n/p 1\n/q 2 3\n\n") == "\n"
    assert ask(one, "/q") == "2 3 2 3"
    assert pairs(d, m) == ["/a uno", "/b/c three", "/p 1", "/q 2 3"]
    assert pairs(d, a, "acl") == ["/worse"]
    entry = d.cli(f"show map {m}").split()[0]
    assert d.cli(f"set map {m} #{entry} eins") == "\n" and ask(one, "/a") == "eins eins"
    assert d.cli(f"clear map {m}") == "\n"
    assert pairs(d, m) == [] and ask(one, "/a") == "none none"
    # A reload reads the files again.
    assert "Success=1" in d.cli("reload")
    assert ask(one, "/a") == "one one" and ask(one, "/bad") == "403" and ask(one, "/worse") == "none none"


def test_versions(one, daemon):
    """A prepared version replaces the whole list at once."""
    d = start(one, daemon)
    m = d.dir / "a.map"
    assert d.cli(f"prepare map {m}").strip() == "New version created: 1"
    assert d.cli(f"add map @1 {m} /new n") == "\n"
    assert ask(one, "/new") == "none none" and ask(one, "/a") == "one one"
    assert d.cli(f"show map @1 {m}").strip().split(" ", 1)[1] == "/new n"
    assert d.cli(f"commit map @2 {m}").strip() == "Version number out of range."
    assert d.cli(f"commit map {m}").strip() == "Missing version number."
    assert d.cli(f"commit map @1 {m}") == "\n"
    assert ask(one, "/new") == "n n" and ask(one, "/a") == "none none"
    assert "curr_ver=1 next_ver=1 entry_cnt=1" in d.cli("show map")


def test_answers(one, daemon):
    """The words of the answers, as tools expect them."""
    d = start(one, daemon)
    m, a = d.dir / "a.map", d.dir / "blocked.acl"
    out = d.cli("show map").splitlines()
    assert out[0] == "# id (file) description"
    assert re.fullmatch(rf"\d+ \({m}\) pattern loaded from file '{m}' used by map at file '\S+' line \d+, by map at file "
                        r"'\S+' line \d+\. curr_ver=0 next_ver=0 entry_cnt=2", out[1]), out[1]
    acls = d.cli("show acl")
    assert re.search(rf"^\d+ \({a}\) pattern loaded from file '{a}' used by acl at file", acls, re.M)
    assert re.search(r"^50 \(\) acl 'src' file '\S+' line \d+\. curr_ver=0 next_ver=0 entry_cnt=1$", acls, re.M)
    assert pairs(d, "#50", "acl") == ["10.0.0.0/8"]
    assert d.cli(f"get map {m} /b/c").splitlines()[:2] == [
        "type=str, case=sensitive, found=no",
        'type=beg, case=sensitive, found=yes, idx=tree, key="/b", value="two words", type="str"']
    assert d.cli("get acl #50 10.1.2.3").strip() == 'type=ip, case=sensitive, match=yes, idx=tree, pattern="10.0.0.0/8"'
    for cmd, want in {
        "show map nosuch": UNKNOWN,
        "add map nosuch k v": UNKNOWN,
        f"add map {m} k": "'add map' expects three parameters (map identifier, key and value) or one parameter (map identifier)"
                          " and a payload",
        "add acl": "'add acl' expects two parameters: ACL identifier and pattern.",
        "add acl #50 nonsense": "'nonsense' is neither an address nor a network",
        f"del map {m} nosuch": "Key not found.",
        f"set map {m} nosuch v": "entry not found.",
        "get map": "Missing map identifier and/or key.",
        "prepare acl nosuch": "Unknown ACL identifier. Please use #<id> or <file>.",
        "get var proc.nosuch": "Variable not found.",
        "set var proc.x expr int(5)": "",
        "get var proc.x": "proc.x: type=sint value=<5>",
        'set var proc.x fmt a%[int(2)]': "",
        "get var proc.x ": "proc.x: type=str value=<a2>",
        "get var txn.x": "Only process-wide variables are supported ('proc.…').",
    }.items():
        assert d.cli(cmd).strip() == want, cmd


def test_under_load(one, daemon):
    """Requests go on while a list changes all the time; none sees anything but an old or a new value."""
    d = start(one, daemon)
    m = d.dir / "a.map"
    stop, bad, n = threading.Event(), [], [0]

    def client():
        with connect(one, "127.0.0.1", 8000) as c:
            while not stop.is_set():
                c.sendall(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
                body = read_response(c)[2].decode()
                n[0] += 1
                if not re.fullmatch(r"(one|v\d+) (one|v\d+)", body):
                    bad.append(body)

    threads = [threading.Thread(target=client) for _ in range(3)]
    for t in threads:
        t.start()
    for i in range(150):
        d.cli(f"set map {m} /a v{i}; add map {m} /k{i} x; del map {m} /k{i - 40}")
    stop.set()
    for t in threads:
        t.join(10 * SLOW)
    assert not bad and n[0] > 20
    assert len(pairs(d, m)) == 42 and ask(one, "/a") == "v149 v149"


def test_rules(one, daemon):
    """Requests change lists; what they send cannot break them."""
    d = start(one, daemon, """
frontend edit
    bind 127.0.0.1:8001
    http-request set-map({dir}/a.map) %[url_param(k)] %[url_param(v)] if { path /set }
    http-request del-map({dir}/a.map) %[url_param(k)] if { path /del }
    http-request add-acl({dir}/blocked.acl) %[url_param(k),url_dec] if { path /block }
    http-request del-acl({dir}/blocked.acl) %[url_param(k)] if { path /allow }
    acl net src -f {dir}/nets.acl
    http-request add-acl({dir}/nets.acl) %[url_param(k)] if { path /net } !net
    http-request return status 200
""")
    m, a = d.dir / "a.map", d.dir / "blocked.acl"

    def edit(target):
        assert b" 200 " in raw(one, "127.0.0.1", 8001,
                               f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())

    edit("/set?k=/a&v=eins")
    edit("/set?k=/neu&v=zwei")
    wait_for("both values", lambda: ask(one, "/a") == "eins eins" and ask(one, "/neu") == "zwei zwei")
    edit("/del?k=/neu")
    wait_for("the deletion", lambda: ask(one, "/neu") == "none none")
    for _ in range(3):
        edit("/block?k=/worse")
    edit("/block?k=")
    edit("/block?k=/x%0a0x1%20/all")
    wait_for("the block", lambda: ask(one, "/worse") == "403")
    edit("/net?k=nonsense")
    wait_for("the refusal", lambda: "refused_patterns: 1" in d.cli("show activity"))
    assert pairs(d, a, "acl") == ["/bad", "/worse", "/x%0A0x1 /all"]
    edit("/allow?k=/worse")
    wait_for("the permission", lambda: ask(one, "/worse") == "none none")
    assert pairs(d, m) == ["/a eins", "/b two words"]
