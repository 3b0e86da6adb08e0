"""A message leaves nothing behind that only Python's collector would find.

`tertulia run` lets the collector run rarely: garbage that holds a large file would stay for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tertulia.agents.base import Event, Request, Step
from tertulia.agents.parrot import ParrotAgent
from tertulia.core.media import Media
from tertulia.errors import AgentFailed, Refused
from tests.garbage import collected
from tests.gateway.running_gateway import App, running_gateway
from tests.records.store_inspection import without_index

MESSAGES = 20
FILE = Media(type="text/plain", name="notes.txt", source="file-1")
GONE = Media(type="text/plain", name="notes.txt", source="gone")


class FileApp(App):
    """An app whose files can be fetched, but for one."""

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        if media.source == "gone":
            raise Refused("It is gone.")
        yield b"A short text."


class FailingAgent(ParrotAgent):
    """An agent whose model is away."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        if request.text:
            raise AgentFailed("The model is away.")
        yield Step("Nothing was said.")


@pytest.mark.parametrize(
    ("text", "media", "fails"),
    [
        ("hello", (), False),
        ("call schedule {}", (), False),
        ("/status", (), False),
        ("look", (FILE,), False),
        ("look", (GONE,), False),
        ("hello", (), True),
    ],
    ids=["text", "tool", "command", "file", "lost file", "failing agent"],
)
def test_message_leaves_no_cyclic_garbage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    media: tuple[Media, ...],
    fails: bool,
) -> None:
    # pytest keeps log records, and a record keeps the error that it is about.
    monkeypatch.setattr(logging.getLogger("tertulia.gateway"), "disabled", True)

    async def play() -> dict[str, int]:
        agent = FailingAgent() if fails else ParrotAgent()
        async with running_gateway(str(tmp_path / "talk.db"), agent, apps=[FileApp()]) as node:
            without_index(node.store.sync)
            assert await node.say(text, media=media)
            with collected() as count_garbage:
                for _ in range(MESSAGES):
                    assert await node.say(text, media=media)
                garbage = count_garbage()
            return {kind: count for kind, count in garbage.items() if count >= MESSAGES}

    assert asyncio.run(play()) == {}
