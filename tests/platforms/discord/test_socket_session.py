"""A connection to Discord's gateway that ends while something is sent through it."""

from __future__ import annotations

import asyncio

import pytest
from wsproto.utilities import LocalProtocolError

from tertulia.platforms.discord.socket_session import ConnectionEnded, SocketSession


class _ClosingSocket:
    """A socket that the library closes, because a message was too large."""

    async def send_text(self, text: str) -> None:
        raise LocalProtocolError("cannot be sent in state LOCAL_CLOSING")


def test_heartbeat_on_a_closing_connection_ends_it() -> None:
    session = SocketSession(_ClosingSocket(), on_frame=lambda: None)
    with pytest.raises(ConnectionEnded) as caught:
        asyncio.run(session.beat(0.0))
    assert caught.value.is_resumable
