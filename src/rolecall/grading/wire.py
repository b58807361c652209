"""Messages between a pool and its workers: a length, then bytes, over a socket with a deadline.

Towards a worker the bytes are a pickle (tasks hold any metadata); from a worker, which has read hostile answers, they
are JSON.
"""

from __future__ import annotations

import socket
import struct
import time

_HEADER = struct.Struct("!Q")
MAX_REPLY_BYTES = 1 << 20


class WorkerGone(Exception):
    """The other side closed the socket, or sent something that is no message."""


def send(sock: socket.socket, payload: bytes, timeout_s: float | None = None) -> None:
    """Send one message; `TimeoutError` when the other side does not take it in time."""
    try:
        sock.settimeout(timeout_s)
        sock.sendall(_HEADER.pack(len(payload)) + payload)
    except TimeoutError:
        raise
    except OSError as error:
        raise WorkerGone(str(error)) from error


def receive(sock: socket.socket, timeout_s: float | None = None, max_bytes: int | None = None) -> bytes:
    """Receive one message; `TimeoutError` when it is not whole in time."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _HEADER.unpack(_exactly(sock, _HEADER.size, deadline))
    if max_bytes is not None and length > max_bytes:
        raise WorkerGone(f"a message of {length} bytes; at most {max_bytes} are read")
    return _exactly(sock, length, deadline)


def _exactly(sock: socket.socket, count: int, deadline: float | None) -> bytes:
    chunks: list[bytes] = []
    while count:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("deadline passed")
        try:
            sock.settimeout(left)
            chunk = sock.recv(min(count, 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise WorkerGone(str(error)) from error
        if not chunk:
            raise WorkerGone("the socket was closed")
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)
