"""Files come into the store before the turn; one that does not come costs nothing but itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tertulia import Media, PlatformUnavailable, Refused
from tertulia.gateway import media_fetcher
from tertulia.platforms.base import Outgoing
from tertulia.platforms.settings import PlatformSettings
from tests.gateway.running_gateway import ANA, App, Echo, rules, running_gateway

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 1000
SMALL = rules(platforms={"telegram": PlatformSettings(admission="everyone", max_file_mb=0.01)})


class Files(App):
    """A platform with files, by their source."""

    endless_bytes = 0

    async def fetch(self, media: Media) -> AsyncGenerator[bytes, None]:
        match media.source:
            case "gone":
                raise Refused("It is gone.")
            case "away":
                raise PlatformUnavailable("Not now.")
            case "bug":
                raise KeyError("a bug")
            case "hang":
                await asyncio.Event().wait()
            case "endless":
                while True:
                    self.endless_bytes += 1000
                    yield b"x" * 1000
        yield PNG[:500]
        yield PNG[500:]


def test_file_is_stored_and_named_in_the_transcript(where: str) -> None:
    async def play() -> None:
        app = Files()
        async with running_gateway(where, Echo(), apps=[app]) as node:
            photo = Media(type="image/jpeg", name="../a.jpg", source="file-1")
            await node.say("Look!", media=(photo,))
            session = await node.session()
            (first, _) = await node.store.transcript(session.id).load()
            (stored,) = first["media"]
            assert (stored["type"], stored["name"]) == ("image/png", "a.jpg")
            assert stored["source"] == "file-1"
            assert await node.store.media.get(stored["hash"]) == PNG

    asyncio.run(play())


@pytest.mark.parametrize(
    ("source", "size", "problem"),
    [
        ("gone", None, "no longer there"),
        ("away", None, "could not be fetched"),
        ("bug", None, "could not be fetched"),
        ("hang", None, "could not be fetched"),
        ("endless", None, "larger than 0.01 MB"),
        ("file-1", 50_000, "larger than 0.01 MB"),
    ],
)
def test_file_that_does_not_come_is_told_and_the_turn_goes_on(
    where: str, source: str, size: int | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_fetcher, "_FETCH_SECONDS", 60 if source == "endless" else 0.5)

    async def play() -> None:
        app, agent = Files(), Echo()
        async with running_gateway(where, agent, apps=[app], rules=SMALL) as node:
            file = Media(name="film.mp4", size=size, source=source)
            said = await node.say("Look!", media=(file,))
            assert said[-1] == "re Look!"
            assert any("film.mp4" in text and problem in text for text in said)
            assert problem in str(agent.histories[0][-1]["content"])  # the agent is told too
            assert app.endless_bytes <= 20_000

    asyncio.run(play())


def test_outgoing_file_is_sent_with_its_bytes(where: str) -> None:
    async def play() -> None:
        async with running_gateway(where, Echo()) as node:
            media = await node.store.media.put(PNG, name="a.png")
            await node.store.outbox.put("Here.", "origin", origin=ANA, media=media)
            await node.quiet()
            (sent,) = node.app.sent
            assert (sent.text, sent.content) == ("Here.", PNG)
            assert sent.media is not None
            assert sent.media.name == "a.png"

    asyncio.run(play())


def test_outgoing_file_that_is_too_large_is_told(where: str) -> None:
    async def play() -> None:
        sent: list[Outgoing] = []
        async with running_gateway(where, Echo(), rules=SMALL) as node:
            media = await node.store.media.put(b"x" * 20_000, name="big.txt")
            await node.store.outbox.put("Here.", "origin", origin=ANA, media=media)
            await node.quiet()
            assert node.app.to(ANA) == ["I could not send the file big.txt: it is too large."]
            assert sent == []
            states = [one.state for one in (await node.store.outbox.find()).items]
            assert states == ["dead", "sent"]

    asyncio.run(play())
