#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""QUIC clients and servers on a real stack (aioquic), for test_l4_quic.py.

    quic_peer.py server ADDRESS PORT CERTIFICATE KEY NAME ID   answers each request with its name and the request's number in the connection
    quic_peer.py client ADDRESS PORT CONNECTIONS MOVES SECONDS prints what each connection was answered, as JSON
"""

import asyncio
import json
import os
import socket
import sys
import time

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic import connection as quic
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamDataReceived

CID_LENGTH = 8
ALPN = ["echo"]


class RoutableConnection(quic.QuicConnection):
    """Connection ids as draft-ietf-quic-load-balancers has them in plain text: an octet, the server's id, the rest at random."""

    server_id = b""

    def __init__(self, **kw):
        super().__init__(**kw)
        self._host_cids[0].cid = self.host_cid = self._local_initial_source_connection_id = self.new_cid()

    def new_cid(self):
        return os.urandom(1) + self.server_id + os.urandom(CID_LENGTH - 1 - len(self.server_id))

    def _replenish_connection_ids(self):
        known = len(self._host_cids)
        super()._replenish_connection_ids()
        for c in self._host_cids[known:]:
            c.cid = self.new_cid()


class Server(QuicConnectionProtocol):
    name = ""

    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.count, self.buffers = 0, {}

    def quic_event_received(self, event):
        if not isinstance(event, StreamDataReceived):
            return
        self.buffers[event.stream_id] = self.buffers.get(event.stream_id, b"") + event.data
        if event.end_stream:
            self.count += 1
            body = self.buffers.pop(event.stream_id)
            self._quic.send_stream_data(event.stream_id, b"%s %d %s" % (self.name.encode(), self.count, body), end_stream=True)


async def run_server(address, port, certificate, key, name, server_id):
    RoutableConnection.server_id = int(server_id).to_bytes(2, "big")
    Server.name = name
    sys.modules["aioquic.asyncio.server"].QuicConnection = RoutableConnection
    config = QuicConfiguration(is_client=False, alpn_protocols=ALPN, connection_id_length=CID_LENGTH)
    config.load_cert_chain(certificate, key)
    await serve(address, int(port), configuration=config, create_protocol=Server)
    print("listening", flush=True)
    await asyncio.Event().wait()


class Client:
    """One connection, driven by hand, so that its socket can be another one from one datagram to the next."""

    def __init__(self, address, port):
        config = QuicConfiguration(is_client=True, alpn_protocols=ALPN, verify_mode=0, server_name="quic.test")
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.peer = (address, port)
        self.conn, self.sock, self.events = quic.QuicConnection(configuration=config), None, []
        self.move()
        self.conn.connect(self.peer, now=time.monotonic())

    def move(self):
        """What a NAT does that has forgotten the connection: the same datagrams from another port."""
        old, self.sock = self.sock, socket.socket(self.family, socket.SOCK_DGRAM)
        self.sock.bind(("", 0))  # before the old one is closed: another port for sure
        if old:
            old.close()

    def flush(self):
        for data, _ in self.conn.datagrams_to_send(time.monotonic()):
            self.sock.sendto(data, self.peer)

    def drive(self, done, end):
        """Exchanges datagrams until `done(events)`; when it is `end` before that and nothing is waiting to be read: None."""
        seen = []
        while True:
            self.flush()
            now, timer = time.monotonic(), self.conn.get_timer()
            self.sock.settimeout(max(0.0, min(end, timer if timer is not None else end) - now))
            try:
                self.conn.receive_datagram(self.sock.recv(65536), self.peer, time.monotonic())
            except (TimeoutError, BlockingIOError):
                if time.monotonic() >= end:
                    return None
                if timer is not None and time.monotonic() >= timer:
                    self.conn.handle_timer(time.monotonic())
            while (event := self.conn.next_event()) is not None:
                seen.append(event)
            if any(isinstance(e, ConnectionTerminated) for e in seen):
                return None
            if done(seen):
                self.flush()  # acknowledgements, and the proof that this port is ours
                return seen

    def ask(self, text):
        """Sends a request, on a stream of its own."""
        self.stream = self.conn.get_next_available_stream_id()
        self.conn.send_stream_data(self.stream, text.encode(), end_stream=True)
        self.flush()

    def answer(self, end):
        """The answer to it, or None."""
        def mine(events):
            return [e for e in events if isinstance(e, StreamDataReceived) and e.stream_id == self.stream]

        seen = self.drive(lambda events: any(e.end_stream for e in mine(events)), end)
        return seen and b"".join(e.data for e in mine(seen)).decode()


def run_client(address, port, connections, moves, seconds):
    clients = [Client(address, int(port)) for _ in range(int(connections))]
    answers = [[] for _ in clients]
    for c in clients:
        assert c.drive(lambda events: any(isinstance(e, HandshakeCompleted) for e in events), time.monotonic() + 30), "no handshake"
    for move in range(int(moves) + 1):
        going = [(c, got) for c, got in zip(clients, answers) if not got or got[-1]]
        for c, _ in going:
            if move:
                c.move()
            if move == 2:  # a client that knows it has moved takes a new connection id, too
                c.conn.change_connection_id()
            c.ask(f"move {move}")
        end = time.monotonic() + float(seconds)
        for c, got in going:
            got.append(c.answer(end))
    print(json.dumps(answers))


if __name__ == "__main__":
    if sys.argv[1] == "server":
        asyncio.run(run_server(*sys.argv[2:]))
    else:
        run_client(*sys.argv[2:])
