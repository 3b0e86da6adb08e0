"""Envelopes of signal-cli as messages and changes."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.platforms.base import Changed, Incoming
from tertulia.platforms.signal.envelopes import OwnAccount, is_person, read_envelope

OWN_UUID = "00000000-0000-4000-8000-000000000001"
ANA_UUID = "00000000-0000-4000-8000-000000000042"
ANA = {"sourceUuid": ANA_UUID, "sourceNumber": "+15550142", "sourceName": "Ana", "timestamp": 7}
GROUP: dict[str, Any] = {"groupInfo": {"groupId": "group=", "groupName": "Ops"}}


def own() -> OwnAccount:
    return OwnAccount(number="+15550100", uuid=OWN_UUID)


def read(envelope: Any = None, sent: tuple[str, ...] = (), **fields: Any) -> Any:
    return read_envelope({**ANA, **(envelope or {}), **fields}, own(), sent)


def incoming(text: str = "hola", sent: tuple[str, ...] = (), **fields: Any) -> Incoming:
    message = {"timestamp": 7, "message": text, **fields}
    update = read(dataMessage=message, sent=sent)
    assert isinstance(update, Incoming)
    return update


def test_person_is_the_uuid_whether_the_number_is_shown_or_not() -> None:
    shown = incoming()
    hidden = read(dataMessage={"timestamp": 7, "message": "hola"}, sourceNumber=None)
    assert shown.source.chat_id == hidden.source.chat_id == ANA_UUID
    assert shown.source.participant == hidden.source.participant == ANA_UUID
    assert (shown.source.user_id, hidden.source.user_id) == ("+15550142", ANA_UUID)
    assert shown.message_id == f"{ANA_UUID}:7"


def test_group_is_a_chat_of_its_own() -> None:
    message = incoming(**GROUP)
    source = message.source
    assert (source.chat_id, source.chat_type, source.chat_name) == ("group=", "group", "Ops")
    assert not message.is_addressed


@pytest.mark.parametrize(
    "fields",
    [
        {"mentions": [{"uuid": OWN_UUID, "start": 0, "length": 1, "name": "T"}]},
        {"mentions": [{"number": "+15550100", "start": 0, "length": 1}]},
        {"quote": {"id": 5, "authorUuid": OWN_UUID}},
        {"quote": {"id": 5, "authorNumber": "+15550100"}},
        {"quote": {"id": 99, "authorUuid": "somebody"}},  # a message that the account has sent
    ],
)
def test_message_in_a_group_is_addressed(fields: dict[str, Any]) -> None:
    assert incoming("\ufffc hola", sent=("99",), **GROUP, **fields).is_addressed


def test_mentions_stand_in_the_text_by_name() -> None:
    mentions = [
        {"uuid": "x", "name": "Bo", "start": 3, "length": 1},
        {"number": "+1", "start": 6, "length": 1},
    ]
    # The first character takes two units of UTF-16.
    assert incoming("👋 \ufffc, \ufffc!", mentions=mentions).text == "👋 @Bo, @+1!"


def test_command_after_a_mention_of_the_account_is_read() -> None:
    mention = {"uuid": OWN_UUID, "start": 0, "length": 1, "name": "Tertulia"}
    assert incoming("\ufffc /new", mentions=[mention]).text == "/new"
    assert incoming("\ufffc hola", mentions=[mention]).text == "@Tertulia hola"


def test_reply_sticker_and_files() -> None:
    assert incoming(quote={"id": 5, "authorUuid": "x"}).reply_to == "x:5"
    assert incoming("", sticker={"emoji": "🎉"}).text == "(sticker: 🎉)"
    file = {"id": "a.png", "contentType": "image/png", "filename": "b.png", "size": 3}
    (media,) = incoming("", attachments=[file]).media
    assert (media.type, media.name, media.source) == ("image/png", "b.png", f"{ANA_UUID}#a.png")
    (media,) = incoming("", attachments=[file], **GROUP).media
    assert media.source == "group=#a.png"


def test_edit_deletion_and_reaction_are_changes() -> None:
    message = {"timestamp": 9, "message": "after"}
    changes = [
        read(editMessage={"targetSentTimestamp": 7, "dataMessage": message}),
        read(dataMessage={"remoteDelete": {"timestamp": 7}}),
        read(dataMessage={"reaction": {"emoji": "👍", "targetAuthorUuid": "x",
                                       "targetSentTimestamp": 5}}),
        read(dataMessage={"reaction": {"emoji": "👍", "targetAuthorNumber": "+1", "isRemove": True,
                                       "targetSentTimestamp": 5}}),
    ]  # fmt: skip
    assert all(isinstance(change, Changed) for change in changes)
    assert [(change.kind, change.message_id, change.text) for change in changes] == [
        ("edited", f"{ANA_UUID}:7", "after"),
        ("deleted", f"{ANA_UUID}:7", None),
        ("reacted", "x:5", "👍"),
        ("reacted", "+1:5", ""),
    ]


@pytest.mark.parametrize(
    "envelope",
    [
        {"sourceUuid": OWN_UUID, "dataMessage": {"timestamp": 7, "message": "own"}},
        {"sourceNumber": "+15550100", "dataMessage": {"timestamp": 7, "message": "own"}},
        {"syncMessage": {"sentMessage": {"message": "of our other device"}}},
        {"receiptMessage": {}}, {"typingMessage": {}}, {"callMessage": {}},
        {"dataMessage": {"timestamp": 7, "message": ""}},
    ],
)  # fmt: skip
def test_what_is_no_message_of_a_person_is_left_out(envelope: dict[str, Any]) -> None:
    assert read(envelope) is None


@pytest.mark.parametrize(
    "message",
    [
        {"message": 5, "timestamp": 7}, {"message": "a", "timestamp": "x"},
        {"message": "a", "timestamp": -1}, {"message": "a", "timestamp": True},
        {"message": "a", "timestamp": 7, "groupInfo": {}},
        {"message": "a", "timestamp": 7, "mentions": [{}]},
        {"message": "a", "timestamp": 7, "quote": {"id": None}},
        {"message": "a", "timestamp": 7, "attachments": [{}]}, {"reaction": {}},
    ],
)  # fmt: skip
def test_malformed_envelope_raises_what_the_listener_expects(message: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        read(dataMessage=message)


def test_chat_with_a_person_is_told_from_a_group() -> None:
    assert all(is_person(chat) for chat in (ANA_UUID, "+15550142", "u:ana.01"))
    assert not is_person("group=")
