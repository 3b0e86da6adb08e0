"""Updates of Telegram as messages: who wrote, where, what, and whether the bot is meant."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.keys import session_key
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.platforms.base import Changed, Incoming, Pressed
from tertulia.platforms.telegram.updates import Bot, chat_of, read_bot, read_update

BOT = Bot(7, "Tertulia_Bot", "Tertulia")
ANA = {"id": 42, "is_bot": False, "first_name": "Ana", "last_name": "Díaz", "username": "ana"}
PRIVATE = {"id": 42, "type": "private", "first_name": "Ana"}
GROUP = {"id": -100, "type": "supergroup", "title": "Garden", "is_forum": True}


def incoming(**fields: Any) -> Incoming:
    message = {"message_id": 5, "date": 1, "from": ANA, "chat": PRIVATE, **fields}
    update = read_update({"update_id": 1, "message": message}, BOT, "work")
    assert isinstance(update, Incoming)
    return update


def nothing(**fields: Any) -> bool:
    message = {"message_id": 5, "date": 1, "from": ANA, "chat": PRIVATE, **fields}
    return read_update({"update_id": 1, "message": message}, BOT, "") is None


def entity(kind: str, offset: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


def test_private_message_is_a_dm() -> None:
    message = incoming(text="hola")
    assert (message.text, message.message_id, message.is_addressed) == ("hola", "5", True)
    source = message.source
    assert (source.chat_type, source.chat_id, source.user_id) == ("dm", "42", "42")
    assert (source.user_name, source.account, source.thread_id) == ("Ana Díaz", "work", None)


@pytest.mark.parametrize(
    ("kind", "chat_type"),
    [("group", "group"), ("supergroup", "group"), ("channel", "channel"), ("private", "dm")],
)
def test_chat_types(kind: str, chat_type: str) -> None:
    source = incoming(text="hola", chat={"id": -100, "type": kind, "title": "Garden"}).source
    assert (source.chat_type, source.chat_name) == (chat_type, "Garden")


def test_thread_is_that_of_a_topic_only() -> None:
    in_topic = incoming(text="a", chat=GROUP, message_thread_id=9, is_topic_message=True)
    in_general = incoming(text="a", chat=GROUP, message_thread_id=1, is_topic_message=True)
    reply = incoming(text="a", chat=GROUP, message_thread_id=77)
    private = incoming(text="a", message_thread_id=9, is_topic_message=True)
    threads = [m.source.thread_id for m in (in_topic, in_general, reply, private)]
    assert threads == ["9", None, None, "9"]
    keys = {session_key(m.source) for m in (in_topic, in_general, private)}
    assert len(keys) == 3
    assert session_key(in_general.source) == session_key(reply.source)


TOPIC = {"message_id": 9, "from": {"id": 7}, "chat": GROUP, "forum_topic_created": {"name": "x"}}
OURS = {"message_id": 3, "from": {"id": 7, "is_bot": True}, "chat": GROUP, "text": "yes"}


@pytest.mark.parametrize(
    ("fields", "is_addressed"),
    [
        ({"text": "hola"}, False),
        ({"text": "hola @tertulia_BOT", "entities": [entity("mention", 5, 13)]}, True),
        ({"text": "👩‍👩‍👧 @tertulia_bot", "entities": [entity("mention", 9, 13)]}, True),
        ({"text": "hola @tertulia_bot"}, False),  # Telegram saw no mention, for example in code
        ({"text": "hola @tertulia_bot2", "entities": [entity("mention", 5, 14)]}, False),
        ({"text": "Ter", "entities": [entity("text_mention", 0, 3, user={"id": 7})]}, True),
        ({"text": "Ter", "entities": [entity("text_mention", 0, 3, user={"id": 8})]}, False),
        ({"text": "/new@Tertulia_bot", "entities": [entity("bot_command", 0, 17)]}, True),
        ({"text": "/new", "entities": [entity("bot_command", 0, 4)]}, False),
        ({"caption": "@tertulia_bot", "caption_entities": [entity("mention", 0, 13)],
          "photo": [{"file_id": "a"}]}, True),
        ({"text": "and you?", "reply_to_message": OURS}, True),
        ({"text": "in a topic", "reply_to_message": TOPIC}, False),
        ({"text": "and you?", "reply_to_message": {**OURS, "from": ANA}}, False),
    ],
)  # fmt: skip
def test_message_of_a_group_is_addressed(fields: dict[str, Any], is_addressed: bool) -> None:
    assert incoming(chat=GROUP, **fields).is_addressed is is_addressed


def test_reply_is_known_unless_it_is_that_of_every_topic() -> None:
    assert incoming(text="a", chat=GROUP, reply_to_message=OURS).reply_to == "3"
    assert incoming(text="a", chat=GROUP, reply_to_message=TOPIC).reply_to is None


def test_command_loses_the_name_of_the_bot_and_that_of_another_bot_is_not_ours() -> None:
    assert incoming(text="/new@tertulia_BOT a b", chat=GROUP).text == "/new a b"
    assert nothing(text="/new@another_bot", chat=GROUP)
    assert incoming(text="write to ana@robot.example", chat=GROUP).text


@pytest.mark.parametrize(
    ("fields", "media"),
    [
        ({"photo": [{"file_id": "s"}, {"file_id": "l", "file_size": 9}]},
         Media(type="image/jpeg", size=9, source="l")),
        ({"document": {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf"}},
         Media(type="application/pdf", name="a.pdf", source="d")),
        ({"voice": {"file_id": "v"}}, Media(type="audio/ogg", source="v")),
        ({"video_note": {"file_id": "n"}}, Media(type="video/mp4", source="n")),
        ({"animation": {"file_id": "a"}, "document": {"file_id": "a"}},
         Media(type="video/mp4", source="a")),
        ({"sticker": {"file_id": "k", "emoji": "👋"}}, Media(type="image/webp", source="k")),
    ],
)  # fmt: skip
def test_file_is_a_reference(fields: dict[str, Any], media: Media) -> None:
    assert incoming(**fields).media == (media,)


def test_album_is_one_group_with_its_caption() -> None:
    photo = [{"file_id": "a"}]
    first = incoming(photo=photo, caption="see", media_group_id="13")
    second = incoming(photo=photo, media_group_id="13", message_id=6)
    assert (first.group, first.text, second.group, second.text) == ("13", "see", "13", None)


def test_content_without_text_leaves_a_line() -> None:
    assert incoming(location={"latitude": 1.5, "longitude": -2}).text == "[location: 1.5, -2.0]"
    contact = {"first_name": "Bob", "phone_number": "+123"}
    assert incoming(contact=contact).text == "[contact: Bob +123]"
    assert incoming(poll={"question": "tea?"}).text == "[poll: tea?]"
    assert incoming(dice={"emoji": "🎲", "value": 4}).text == "🎲 4"


def test_service_messages_and_own_ones_are_nothing() -> None:
    assert nothing(new_chat_members=[ANA])
    assert nothing(migrate_to_chat_id=-1005)
    assert nothing(text="mine", **{"from": {"id": 7, "is_bot": True}})
    assert read_update({"update_id": 1, "poll_answer": {}}, BOT, "") is None


def test_bots_are_marked_and_anonymous_admins_are_people() -> None:
    robot = {"id": 8, "is_bot": True, "first_name": "Robot"}
    assert incoming(text="beep", chat=GROUP, **{"from": robot}).is_bot
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    admin = incoming(text="hola", chat=GROUP, sender_chat=GROUP, **{"from": anonymous})
    assert (admin.is_bot, admin.source.user_id, admin.source.user_name) == (False, "-100", "Garden")


def test_channel_post_comes_from_the_channel() -> None:
    chat = {"id": -200, "type": "channel", "title": "News"}
    post = {"message_id": 5, "chat": chat, "sender_chat": chat, "text": "read this"}
    update = read_update({"update_id": 1, "channel_post": post}, BOT, "")
    assert isinstance(update, Incoming)
    assert (update.source.user_id, update.source.chat_type) == ("-200", "channel")


def test_edit_has_the_id_of_the_message() -> None:
    edited = {"message_id": 5, "from": ANA, "chat": PRIVATE, "text": "after"}
    update = read_update({"update_id": 2, "edited_message": edited}, BOT, "")
    assert isinstance(update, Changed)
    assert (update.kind, update.message_id, update.text) == ("edited", "5", "after")


def test_stop_button_is_the_command_stop() -> None:
    stopped = {"chat": PRIVATE, "draft_id": 3}
    update = read_update({"update_id": 2, "stopped_message_generation": stopped}, BOT, "")
    assert isinstance(update, Incoming)
    assert update.text == "/stop"
    key = session_key(update.source)
    assert key == session_key(Source("telegram", "42", user_id="42"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["id", "chat", "from", "type", "text", "photo", "entities", "file_id",
                         "message_id", "sender_chat", "reply_to_message", "sticker", "offset"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(["message", "edited_message", "stopped_message_generation", "new"]), JSON)
def test_malformed_update_raises_what_is_expected(kind: str, value: Any) -> None:
    update = {"update_id": 1, kind: value}
    chat_of(update)
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        read_update(update, BOT, "")


def test_bot_is_read() -> None:
    assert read_bot({"id": 7, "username": "x_bot", "first_name": "X"}) == Bot(7, "x_bot", "X")


def test_press_is_that_of_the_person_in_the_topic_of_the_message() -> None:
    bot = {"id": BOT.id, "is_bot": True, "first_name": "Tertulia"}
    message = {
        "message_id": 9, "date": 1, "from": bot, "chat": GROUP, "message_thread_id": 7,
        "is_topic_message": True,
    }  # fmt: skip
    query = {"id": "77", "from": ANA, "message": message, "data": "no:1"}

    def read(**changes: Any) -> Any:
        return read_update({"update_id": 1, "callback_query": {**query, **changes}}, BOT, "work")

    press = read()
    assert isinstance(press, Pressed)
    assert (press.value, press.press_id) == ("no:1", "77")
    assert (press.source.user_id, press.source.chat_id, press.source.thread_id) == (
        "42",
        "-100",
        "7",
    )
    assert press.source.account == "work"
    # Of an old message the topic is not known: a reply would land in another one.
    old = {"message_id": 9, "date": 0, "chat": GROUP}
    assert read(message=old) is None
    assert read(message={**old, "chat": PRIVATE}).source.chat_id == "42"
    assert read(message=None) is None
