"""Ports for servers that are told theirs before they start."""

from __future__ import annotations

import random
import socket
from collections import deque
from typing import Final

# Below what systems give to connections and to servers that ask for any port. In the time until the
# server starts only another test could draw the same one, out of 12,000.
_PORTS: Final = range(20_000, 32_000)
_newest: deque[int] = deque(maxlen=100)


def free_port() -> int:
    """Return a port of this machine that nobody uses, another one than at the last calls."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if port in _newest:
            continue
        _newest.append(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
