"""Ports of this machine for tests whose processes are told one before they listen on it."""

import socket
from contextlib import contextmanager


@contextmanager
def held_port():
    """Give a port that no other process gets while it is held; one that shares addresses, as torch does, may listen."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
