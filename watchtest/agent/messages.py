"""JSON messages over a local socket, by their length, and open files with them. Both ends are ours."""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any, Dict, List, Sequence, Tuple

LIMIT = 64 * 1024 * 1024
MOST_FILES = 16


def say(channel: socket.socket, words: Dict[str, Any], files: Sequence[int] = ()) -> None:
    data = json.dumps(words, separators=(",", ":")).encode("ascii")
    head = len(data).to_bytes(8, "big")
    if files:
        channel.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        channel.sendall(data)
    else:
        channel.sendall(head + data)


def hear(channel: socket.socket) -> Tuple[Dict[str, Any], List[int]]:
    """One message, and the files that came with it. EOFError when the other end is gone."""
    files = array.array("i")
    head, extras, _, _ = channel.recvmsg(8, socket.CMSG_SPACE(MOST_FILES * files.itemsize))
    for level, kind, data in extras:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    for fd in files:
        os.set_inheritable(fd, False)
    if not head:
        raise EOFError
    head += _exactly(channel, 8 - len(head))
    size = int.from_bytes(head, "big")
    if size > LIMIT:
        raise EOFError
    words = json.loads(_exactly(channel, size).decode("ascii"))
    return (words if isinstance(words, dict) else {}), list(files)


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
