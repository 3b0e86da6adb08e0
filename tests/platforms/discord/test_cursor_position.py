"""The position in Discord's stream: read from any cursor, moved by messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.platforms.discord.cursor_position import Position


@given(
    st.builds(
        Position,
        session=st.none() | st.text(max_size=5),
        url=st.none() | st.text(max_size=5),
        seq=st.integers(0, 2**60),
        latest=st.integers(0, 2**63),
        dms=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    )
)
def test_cursor_is_read_as_it_was_written(position: Position) -> None:
    assert Position.read(position.cursor) == position


@pytest.mark.parametrize("cursor", [None, "", "17", "[]", '{"seq": "x"}', '{"latest": 1', "\ud83d"])
def test_cursor_of_another_form_is_no_position(cursor: str | None) -> None:
    assert Position.read(cursor) == Position()


def test_session_needs_its_address() -> None:
    assert Position(session="a", url="wss://b", seq=3).is_resumable
    assert not Position(session="a").is_resumable
    ended = Position(session="a", url="wss://b", seq=3, latest=7, dms=("1",)).without_session()
    assert ended == Position(latest=7, dms=("1",))


def test_latest_message_only_grows() -> None:
    position = Position().after_message(10, None).after_message(7, None)
    assert position.latest == 10


def test_private_chats_are_remembered_by_their_last_message() -> None:
    position = Position()
    for chat in ("1", "2", "1", "1", "3"):
        position = position.after_message(5, chat)
    assert position.dms == ("2", "1", "3")
    for number in range(150):
        position = position.after_message(5, f"chat {number}")
    assert len(position.dms) == 100
    assert position.dms[-1] == "chat 149"
