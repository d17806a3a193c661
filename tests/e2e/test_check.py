# SPDX-License-Identifier: BSD-2-Clause
"""headgate check: what a configuration comes to, and files that include others."""

import json

from conftest import run_cli

MAIN = """\
defaults base
    mode http
    timeout client 10s
    timeout server 20s
    timeout connect 2s
    http-request set-header X-From base
    acl internal src 10.0.0.0/8
include parts/*.cfg
backend old
    server s 127.0.0.1:1
"""
WEB = """\
frontend web
    bind 127.0.0.1:8000
    acl a path /a
    acl unused path /u
    timeout client 5s
    http-request deny if a !internal
    tcp-request content accept
    http-response set-header Y z
    use_backend app if a
    default_backend app
"""
APP = """\
backend app
    server s 127.0.0.1:1 check
"""


def write(one):
    d = one.lab.dir
    (d / "parts").mkdir(exist_ok=True)
    (d / "main.cfg").write_text(MAIN)
    (d / "parts" / "2-app.cfg").write_text(APP)
    (d / "parts" / "1-web.cfg").write_text(WEB)
    return d


def test_explain(one):
    d = write(one)
    out = run_cli(one, "check", "--explain", d / "main.cfg").stdout
    web = out.split("\n\n")[0].splitlines()
    at = web.index("  runs in this order:")
    order = [line.split("  (")[0].strip() for line in web[at + 1:]]
    assert order == ["tcp-request content accept", "http-request set-header X-From base", "http-request deny if a !internal",
                     "use_backend app, if its condition holds", "default_backend app", "http-response set-header Y z"]
    assert f"http-request set-header X-From base  ({d}/main.cfg:6, from defaults)" in out
    assert f"http-request deny if a !internal  ({d}/parts/1-web.cfg:6)" in out
    assert "    timeout server 20s" in web[:at] and "    timeout client 10s" not in web[:at]
    assert f"unused backends:\n  old  ({d}/main.cfg:9)\n" in out
    assert f"unused ACLs:\n  web unused  ({d}/parts/1-web.cfg:4)\n" in out
    assert "  health checks: 1\n" in out


def test_explain_json(one):
    d = write(one)
    doc = json.loads(run_cli(one, "check", "--explain=json", d / "main.cfg").stdout)
    web, app, old = doc["sections"]
    assert (web["kind"], web["name"], web["runs_in"]) == ("frontend", "web", "worker (HTTP)")
    assert [r["from_defaults"] for r in web["runs_in_this_order"]] == [False, True, False, False, False, False]
    assert app["used_by"] == ["web"] and old["used_by"] == []
    assert app["has_from_there"].count("timeout client 10s") == 1
    assert [b["text"] for b in doc["unused_backends"]] == ["old"]
    assert doc["worker"] == ["frontend web", "backend app", "backend old"] and doc["XDP"] == []


def test_include_errors(one):
    """A fault in an included file is reported there; the rest is read all the same."""
    d = write(one)
    (d / "parts" / "1-web.cfg").write_text(WEB.replace("bind ", "bnd "))
    r = run_cli(one, "check", d / "main.cfg", check=False)
    assert r.returncode == 1
    assert f"{d}/parts/1-web.cfg:2:5: error: unknown keyword 'bnd'" in r.stderr
    assert "1 errors" in r.stderr or "1 error" in r.stderr
