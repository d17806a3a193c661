# SPDX-License-Identifier: BSD-2-Clause
"""A gRPC service and a client that tries all of it, without generated code. Run inside a namespace."""

import sys
import threading
import time
from concurrent import futures

import grpc

SERVICE = "lab.Echo"
BIG = 3_000_000


def unary(request, context):
    if request == b"fail":
        context.set_trailing_metadata((("why", "told-to"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")
    if request == b"sleep":
        time.sleep(3)
    context.send_initial_metadata((("seen", dict(context.invocation_metadata()).get("tag", "none")),))
    context.set_trailing_metadata((("size", str(len(request))),))
    return request[::-1]


def stream_out(request, context):
    for n in range(int(request)):
        yield b"%d" % n


def stream_in(requests, context):
    return b"%d" % sum(len(r) for r in requests)


def stream_both(requests, context):
    for r in requests:
        yield r.upper()


def serve(addr):
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Out": grpc.unary_stream_rpc_method_handler(stream_out),
        "In": grpc.stream_unary_rpc_method_handler(stream_in),
        "Both": grpc.stream_stream_rpc_method_handler(stream_both),
    }
    server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.max_receive_message_length", 2 * BIG)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(addr)
    server.start()
    print("serving", flush=True)
    server.wait_for_termination()


def client(addr):
    channel = grpc.insecure_channel(addr, options=[("grpc.max_receive_message_length", 2 * BIG)])
    call = lambda kind, name: getattr(channel, kind)(f"/{SERVICE}/{name}")
    reply, rpc = call("unary_unary", "Unary").with_call(b"hello", metadata=(("tag", "x1"),), timeout=20)
    assert reply == b"olleh"
    assert dict(rpc.initial_metadata())["seen"] == "x1" and dict(rpc.trailing_metadata())["size"] == "5"
    big = bytes(range(256)) * (BIG // 256)
    assert call("unary_unary", "Unary")(big, timeout=60) == big[::-1]
    assert list(call("unary_stream", "Out")(b"500", timeout=20)) == [b"%d" % n for n in range(500)]
    assert call("stream_unary", "In")(iter([b"x" * 1000] * 300), timeout=20) == b"300000"
    # Each answer is waited for before the next message is sent.
    turn = threading.Semaphore(1)

    def messages():
        for n in range(50):
            turn.acquire()
            yield b"m%d" % n

    got = []
    for r in call("stream_stream", "Both")(messages(), timeout=20):
        got.append(r)
        turn.release()
    assert got == [b"M%d" % n for n in range(50)]
    for request, timeout, code in ((b"fail", 20, grpc.StatusCode.FAILED_PRECONDITION),
                                   (b"sleep", 0.5, grpc.StatusCode.DEADLINE_EXCEEDED)):
        try:
            call("unary_unary", "Unary")(request, timeout=timeout)
            raise AssertionError("no error")
        except grpc.RpcError as e:
            assert e.code() == code, e
            if request == b"fail":
                assert e.details() == "no" and dict(e.trailing_metadata())["why"] == "told-to"
    pending = [call("unary_unary", "Unary").future(b"%d" % n, timeout=30) for n in range(200)]
    assert [p.result() for p in pending] == [(b"%d" % n)[::-1] for n in range(200)]
    print("all good", flush=True)


if __name__ == "__main__":
    {"serve": serve, "client": client}[sys.argv[1]](sys.argv[2])
