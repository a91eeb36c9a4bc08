"""JSON messages between our own processes over a Unix socket, with open files attached. Blocking, length-prefixed."""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any, Dict, List, Sequence, Tuple

SIZE_LIMIT = 64 * 1024 * 1024
MAX_FILES = 16


def send(channel: socket.socket, message: Dict[str, Any], files: Sequence[int] = ()) -> None:
    data = json.dumps(message, separators=(",", ":")).encode("ascii")
    head = len(data).to_bytes(8, "big")
    if files:
        channel.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        channel.sendall(data)
    else:
        channel.sendall(head + data)


def receive(channel: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
    """Return one message and the files that came with it. Raises EOFError when the other end is gone."""
    files = array.array("i")
    head, extras, _, _ = channel.recvmsg(8, socket.CMSG_SPACE(MAX_FILES * files.itemsize))
    for level, kind, data in extras:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    for fd in files:
        os.set_inheritable(fd, False)
    if not head:
        raise EOFError
    head += _receive_exactly(channel, 8 - len(head))
    size = int.from_bytes(head, "big")
    if size > SIZE_LIMIT:
        raise EOFError
    message = json.loads(_receive_exactly(channel, size).decode("ascii"))
    return (message if isinstance(message, dict) else {}), list(files)


def _receive_exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
