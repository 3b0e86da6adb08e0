"""Names of people and channels, which are asked for beside the events."""

from __future__ import annotations

import pytest

from tertulia.platforms.slack import names
from tests.platforms.slack.slack_scene import (
    Listener,
    play,
)
from tests.servers.scripted_http import Fault
from tests.servers.slack import (
    BOT,
    SlackServer,
    refusal,
)


def test_names_that_cannot_be_asked_delay_nothing(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_WAIT_SECONDS", 0.05)
    server.spoil("users.info", Fault(end="never", times=None))
    server.spoil("conversations.info", refusal("missing_scope", times=None))

    async def act(listener: Listener) -> None:
        for number in range(5):
            server.write("C1", f"<@{BOT}> m{number}")
        await listener.settled()

    listener = play(server, act)
    assert {message.source.user_name for message in listener.messages} == {None}
    assert all(event.sends == 1 for event in server.events)
    assert server.count("users.info") == 1  # nobody is asked for twice at a time
    assert server.count("conversations.info") == 1  # nor again after a refusal


def test_name_is_asked_for_once_and_few_are_kept(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name for each message would use up the calls that the answers need."""
    monkeypatch.setattr(names, "_MAX_NAMES", 2)

    async def act(listener: Listener) -> None:
        for user in ("UANA", "UANA", "UBEN", "UCAT", "UDAN"):
            server.write("D1", "hola", user=user)
            await listener.settled()

    listener = play(server, act)
    assert [message.source.user_name for message in listener.messages] == [
        f"Name of {user}" for user in ("UANA", "UANA", "UBEN", "UCAT", "UDAN")
    ]
    assert server.count("users.info") == 4
    assert len(listener.adapter._names._names) == 2


def test_id_that_cannot_be_sent_has_no_name(server: SlackServer) -> None:
    async def act(listener: Listener) -> None:
        for _ in range(2):
            server.write("D1", "hola", user="\ud800")
            await listener.settled()

    listener = play(server, act)
    assert [message.source.user_name for message in listener.messages] == [None, None]
    assert listener.adapter._names._names[("users.info", "\ud800")][0] is None
