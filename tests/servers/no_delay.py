"""Sockets of test servers that send each piece at once, as those of real servers do."""

from __future__ import annotations

import socket


def send_at_once(*sockets: socket.socket) -> None:
    """Send what is written without waiting for more.

    Without this, the second of two small packets waits up to 40 ms, until the other side confirms
    the first. asyncio does it only for TCP sockets whose protocol was named when they were made.
    """
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
