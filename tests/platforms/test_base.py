"""The adapter contract: the methods that an adapter has to write, and those it may leave out."""

from __future__ import annotations

import asyncio
import re

import pytest

from tertulia import NotFound, Source
from tertulia.platforms import base
from tertulia.platforms.base import (
    Adapter,
    HttpRequest,
    MenuEntry,
    Outgoing,
    Receive,
    StreamUpdate,
)


class Minimal(Adapter):
    """An adapter with nothing but the required methods."""

    name = "minimal"

    async def listen(self, receive: Receive) -> None:
        return

    async def send(self, message: Outgoing) -> None:
        return


def test_listen_and_send_are_required() -> None:
    assert Adapter.__abstractmethods__ == {"listen", "send"}
    with pytest.raises(TypeError):
        Adapter()  # type: ignore[abstract]


def test_the_other_methods_are_optional() -> None:
    async def play() -> None:
        adapter = Minimal()
        await adapter.show(Source("minimal", "1"), StreamUpdate(kind="delta", turn="1", text="a"))
        await adapter.fill_menu((MenuEntry("new", "start a new conversation"),))
        await adapter.close()

    asyncio.run(play())


def test_requests_are_refused_unless_the_adapter_takes_them() -> None:
    assert not Minimal().needs_http
    with pytest.raises(NotFound, match="minimal takes no requests"):
        asyncio.run(Minimal().respond(HttpRequest(method="POST", headers={})))


def test_delivery_is_not_repeated_unless_the_adapter_promises_it() -> None:
    assert Minimal().idempotent_seconds == 0


def test_promises_are_numbered_without_a_gap() -> None:
    numbers = re.findall(r"^(\d+)\. {1,2}\*\*", base.__doc__ or "", re.MULTILINE)
    assert numbers == [str(number) for number in range(1, 18)]
