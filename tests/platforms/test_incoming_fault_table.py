"""Every fault of a server against every adapter that receives, as one table, in a real gateway.

After each fault the next message is stored and answered once, and so is each message of the fault
that can be understood. One bad update never stops the queue.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import httpx2
import msgspec
import pytest

from tertulia.agents.base import Event, Request, Step
from tertulia.gateway import retries
from tertulia.gateway.settings import GatewaySettings
from tertulia.records.queues.inbox import InboxState
from tests.gateway.running_gateway import OPEN
from tests.http.served_gateway import served_gateway
from tests.platforms.incoming_scenes import SCENES, SHORT, IncomingScene, spoiled

pytestmark = pytest.mark.check

PATIENCE = 60.0
MEGABYTE = 2**20
_MARK = re.compile(r"m\d+z")
_numbers = itertools.count(1)


class ShortEcho:
    """Answers with the mark in a message, however long the message is."""

    name = "short echo"

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        mark = _MARK.search(request.text)
        yield Step(f"re {mark[0]}" if mark else "re")

    async def close(self) -> None:
        return


class PlayedScene(NamedTuple):
    """A scene whose adapter listens in a gateway, and the errors that it logged."""

    scene: IncomingScene
    bugs: list[str]
    count_stored: Callable[[], int]

    def message(self, more: str = "", **fields: object) -> tuple[str, object]:
        """Return the mark of a new message, and its update."""
        mark = f"m{next(_numbers)}z"
        return mark, self.scene.update(f"{mark}{more}", **fields)

    def write(self, more: str = "", **fields: object) -> str:
        """Send a new message; return its mark."""
        mark, update = self.message(more, **fields)
        self.scene.send(update)
        return mark

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            time.sleep(0.01)  # the server is in another thread

    def wait_answered(self, mark: str) -> None:
        self.wait(lambda: self.count(mark) > 0, f"the answer to {mark}")

    def wait_deaf(self) -> None:
        def is_deaf() -> bool:
            state = self.scene.adapter.state
            return not state.listening and state.problem is not None

        self.wait(is_deaf, "it says that it does not listen")

    def wait_listening(self) -> None:
        self.wait(lambda: self.scene.adapter.state.listening, "it listens")

    def count(self, mark: str) -> int:
        return sum(mark in text for text in self.scene.texts)


Fault = Callable[[PlayedScene], list[str]]
"""Plays a fault; returns the marks of the messages that have to be answered."""


def send_twice(played: PlayedScene) -> list[str]:
    mark, update = played.message()
    played.scene.send(update)
    played.scene.send(update)
    played.wait_answered(mark)
    played.scene.send(update)
    return [mark]


def send_out_of_order(played: PlayedScene) -> list[str]:
    (first, before), (second, after) = played.message(), played.message()
    played.scene.send(after, before)
    return [first, second]


def send_batch(played: PlayedScene) -> list[str]:
    messages = [played.message() for _ in range(5)]
    played.scene.send(*(update for _, update in messages))
    return [mark for mark, _ in messages]


def send_broken(played: PlayedScene) -> list[str]:
    played.scene.send_broken()
    return []


def send_wrong_values(played: PlayedScene) -> list[str]:
    _, update = played.message()
    for wrong in spoiled(update):
        played.scene.send(wrong)
    return []


def send_huge_text(played: PlayedScene) -> list[str]:
    played.write("x" * 15 * MEGABYTE)  # beyond the limit of a message, which the person is told
    return []


def send_huge_update(played: PlayedScene) -> list[str]:
    return [played.write(padding="x" * 16 * MEGABYTE)]


def send_lone_surrogate(played: PlayedScene) -> list[str]:
    return [played.write(" \ud83d lone")]


def go_silent(played: PlayedScene) -> list[str]:
    played.scene.silence()
    if type(played.scene).speak is not IncomingScene.speak:
        played.wait_deaf()
    played.scene.speak()
    return [played.write()]


def close_connections(played: PlayedScene) -> list[str]:
    before = played.write()
    played.scene.close(None)
    return [before, played.write()]


def close_with_codes(played: PlayedScene) -> list[str]:
    marks = []
    for code in played.scene.close_codes:
        marks.append(played.write())
        played.scene.close(code)
        marks.append(played.write())
        played.wait_answered(marks[-1])
    return marks


def refuse_handshake(played: PlayedScene) -> list[str]:
    played.scene.refuse_handshake()
    if played.scene.name != "whatsapp":  # it goes on listening, because WhatsApp calls us
        played.wait_deaf()
    played.scene.allow_handshake()
    return [played.write()]


def move_server(played: PlayedScene) -> list[str]:
    before = played.write()
    played.wait_answered(before)
    played.scene.move()
    return [before, played.write()]


def revoke_token(played: PlayedScene) -> list[str]:
    played.scene.revoke()
    played.wait_deaf()
    mark = played.write()
    played.scene.restore()
    return [mark]


def send_expired_file(played: PlayedScene) -> list[str]:
    mark, update = played.message(**played.scene.file(b"\x89PNG\r\n\x1a\n", "image/png"))
    played.scene.expire_files()
    played.scene.send(update)
    return [mark]


def send_file_of_another_type(played: PlayedScene) -> list[str]:
    return [
        played.write(**played.scene.file(b"%PDF-1.7 and no more of it", "image/png")),
        played.write(**played.scene.file(b"<html><script>alert(1)</script>", "image/png")),
        played.write(**played.scene.file(b"", "image/png")),
    ]


def send_endless_file(played: PlayedScene) -> list[str]:
    return [played.write(**played.scene.file(None, "image/png"))]


TABLE: dict[str, Fault] = {
    "twice": send_twice,
    "out of order": send_out_of_order,
    "in a batch": send_batch,
    "malformed or of an unknown kind": send_broken,
    "any wrong value": send_wrong_values,
    "16 MiB of text": send_huge_text,
    "16 MiB around a text": send_huge_update,
    "lone surrogate": send_lone_surrogate,
    "silent": go_silent,
    "closed": close_connections,
    "closed with any code": close_with_codes,
    "handshake refused": refuse_handshake,
    "moved": move_server,
    "token revoked": revoke_token,
    "expired file": send_expired_file,
    "file of another type": send_file_of_another_type,
    "endless file": send_endless_file,
}


class _BugCollector(logging.Handler):
    """Collects what the gateway logs with a traceback: errors that no adapter may have."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.bugs.append(f"{record.getMessage()} {record.exc_info}")


