"""Events of rooms: what becomes of each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.media import Media
from tertulia.platforms.base import Changed, Incoming, Update
from tertulia.platforms.matrix.room_events import EventReader, Room

ME = "@agent:example.org"
ANA = "@ana:example.org"
ROOM = "!room:example.org"


def reader() -> EventReader:
    own = EventReader("", ME)
    own.display_name = "Clever Agent"
    own.commands = frozenset({"new", "help"})
    return own


def room(joined: int | None = 2, **changes: Any) -> Room:
    known = Room()
    known.count({"m.joined_member_count": joined})
    known.apply(member(ANA, "join", "Ana"))
    for name, value in changes.items():
        setattr(known, name, value)
    return known


def member(user_id: str, membership: str, name: str = "", **unsigned: Any) -> dict[str, Any]:
    content = {"membership": membership, "displayname": name}
    return event(content, "m.room.member", state_key=user_id, unsigned=unsigned)


def event(content: Any, kind: str = "m.room.message", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "event_id": "$1", "sender": ANA, "content": content, **fields}


def text(body: str, **content: Any) -> dict[str, Any]:
    return event({"msgtype": "m.text", "body": body, **content})


def read(value: dict[str, Any], where: Room | None = None) -> Update | None:
    return reader().read(value, ROOM, where or room())


def read_message(value: dict[str, Any], where: Room | None = None) -> Incoming:
    update = read(value, where)
    assert isinstance(update, Incoming)
    return update


# -- messages


def test_message_becomes_source_and_text() -> None:
    message = read_message(text("hola"), room(name="Home", topic="Talk"))
    source = message.source
    assert (source.platform, source.chat_id, source.chat_type) == ("matrix", ROOM, "dm")
    assert (source.user_id, source.user_name) == (ANA, "Ana")
    assert (source.chat_name, source.chat_topic, source.thread_id) == ("Home", "Talk", None)
    assert (message.text, message.message_id, message.is_addressed) == ("hola", "$1", True)


@pytest.mark.parametrize(
    ("joined", "changes", "chat_type"),
    [
        (2, {}, "dm"),
        (3, {}, "group"),
        (2, {"invited": 1}, "group"),
        (2, {"is_public": True}, "group"),
        (None, {}, "group"),
    ],
)
def test_room_is_private_only_with_one_person(
    joined: int | None, changes: dict[str, Any], chat_type: str
) -> None:
    assert read_message(text("hola"), room(joined, **changes)).source.chat_type == chat_type


@pytest.mark.parametrize(
    ("body", "content", "is_addressed"),
    [
        ("hello all", {}, False),
        ("hello all", {"m.mentions": {"user_ids": [ME]}}, True),
        ("hello all", {"m.mentions": {"user_ids": [ANA]}}, False),
        ("hello all", {"m.mentions": {"room": True}}, False),
        ("Clever agent, what is it?", {"m.mentions": {}}, True),
        (f"{ME} what is it?", {}, True),
        ("@agent: what is it?", {}, True),
        ("@agents of change", {}, False),
        ("my agent is clever", {}, False),
        ("mail me@agent", {}, False),
    ],
)
def test_message_in_a_group_is_addressed_by_a_mention(
    body: str, content: dict[str, Any], is_addressed: bool
) -> None:
    assert read_message(text(body, **content), room(5)).is_addressed is is_addressed


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ("/new", "/new"),
        ("!new", "/new"),
        ("!help me\nplease", "/help me\nplease"),
        ("@agent: !new", "/new"),
        ("Clever Agent /new", "/new"),
        ("!wow", "!wow"),
        ("so !new", "so !new"),
        ("@agent: hello", "@agent: hello"),
    ],
)
def test_command_may_begin_with_an_exclamation_mark_or_our_name(body: str, command: str) -> None:
    assert read_message(text(body)).text == command


def test_reply_has_its_id_and_no_quoted_lines() -> None:
    body = "> <@ana:example.org> one\n> two\n>\n> three\n\n> mine\nfour"
    message = read_message(text(body, **{"m.relates_to": {"m.in_reply_to": {"event_id": "$0"}}}))
    assert (message.text, message.reply_to) == ("> mine\nfour", "$0")
    assert read_message(text(body)).text == body  # without a reply it is the person's own quote


def test_thread_is_part_of_the_source() -> None:
    thread = {"rel_type": "m.thread", "event_id": "$root", "m.in_reply_to": {"event_id": "$0"}}
    message = read_message(text("x", **{"m.relates_to": thread}))
    assert (message.source.thread_id, message.reply_to) == ("$root", "$0")
    fallback = {**thread, "is_falling_back": True}
    message = read_message(text("x", **{"m.relates_to": fallback}))
    assert (message.source.thread_id, message.reply_to) == ("$root", None)


def test_programs_are_marked_and_own_messages_dropped() -> None:
    assert read_message(event({"msgtype": "m.notice", "body": "x"})).is_bot
    assert read_message(text("x", **{"tertulia.agent": {}})).is_bot
    assert not read_message(text("x")).is_bot
    assert read({**text("x"), "sender": ME}) is None


@pytest.mark.parametrize(
    ("content", "kind", "words", "media"),
    [
        ({"msgtype": "m.image", "body": "a.png", "url": "mxc://x/1"}, "m.room.message", None,
         Media(name="a.png", source="mxc://x/1")),
        ({"msgtype": "m.file", "body": "see", "filename": "a.pdf", "url": "mxc://x/1",
          "info": {"mimetype": "application/pdf", "size": 7}}, "m.room.message", "see",
         Media(name="a.pdf", source="mxc://x/1", type="application/pdf", size=7)),
        ({"msgtype": "m.audio", "body": "v", "filename": "v", "url": "mxc://x/1",
          "info": {"size": -1}}, "m.room.message", None, Media(name="v", source="mxc://x/1")),
        ({"body": "a cat", "url": "mxc://x/1"}, "m.sticker", "a cat",
         Media(name="a cat", source="mxc://x/1")),
        ({"msgtype": "m.video", "body": "v.mp4", "url": 7, "info": "x"}, "m.room.message", None,
         Media(name="v.mp4")),
    ],
)  # fmt: skip
def test_file_becomes_media(
    content: dict[str, Any], kind: str, words: str | None, media: Media
) -> None:
    message = read_message(event(content, kind))
    assert (message.text, message.media) == (words, (media,))


# -- changes


def test_edit_deletion_and_reaction_are_changes() -> None:
    new = {"msgtype": "m.text", "body": "better"}
    replaces = {"rel_type": "m.replace", "event_id": "$0"}
    edit = read(text("* better", **{"m.new_content": new, "m.relates_to": replaces}))
    assert isinstance(edit, Changed)
    assert (edit.kind, edit.message_id, edit.text) == ("edited", "$0", "better")
    assert edit.source.user_id == ANA

    for redaction in (event({}, "m.room.redaction", redacts="$0"),
                      event({"redacts": "$0"}, "m.room.redaction")):  # fmt: skip
        deletion = read(redaction)
        assert isinstance(deletion, Changed)
        assert (deletion.kind, deletion.message_id) == ("deleted", "$0")

    annotation = {"rel_type": "m.annotation", "event_id": "$0", "key": "👍"}
    reaction = read(event({"m.relates_to": annotation}, "m.reaction"))
    assert isinstance(reaction, Changed)
    assert (reaction.kind, reaction.message_id, reaction.text) == ("reacted", "$0", "👍")


# -- events that nobody expects

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["m.text", "m.image", "m.replace", "m.thread", ANA, ME, "$0", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["body", "msgtype", "rel_type", "event_id", "m.in_reply_to", "info", "size",
                         "url", "filename", "m.mentions", "user_ids", "m.new_content", "key",
                         "m.relates_to", "redacts", "membership", "displayname", "name"]),
        inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
_TYPES = st.sampled_from(
    ["m.room.message", "m.sticker", "m.reaction", "m.room.redaction", "m.room.member",
     "m.room.name", "m.room.topic", "m.room.join_rules", "m.poll.start"]
)  # fmt: skip


@given(_TYPES, _VALUES, st.dictionaries(st.sampled_from(["sender", "event_id", "redacts",
       "state_key", "unsigned", "type"]), _VALUES, max_size=3))  # fmt: skip
def test_odd_events_are_read_or_skipped(kind: str, content: Any, fields: dict[str, Any]) -> None:
    value = {**event(content, kind), **fields}
    where = room(3)
    where.apply(value)
    update = reader().read(value, ROOM, where)
    assert update is None or isinstance(update, Incoming | Changed)


def test_event_without_its_parts_is_skipped() -> None:
    assert read({}) is None
    assert read(event({}, "m.room.message")) is None
    assert read(event({"msgtype": "m.key.verification.request", "body": "x"})) is None
    assert read(event("no object")) is None
    assert read({**text("x"), "state_key": ""}) is None
