# SPDX-License-Identifier: BSD-2-Clause
"""A name server whose zone is a dict that tests change: {(name, type): [record, …]}, over UDP and TCP."""

import socket
import struct
import threading

from conftest import HostSocket

A, CNAME, AAAA, SRV = 1, 5, 28, 33
NX, REFUSED = 3, 5


def encode_name(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".") if p) + b"\0"


def encode(kind, value):
    if kind == A:
        return socket.inet_aton(value)
    if kind == AAAA:
        return socket.inet_pton(socket.AF_INET6, value)
    if kind == CNAME:
        return encode_name(value)
    priority, weight, port, target = value
    return struct.pack("!HHH", priority, weight, port) + encode_name(target)


class DnsServer:
    def __init__(self, host, addr="127.0.0.1", port=53):
        self.zone, self.rcode, self.silent, self.truncate, self.asked = {}, {}, False, False, []
        self.over_tcp = 0
        self.udp = HostSocket.make(host, kind=socket.SOCK_DGRAM)
        self.tcp = HostSocket.make(host)
        self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for s in (self.udp, self.tcp):
            s.bind((addr, port))
        self.tcp.listen(16)
        for target in (self.serve_udp, self.serve_tcp):
            threading.Thread(target=target, daemon=True).start()

    def answer(self, query, is_udp):
        qid, _, _, _, _, _ = struct.unpack("!6H", query[:12])
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind = struct.unpack("!H", query[at + 1:at + 3])[0]
        question, name = query[12:at + 5], ".".join(labels).lower()
        self.asked.append((name, kind))
        if self.silent:
            return None
        answers, target = [], name
        while (target, CNAME) in self.zone:
            value = self.zone[(target, CNAME)][0]
            answers.append((target, CNAME, value))
            target = value
        answers += [(target, kind, v) for v in self.zone.get((target, kind), [])]
        known = any(n == target for n, _ in self.zone)
        rcode = self.rcode.get(name, 0 if known else NX)
        flags = 0x8180 | rcode
        if rcode:
            answers = []
        if self.truncate and is_udp:
            answers, flags = [], flags | 0x0200
        out = struct.pack("!6H", qid, flags, 1, len(answers), 0, 0) + question
        for n, k, v in answers:
            data = encode(k, v)
            out += encode_name(n) + struct.pack("!HHIH", k, 1, 0, len(data)) + data
        return out

    def serve_udp(self):
        try:
            while True:
                query, peer = self.udp.recvfrom(4096)
                if len(query) < 12:
                    return  # closed
                if out := self.answer(query, True):
                    self.udp.sendto(out, peer)
        except OSError:
            pass

    def serve_tcp(self):
        try:
            while True:
                c, _ = self.tcp.accept()
                with c:
                    size = struct.unpack("!H", c.recv(2, socket.MSG_WAITALL))[0]
                    out = self.answer(c.recv(size, socket.MSG_WAITALL), False)
                    self.over_tcp += 1
                    if out:
                        # In two pieces: a reader has to put them together.
                        c.sendall(struct.pack("!H", len(out)) + out[:7])
                        c.sendall(out[7:])
                        c.settimeout(2)
                        c.recv(1)
        except OSError:
            pass

    def close(self):
        for s in (self.udp, self.tcp):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
