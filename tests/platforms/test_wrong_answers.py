"""Answers of a server in which one value is wrong or missing: every adapter, every operation.

What a server answers is first recorded, then given back with each value spoiled in turn. Whatever
is asked for, it succeeds or fails with an error of ours: any other exception would be a bug, which
ends listening or makes a delivery fail without a reason.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from tertulia.core.buttons import Button
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import Error
from tertulia.platforms.base import Adapter, Incoming, MenuEntry, Outgoing, StreamUpdate, Update
from tests.platforms.incoming_scenes import SCENES, IncomingScene, spoiled
from tests.platforms.test_error_texts import CHATS
from tests.servers.scripted_http import Fault, Request, Response

pytestmark = pytest.mark.check

PLATFORMS = ("telegram", "discord", "slack", "whatsapp", "signal", "matrix")
VALUES: tuple[Any, ...] = (None, "x", [])
# Listening asks for updates again and again; the table of incoming faults spoils those.
UPDATES = ("getUpdates", "sync", "events")
# What reads an answer as another one does, which is enough.
SAME = {"send": {"buttons", "replace", "person"}, "identify": {"menu", "show"}}
# What the homeserver of these tests cannot do; a real one can, in `tests/matrix`.
UNFIT = {"matrix": ("file", "show", "fetch")}
PERSONS = {"discord": "@100", "slack": "U1"}

Work = Callable[[Adapter], Awaitable[Any]]
Kind = Literal["began", "typing", "draft", "ended"]


async def listen_for_a_moment(adapter: Adapter) -> None:
    """Listen until it works or has a problem; raise what ends it."""

    async def receive(update: Update) -> None:
        return

    listening = asyncio.create_task(adapter.listen(receive))
    async with asyncio.timeout(30):
        # An adapter has no other way to tell.
        while not (listening.done() or adapter.state.problem or adapter.state.listening):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    listening.cancel()
    await asyncio.wait([listening])
    if not listening.cancelled():
        listening.result()


def works_of(platform: str, file: Media) -> Mapping[str, Work]:
    """Return all that an adapter can do, by name."""
    chat = CHATS[platform]

    def send(**fields: Any) -> Work:
        message = Outgoing(**{"delivery": "d", "chat_id": chat, "text": "hola", **fields})
        return lambda adapter: adapter.send(message)

    async def fetch(adapter: Adapter) -> None:
        async for _ in adapter.fetch(file):
            pass

    async def show(adapter: Adapter) -> None:
        source = Source(platform, chat, user_id="42")
        kinds: list[Kind] = ["began", "typing", "draft", "draft", "ended"]
        for number, kind in enumerate(kinds):
            update = StreamUpdate(
                kind=kind, turn="t", text="h" * number, message_id="1", is_retry=kind == "began"
            )
            await adapter.show(source, update)
            await asyncio.sleep(0)

    works: dict[str, Work] = {
        "listen": listen_for_a_moment,
        "identify": lambda adapter: adapter.identify(),
        "menu": lambda adapter: adapter.fill_menu((MenuEntry("new", "Begin anew"),)),
        "send": send(),
        "buttons": send(buttons=(Button("Yes", "1"),)),
        "file": send(media=Media(type="image/png", name="a.png"), content=b"\x89PNG"),
        "replace": send(replaces="1"),
        "person": send(chat_id=PERSONS.get(platform, chat)),
        "show": show,
        "fetch": fetch,
    }
    return {name: work for name, work in works.items() if name not in UNFIT.get(platform, ())}


class AnswerRecorder:
    """Keeps what a server answers to each operation, and for which work it was asked."""

    def __init__(self, scene: IncomingScene) -> None:
        self.answers: dict[str, Any] = {}
        self.works: dict[str, set[str]] = {}
        self.work = ""
        self._respond = scene.server.respond
        scene.server.respond = self._record  # type: ignore[method-assign]

    async def _record(self, request: Request) -> Response:
        response = await self._respond(request)
        try:
            answer = json.loads(response.body)
        except ValueError:
            return response
        self.answers.setdefault(request.operation, answer)
        self.works.setdefault(request.operation, set()).add(self.work)
        return response


@asynccontextmanager
async def new_adapter(scene: IncomingScene) -> AsyncIterator[Adapter]:
    adapter = scene.new_adapter()
    try:
        yield adapter
    finally:
        await adapter.close()


async def file_of_a_message(scene: IncomingScene) -> Media:
    """Return a file that a person sent, as the adapter names it."""
    fields = scene.file(b"\x89PNG\r\n\x1a\n and more", "image/png")
    if scene.name == "whatsapp":  # it calls the gateway, which does not run here
        return Media(source=fields["image"]["id"])
    files: list[Media] = []

    async def receive(update: Update) -> None:
        if isinstance(update, Incoming):
            files.extend(update.media)

    async with new_adapter(scene) as adapter, asyncio.timeout(60):
        listening = asyncio.create_task(adapter.listen(receive))
        while not adapter.state.listening:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.to_thread(scene.send, scene.update("see", **fields))
        while not files:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.wait([listening])
    return files[0]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_wrong_value_in_an_answer_is_no_bug(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bugs: dict[tuple[str, str, str], object] = {}

    async def run(scene: IncomingScene) -> int:
        works, tries = works_of(platform, await file_of_a_message(scene)), 0
        recorder = AnswerRecorder(scene)
        for recorder.work, work in works.items():
            async with new_adapter(scene) as adapter:
                try:
                    await work(adapter)
                except Error as problem:
                    assert recorder.work in ("replace", "show"), problem  # noqa: PT017
        for operation, answer in list(recorder.answers.items()):
            names = recorder.works[operation] - ({"listen"} if operation in UPDATES else set())
            for name in SAME.keys() & names:
                names -= SAME[name]
            for wrong in (None, 5, "x", [], {}, *spoiled(answer, VALUES)):
                for name in names:
                    tries += 1
                    scene.server.mend()
                    body = json.dumps(wrong).encode()
                    scene.server.spoil(operation, Fault(200, body, times=3))
                    async with new_adapter(scene) as adapter:
                        try:
                            await works[name](adapter)
                        except Error:
                            pass
                        except Exception as bug:  # noqa: BLE001 # what this test looks for
                            bugs[operation, name, repr(bug)] = wrong
        scene.server.mend()
        return tries

    scene = SCENES[platform]()
    scene.server.__enter__()
    try:
        scene.shorten(monkeypatch)
        tries = asyncio.run(run(scene))
    finally:
        scene.server.__exit__()
    assert tries > 100
    assert bugs == {}
