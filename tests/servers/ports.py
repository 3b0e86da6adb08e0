"""Ports for servers that are told theirs before they start."""

from __future__ import annotations

import random
import socket
from typing import Final

# Below what systems give to connections and to servers that ask for any port: nobody takes one of
# these in the time until the server starts.
_PORTS: Final = range(20_000, 32_000)


def free_port() -> int:
    """Return a port of this machine that nobody uses."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
