# SPDX-License-Identifier: BSD-2-Clause
"""tune.h2.*: what peers are told, and what happens at the limits."""

import struct
import threading
import time

import pytest
from conftest import ScriptedServer, connect, keepalive_server, wait_for

from test_h2 import CALM, DATA, END, END_HEADERS, GOAWAY, HEADERS, PING, Raw, frame, request

h2_connection = pytest.importorskip("h2.connection")
h2_events = pytest.importorskip("h2.events")
h2_config = pytest.importorskip("h2.config")
S = pytest.importorskip("h2.settings").SettingCodes

CFG = """
global
    stats socket {sock} level admin
    nbthread 1
    {tune}
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
listen web
    bind 127.0.0.1:8002 proto h2
    server s1 127.0.0.1:9001 {server}
"""


def cfg(*tune, server=""):
    return CFG.replace("{tune}", "\n    ".join(tune)).replace("{server}", server)


class Client:
    def __init__(self, one):
        self.s = connect(one, "127.0.0.1", 8002, timeout=20)
        self.h = h2_connection.H2Connection(h2_config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h.initiate_connection()
        self.done, self.goaway, self.is_closed, self.told = set(), None, False, False
        self.until(lambda: self.told)
        self.settings = self.h.remote_settings

    def until(self, done):
        """Reads until done() or the end."""
        self.s.sendall(self.h.data_to_send())
        while not done() and not self.is_closed:
            data = self.s.recv(65536)
            self.is_closed = not data
            for e in self.h.receive_data(data) if data else ():
                self.told |= isinstance(e, h2_events.RemoteSettingsChanged)
                if isinstance(e, h2_events.StreamEnded):
                    self.done.add(e.stream_id)
                elif isinstance(e, h2_events.ConnectionTerminated):
                    self.goaway = e
            if not self.is_closed and (out := self.h.data_to_send()):
                self.s.sendall(out)

    def ask(self, stream, end=True):
        self.h.send_headers(stream, [(":method", "GET" if end else "POST"), (":scheme", "http"), (":path", "/"),
                                     (":authority", "a")], end_stream=end)


def test_what_clients_are_told(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    daemon(one, cfg("tune.h2.fe.max-concurrent-streams 7", "tune.h2.max-concurrent-streams 9",
                    "tune.h2.initial-window-size 20000", "tune.h2.max-frame-size 32768", "tune.h2.header-table-size 1024",
                    "h2-workaround-bogus-websocket-clients"))
    c = Client(one)
    assert c.settings.max_concurrent_streams == 7 and c.settings.initial_window_size == 20000
    assert c.settings.max_frame_size == 32768 and c.settings.header_table_size == 1024
    assert not c.settings.get(S.ENABLE_CONNECT_PROTOCOL)
    for i in range(7):
        c.ask(1 + 2 * i)
    c.until(lambda: len(c.done) == 7)
    assert len(c.done) == 7


def test_defaults(one, daemon):
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    daemon(one, cfg())
    c = Client(one)
    assert c.settings.max_concurrent_streams == 100 and c.settings.initial_window_size == 65535
    assert c.settings.max_frame_size == 16384 and c.settings.header_table_size == 4096
    assert c.settings.get(S.ENABLE_CONNECT_PROTOCOL) == 1


def test_total_streams(one, daemon):
    """All that was asked is answered, then the connection ends in order, and another one begins anew."""
    ScriptedServer(one, "127.0.0.1", 9001, keepalive_server(b"ok"))
    daemon(one, cfg("tune.h2.fe.max-total-streams 3"))
    for _ in range(2):
        c = Raw(one)
        for i in (1, 3, 5):
            c.send(frame(HEADERS, END_HEADERS | END, i, request()))
        frames = c.rest()
        assert {f[2] for f in frames if f[0] == DATA and f[1] & END} == {1, 3, 5}
        goaways = [struct.unpack(">II", f[3][:8]) for f in frames if f[0] == GOAWAY]
        assert goaways and all(code == 0 and last >= 5 for last, code in goaways), goaways


def test_glitches(one, daemon):
    """A few DATA frames of nothing are below the budget of 64 that always holds, but not below this one."""
    ScriptedServer(one, "127.0.0.1", 9001, lambda server, c, n: c.recv(1 << 16) and time.sleep(20))
    daemon(one, cfg("tune.h2.fe.glitches-threshold 5"))
    c = Raw(one)
    c.send(frame(HEADERS, END_HEADERS, 1, request(b"/", b"POST")))
    c.send(frame(DATA, 0, 1) * 5 + frame(PING, 0, 0, b"12345678"))
    f = c.read()
    while f[0] not in (PING, GOAWAY):
        f = c.read()
    assert f[0] == PING
    c.send(frame(DATA, 0, 1))
    frames = c.rest()
    assert [struct.unpack(">II", f[3][:8])[1] for f in frames if f[0] == GOAWAY][-1] == CALM


def test_towards_servers(one, daemon):
    """The server learns our window, and gets two streams at a time on each connection."""
    told, most, go = [], [0], threading.Event()

    def handle(server, c, n):
        h = h2_connection.H2Connection(h2_config.H2Configuration(client_side=False))
        h.initiate_connection()
        c.sendall(h.data_to_send())
        waiting, at_once = [], 0
        while data := c.recv(65536):
            for e in h.receive_data(data):
                if isinstance(e, h2_events.RemoteSettingsChanged):
                    told.append(h.remote_settings.initial_window_size)
                elif isinstance(e, h2_events.StreamEnded):
                    waiting.append(e.stream_id)
                    at_once += 1
                    most[0] = max(most[0], at_once)
            server.received.append(n)
            go.wait(20)
            for stream in waiting:
                h.send_headers(stream, [(":status", "200"), ("content-length", "2")])
                h.send_data(stream, b"ok", end_stream=True)
                at_once -= 1
            waiting = []
            c.sendall(h.data_to_send())

    srv = ScriptedServer(one, "127.0.0.1", 9001, handle)
    daemon(one, cfg("tune.h2.be.max-concurrent-streams 2", "tune.h2.be.initial-window-size 3000",
                    "tune.h2.initial-window-size 4000", server="proto h2"))
    c = Client(one)
    go.set()
    c.ask(1)
    c.until(lambda: 1 in c.done)
    go.clear()
    for i in (3, 5, 7, 9):  # two join the connection that is there, the others make one each
        c.ask(i)
    c.s.sendall(c.h.data_to_send())
    wait_for("three connections", lambda: srv.count == 3, timeout=20)
    go.set()
    c.until(lambda: len(c.done) == 5)
    assert len(c.done) == 5 and most[0] == 2 and srv.count == 3
    assert told and all(w == 3000 for w in told)