@pytest.fixture(scope="module", params=list(SCENES))
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlayedScene]:
    """A gateway with one account for all faults of a platform."""
    collector = _BugCollector()
    logger = logging.getLogger("tertulia")
    logger.addHandler(collector)
    path: Path = tmp_path_factory.mktemp(request.param)
    scene_type = SCENES[request.param]
    small_files = msgspec.structs.replace(OPEN, max_file_mb=1.0)
    rules = GatewaySettings(
        gather_seconds=0, waiting_per_person=10_000, drain_seconds=2,
        platforms={scene_type.name: small_files},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, scene_type() as scene:
        patch.setattr(retries, "ACCOUNT_BACKOFF", SHORT)
        patch.setattr(retries, "LISTEN_BACKOFF", SHORT)
        scene.shorten(patch)
        with served_gateway(
            path / "talk.db", agent=ShortEcho(), adapters=[scene.adapter], rules=rules
        ) as gateway:
            scene.connect(gateway.url)

            def count_stored() -> int:
                with gateway.store() as store:
                    states = get_args(InboxState)
                    return sum(store.inbox.count(state, limit=1000) for state in states)

            played = PlayedScene(scene, collector.bugs, count_stored)
            played.wait_listening()
            yield played
            scene.finish()
            with gateway.store() as store:
                assert store.check() == []
    logger.removeHandler(collector)


@pytest.mark.parametrize("name", list(TABLE))
def test_message_after_a_fault_is_answered_once(played: PlayedScene, name: str) -> None:
    if name in played.scene.unfit:
        pytest.skip(played.scene.unfit[name])
    played.bugs.clear()
    played.wait_listening()
    marks = TABLE[name](played)
    marks.append(played.write())
    for mark in marks:
        played.wait_answered(mark)
    marks.append(played.write())
    played.wait_answered(marks[-1])
    assert {mark: played.count(mark) for mark in marks} == dict.fromkeys(marks, 1)
    assert played.bugs == []


def test_update_beyond_the_limit_of_requests_is_refused(played: PlayedScene) -> None:
    """A platform that calls the gateway is told so (413); nothing of the update is stored."""
    scene = played.scene
    if not scene.adapter.needs_http:
        pytest.skip("the adapter calls the platform")
    played.bugs.clear()
    played.wait_answered(played.write())
    marks = []
    stored = played.count_stored()
    for more, padding in (("x" * 16 * MEGABYTE, ""), ("", "x" * 16 * MEGABYTE)):
        mark, update = played.message(more, padding=padding)
        body = json.dumps(update).encode()
        url, headers = scene.sign(body)
        answer = httpx2.post(url, content=body, headers=headers, timeout=PATIENCE, verify=False)
        assert answer.status_code == 413
        marks.append(mark)
    assert played.count_stored() == stored
    # As many bytes as the platform sends at most are taken.
    last = played.write(padding="x" * scene.largest_bytes)
    played.wait_answered(last)
    assert [played.count(mark) for mark in (*marks, last)] == [0, 0, 1]
    assert played.bugs == []
