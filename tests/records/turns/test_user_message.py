"""The message of a user: its identity, and its form in the log."""

from __future__ import annotations

import json

from tertulia import Source
from tertulia.records.turns.user_message import UserMessage

ANA = Source("telegram", "42", user_id="42")


def test_dedupe_key_is_none_without_message_id() -> None:
    assert UserMessage(ANA, "hello", None, ()).dedupe_key is None
    assert UserMessage(ANA, "hello", "", ()).dedupe_key is None


def test_dedupe_key_names_platform_account_chat_and_id() -> None:
    message = UserMessage(ANA, "hello", "981", ())
    assert message.dedupe_key == UserMessage(ANA, "edited", "981", ()).dedupe_key
    others = [
        UserMessage(Source("discord", "42", user_id="42"), "hello", "981", ()),
        UserMessage(Source("telegram", "42", user_id="42", account="b"), "hello", "981", ()),
        UserMessage(Source("telegram", "43", user_id="42"), "hello", "981", ()),
        UserMessage(ANA, "hello", "982", ()),
    ]
    keys = {message.dedupe_key, *(other.dedupe_key for other in others)}
    assert len(keys) == 5


def test_dedupe_keys_differ_where_parts_contain_the_separator() -> None:
    first = UserMessage(Source("telegram", "a:b"), "hello", "c", ())
    second = UserMessage(Source("telegram", "a"), "hello", "b:c", ())
    assert first.dedupe_key != second.dedupe_key


def test_message_without_text_and_media_is_silent_and_has_no_draft() -> None:
    message = UserMessage(ANA, None, "981", ())
    assert message.is_silent
    assert message.drafts() == []
    assert not UserMessage(ANA, "", None, ()).is_silent


def test_draft_holds_text_media_and_message_id() -> None:
    (item,) = UserMessage(ANA, None, "981", [{"type": "image"}]).drafts()
    assert item.role == "user"
    assert json.loads(item.body) == {
        "role": "user",
        "content": "",
        "media": [{"type": "image"}],
        "message_id": "981",
    }
