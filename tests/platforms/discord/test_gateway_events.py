"""Events of Discord's gateway as messages and changes."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.media import Media
from tertulia.platforms.discord import gateway_events
from tertulia.platforms.discord.gateway_events import Channel, ChatContext, DiscordBot

BOT = DiscordBot("900", "Tertulia", "901")
GENERAL = Channel(id="1000", type=0, name="general", topic="all of it", guild_id="100")
THREAD = Channel(id="2000", type=11, name="a thread", parent_id="1000", guild_id="100")
ANA = {"id": "42", "username": "ana", "global_name": "Ana"}


def context(channel: Channel = GENERAL, **fields: Any) -> ChatContext:
    return ChatContext(account="", channel=channel, commands=frozenset({"new"}), **fields)


def message(content: Any = "hola", **fields: Any) -> dict[str, Any]:
    return {"id": "7", "channel_id": "1000", "author": ANA, "content": content, **fields}


def test_thread_is_part_of_its_channel() -> None:
    source = gateway_events.read_source(message(), context(THREAD, parent=GENERAL))
    assert (source.chat_id, source.thread_id, source.chat_name) == ("1000", "2000", "general")
    assert (source.chat_type, source.chat_topic) == ("group", "all of it")


def test_chat_with_a_person_is_private_and_a_group_of_people_is_not() -> None:
    for kind, chat_type in ((gateway_events.DM, "dm"), (gateway_events.GROUP_DM, "group")):
        source = gateway_events.read_source(message(), context(Channel(id="5", type=kind)))
        assert (source.chat_type, source.chat_id, source.user_name) == (chat_type, "5", "Ana")


def test_name_in_the_server_comes_first() -> None:
    source = gateway_events.read_source(message(member={"nick": "Anita"}), context())
    assert source.user_name == "Anita"


@pytest.mark.parametrize(
    ("fields", "is_addressed"),
    [
        ({}, False),
        ({"mentions": [{"id": "900"}]}, True),
        ({"mentions": [{"id": "1"}, 5]}, False),
        ({"mention_roles": ["77"]}, True),
        ({"mention_roles": ["78"]}, False),
        ({"referenced_message": {"author": {"id": "900"}}}, True),
        ({"referenced_message": None}, False),
    ],
)
def test_message_is_addressed(fields: dict[str, Any], is_addressed: bool) -> None:
    where = context(roles=frozenset({"77"}))
    incoming = gateway_events.read_message(message(**fields), BOT, where)
    assert incoming is not None
    assert incoming.is_addressed is is_addressed


def test_programs_are_marked_and_own_messages_known() -> None:
    for fields in ({"author": {**ANA, "bot": True}}, {"webhook_id": "5"}):
        incoming = gateway_events.read_message(message(**fields), BOT, context())
        assert incoming is not None
        assert incoming.is_bot
    assert gateway_events.is_own(message(author={"id": "900"}), BOT)
    assert gateway_events.is_own(message(webhook_id="901"), BOT)  # the answer to a command
    assert not gateway_events.is_own(message(webhook_id="5"), BOT)


def test_reply_is_named_and_a_forward_is_not_one() -> None:
    reference = {"message_reference": {"message_id": "6"}}
    reply = gateway_events.read_message(message(type=19, **reference), BOT, context())
    forward = gateway_events.read_message(message(type=0, **reference), BOT, context())
    assert reply is not None
    assert forward is not None
    assert (reply.reply_to, forward.reply_to) == ("6", None)


def test_files_are_named_by_their_place() -> None:
    file = {"id": "8", "filename": "a.png", "content_type": "image/png", "size": 3, "url": "u?hm=x"}
    forwarded = {"message": {"attachments": [{"id": "9"}]}}
    sent = message(attachments=[file], message_snapshots=[forwarded])
    incoming = gateway_events.read_message(sent, BOT, context())
    assert incoming is not None
    assert incoming.media == (
        Media(type="image/png", name="a.png", size=3, source="1000/7/8"),
        Media(source="1000/7/9"),
    )
    assert gateway_events.file_url(sent, "8") == "u?hm=x"
    assert gateway_events.file_url(sent, "1") is None


def test_edit_has_its_text_and_a_preview_is_none() -> None:
    edited = message("after", edited_timestamp="2026-01-01T00:00:00Z", attachments=[])
    change = gateway_events.read_edit(edited, BOT, context())
    assert change is not None
    assert (change.kind, change.text, change.media) == ("edited", "after", ())
    assert gateway_events.read_edit(message(embeds=[{}]), BOT, context()) is None


def test_command_of_the_menu_is_a_message() -> None:
    interaction = {
        "id": "9", "type": 2, "member": {"user": ANA},
        "data": {"name": "new", "options": [{"value": "a title"}, {"name": "x"}]},
    }  # fmt: skip
    incoming = gateway_events.read_command(interaction, context())
    assert incoming is not None
    assert (incoming.text, incoming.message_id) == ("/new a title", "9")
    assert gateway_events.read_command({**interaction, "type": 3}, context()) is None


@pytest.mark.parametrize(
    "data",
    [
        message(author=None), message(author={"id": 5}), message(content=7), message(id="x"),
        message(attachments=[{}]), message(mentions=5),
    ],
)  # fmt: skip
def test_malformed_message_raises_what_the_listener_expects(data: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        gateway_events.read_message(data, BOT, context())


def test_id_of_a_time_is_smaller_than_those_after_it() -> None:
    assert gateway_events.snowflake(0) == 0
    assert gateway_events.snowflake(1_420_070_400) == 0
    assert gateway_events.snowflake(1_420_070_401) == 1000 << 22


def test_press_of_a_button_and_of_nothing_else() -> None:
    interaction = {
        "id": "8", "type": 3, "member": {"user": ANA, "nick": "Anita"},
        "data": {"component_type": 2, "custom_id": "no:1"},
    }  # fmt: skip
    press = gateway_events.read_press(interaction, context(THREAD, parent=GENERAL))
    assert press is not None
    assert (press.value, press.press_id) == ("no:1", "8")
    assert (press.source.user_id, press.source.thread_id) == ("42", "2000")
    menu = {**interaction, "data": {"component_type": 3, "custom_id": "x"}}
    for other in (menu, {**interaction, "type": 2}, {**interaction, "data": None}):
        assert gateway_events.read_press(other, context()) is None
