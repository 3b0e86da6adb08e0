"""Events of Slack, read without any server."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.media import Media
from tertulia.platforms.base import MALFORMED, Changed, Incoming
from tertulia.platforms.slack.event_reader import (
    BotIdentity,
    SlackEventReader,
    chat_of,
    chat_type_of,
    is_for,
    kind_of,
    read_identity,
)

OWN = BotIdentity(user_id="UBOT", team_id="T1", name="tertulia", bot_id="B1")
READER = SlackEventReader(OWN, "work", ["new", "help"])
MESSAGE_ITEM = {"type": "message", "channel": "C1", "ts": "1.5"}


def event(**fields: Any) -> dict[str, Any]:
    message = {"type": "message", "channel": "C1", "user": "UANA", "ts": "1.5", "text": "hola"}
    return {"event": {**message, **fields}}


def read(**fields: Any) -> Incoming:
    update = READER.read(event(**fields))
    assert isinstance(update, Incoming)
    return update


def test_message_becomes_a_source_and_a_text() -> None:
    message = read(thread_ts="1.1")
    source = message.source
    assert (source.platform, source.account, source.chat_id) == ("slack", "work", "C1")
    assert (source.chat_type, source.thread_id, source.user_id) == ("channel", "1.1", "UANA")
    assert (message.text, message.message_id) == ("hola", "1.5")
    assert not message.is_addressed


@pytest.mark.parametrize(
    ("fields", "is_addressed"),
    [
        ({"channel": "D1"}, True),
        ({"text": "hey <@UBOT>"}, True),
        ({"text": "hey <@UBOT|tertulia>"}, True),
        ({"text": "hey <@UBOT2>"}, False),
        ({"text": "hey &lt;@UBOT&gt;"}, False),
        ({"type": "app_mention"}, True),
        ({"thread_ts": "1.1", "parent_user_id": "UBOT"}, True),
        ({"thread_ts": "1.1", "parent_user_id": "UBEN"}, False),
        ({"channel": "G1"}, False),
    ],
)
def test_addressed(fields: dict[str, Any], is_addressed: bool) -> None:
    assert read(**fields).is_addressed is is_addressed


def test_chat_type_depends_on_the_id_alone() -> None:
    """A mention comes without `channel_type`: one conversation must not become two."""
    for kind in ("channel", "group", "im", None):
        assert read(channel_type=kind).source.chat_type == "channel"
    assert [chat_type_of(channel) for channel in ("D1", "G1", "C1")] == ["dm", "group", "channel"]


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "UBOT"},
        {"bot_id": "B1"},
        {"subtype": "channel_join"},
        {"subtype": "message_replied"},
        {"text": ""},
        {"type": "team_join"},
        {"subtype": "message_changed", "message": {"user": "UBOT", "ts": "1", "text": "x"}},
        {"subtype": "message_deleted", "deleted_ts": "1", "previous_message": {"bot_id": "B1"}},
        {"type": "reaction_added", "user": "UBOT", "item": MESSAGE_ITEM},
        {"type": "reaction_added", "item": {**MESSAGE_ITEM, "type": "file"}},
    ],
)
def test_nothing_to_do(fields: dict[str, Any]) -> None:
    assert READER.read(event(**fields)) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"bot_id": "B2"},
        {"subtype": "bot_message", "user": None, "bot_id": "B2", "username": "Robot"},
        {"subtype": "bot_message", "user": None, "username": "Webhook"},
        {"user": "USLACKBOT"},
    ],
)
def test_other_programs(fields: dict[str, Any]) -> None:
    message = read(**fields)
    assert message.is_bot
    assert message.source.user_id in ("UANA", "B2", None, "USLACKBOT")


def test_person_is_no_program() -> None:
    assert not read().is_bot


def test_person_is_not_taken_for_an_app_without_a_bot_id() -> None:
    """Neither of the two has one: that makes them not the same."""
    reader = SlackEventReader(BotIdentity(user_id="UBOT", team_id="T1"), "work")
    assert isinstance(reader.read(event()), Incoming)
    assert reader.read(event(user="UBOT")) is None


@pytest.mark.parametrize("subtype", ["thread_broadcast", "me_message"])
def test_message_of_a_person_in_another_form_is_read(subtype: str) -> None:
    """Sent to the channel as well, or written with /me: an unread message is a lost one."""
    assert read(subtype=subtype).text == "hola"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!new", "/new"),
        ("!New title", "/New title"),
        ("!important", "!important"),
        ("<@UBOT> /new", "/new"),
        ("<@UBOT>: /frobnicate", "/frobnicate"),
        ("<@UBOT> !help", "/help"),
        ("<@UBOT> hello /new", "@tertulia hello /new"),
        ("a !new", "a !new"),
        ("!", "!"),
        ("!new a &amp; b", "/new a & b"),
    ],
)
def test_commands(text: str, expected: str) -> None:
    assert read(text=text).text == expected


def test_files() -> None:
    hosted = {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 5,
              "url_private_download": "https://files.slack.com/a"}  # fmt: skip
    external = {
        "id": "F2",
        "name": "doc",
        "mode": "external",
        "url_private": "https://docs.example",
    }
    linked = {"id": "F5", "is_external": True, "url_private": "https://docs.example"}
    gone = {"id": "F3", "mode": "tombstone"}
    hidden = {"id": "F6", "mode": "hidden_by_limit", "url_private": "https://files.slack.com/b"}
    shared = {"id": "F4", "file_access": "check_file_info"}
    files = [hosted, external, linked, gone, hidden, shared]
    message = read(text="", subtype="file_share", files=files)
    assert message.text is None
    assert message.media[0] == Media(
        type="image/png", name="a.png", size=5, source="https://files.slack.com/a"
    )
    assert [file.source for file in message.media[1:]] == [None] * 4 + ["F4"]
    assert all(file.problem for file in message.media[1:5])


@pytest.mark.parametrize("size", [None, True, "5", [5]])
def test_size_that_is_no_number_is_unknown(size: object) -> None:
    (file,) = read(files=[{"id": "F1", "size": size}]).media
    assert file.size is None


def test_edit_that_takes_a_file_away_is_a_change() -> None:
    before = {"user": "UANA", "ts": "1.5", "text": "x", "files": [{"id": "F1"}]}
    message = {**before, "files": []}
    update = READER.read(event(subtype="message_changed", message=message, previous_message=before))
    assert isinstance(update, Changed)
    assert (update.kind, update.media) == ("edited", ())


def test_text_of_attachments_counts_if_there_is_no_other() -> None:
    attachments = [{"text": "shared &lt;this&gt;"}, {"fallback": "and that"}]
    assert read(text="", attachments=attachments).text == "shared <this>\nand that"


def test_edit_into_a_tombstone_is_a_deletion() -> None:
    message = {"subtype": "tombstone", "ts": "1.5", "user": "USLACKBOT", "text": "deleted"}
    previous = {"user": "UANA", "ts": "1.5", "text": "x"}
    update = READER.read(
        event(subtype="message_changed", message=message, previous_message=previous)
    )
    assert isinstance(update, Changed)
    assert (update.kind, update.message_id, update.source.user_id) == ("deleted", "1.5", "UANA")


def test_event_is_for_the_installation_that_it_names() -> None:
    elsewhere = BotIdentity(user_id="UBOT", team_id="T2")
    everywhere = BotIdentity(user_id="UBOT", team_id="T3", enterprise_id="E1")
    payload = {"team_id": "T1", "authorizations": [{"team_id": "T1", "enterprise_id": "E1"}]}
    assert is_for(payload, OWN)
    assert not is_for(payload, elsewhere)
    assert is_for(payload, everywhere)
    assert is_for({}, OWN)
    assert not is_for({"team_id": "T1", "authorizations": 5}, elsewhere)
    # In a channel that two workspaces share, the author's workspace is not the app's.
    assert is_for({"team_id": "T1", "event": {"team": "T9"}}, OWN)
    assert is_for({"team_id": "T9", "authorizations": [{"team_id": "T1"}]}, OWN)


@pytest.mark.parametrize(
    "fields", [{"ts": None}, {"ts": 5}, {"ts": ""}, {"channel": None}, {"channel": ""}]
)
def test_message_without_an_id_is_malformed(fields: dict[str, Any]) -> None:
    """Two of them would be one message for the store."""
    with pytest.raises(MALFORMED):
        READER.read(event(**fields))


def test_chat_and_kind_of_an_event() -> None:
    assert chat_of(event()) == "C1"
    assert chat_of({"event": {"item": {"channel": "C2"}}}) == "C2"
    assert [chat_of(payload) for payload in ({}, {"event": 5}, {"event": {"channel": 5}})] == [
        None
    ] * 3
    assert kind_of(event()) == "message"
    assert kind_of({"event": {"type": "secret text!"}}) == "unknown"


def test_identity_of_an_organisation() -> None:
    answer = {"user_id": "U1", "team_id": "T1", "enterprise_id": "E1", "user": "bot"}
    assert read_identity(answer).enterprise_id is None
    assert read_identity({**answer, "is_enterprise_install": True}).enterprise_id == "E1"
    with pytest.raises(KeyError):
        read_identity({"ok": True})
