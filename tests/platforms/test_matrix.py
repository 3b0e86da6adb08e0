"""Matrix without a homeserver: events, contents, errors; `tests/matrix` has the rest."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.media import Media
from tertulia.core.text.spans import FormattedText, Span
from tertulia.errors import (
    AccountProblem,
    ConfigError,
    OutcomeUnknown,
    PlatformError,
    PlatformUnavailable,
    RateLimited,
    Refused,
    TooLarge,
)
from tertulia.platforms import matrix
from tertulia.platforms.base import Changed, Incoming, MenuEntry, Update
from tertulia.platforms.definition import BuildContext
from tertulia.platforms.matrix import EventReader, MatrixAdapter, MatrixSettings, Room

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


# -- our own entry into a room


def test_messages_before_an_invitation_are_not_for_us() -> None:
    invite, early, late = member(ME, "invite"), text("early"), text("late")
    join = member(ME, "join", prev_content={"membership": "invite"})
    assert matrix._after_start([early, invite, late, join], ME) == [late, join]
    joined = member(ME, "join")
    assert matrix._after_start([early, joined, late], ME) == [late]
    renamed = member(ME, "join", prev_content={"membership": "join"})
    assert not matrix._is_join(renamed, ME)
    assert not matrix._is_join(member(ME, "join", replaces_state="$x"), ME)
    assert matrix._after_start([early, renamed, late], ME) == [early, renamed, late]
    # The invitation is too far back: what was written before we came is left out.
    assert matrix._after_start([early, join, late], ME) == [late]


# -- contents


def test_text_has_html_only_if_formatted_and_pings_nobody() -> None:
    plain = matrix.text_content(FormattedText("hi @room @ana"))
    assert plain["body"] == "hi @room @ana"
    assert plain["m.mentions"] == {}
    assert "formatted_body" not in plain
    bold = matrix.text_content(FormattedText("a <b>", (Span("bold", 0, 1),)))
    assert bold["format"] == "org.matrix.custom.html"
    assert bold["formatted_body"] == "<strong>a</strong> &lt;b&gt;"


def test_edit_repeats_the_whole_content_once() -> None:
    content = matrix.text_content(FormattedText("x" * 1000)) | matrix.relation("$root", None)
    edit = matrix.edit_content(content, "$0")
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$0"}
    assert edit["m.new_content"]["body"] == "x" * 1000
    assert "m.relates_to" not in edit["m.new_content"]
    assert len(edit["body"]) < 300
    assert edit["m.mentions"] == {}


def test_relation_names_thread_and_reply() -> None:
    assert matrix.relation(None, None) == {}
    assert matrix.relation(None, "$1") == {"m.relates_to": {"m.in_reply_to": {"event_id": "$1"}}}
    thread = matrix.relation("$root", None)["m.relates_to"]
    assert thread == {
        "rel_type": "m.thread", "event_id": "$root", "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$root"},
    }  # fmt: skip
    reply = matrix.relation("$root", "$1")["m.relates_to"]
    assert (reply["is_falling_back"], reply["m.in_reply_to"]) == (False, {"event_id": "$1"})


@given(st.text(st.characters(codec="utf-8") | st.sampled_from('&<>"*_`\n'), max_size=300))
def test_parts_fit_into_an_event_also_as_edits(source: str) -> None:
    for part in matrix.format_text(source * 200):
        content = matrix.text_content(part)
        edit = matrix.edit_content(content, "$" + "x" * 43)
        # Canonical JSON, in which a homeserver counts; signatures and references need 4 KiB.
        assert len(json.dumps(edit, ensure_ascii=False).encode()) < 65_536 - 4_096


def test_lone_surrogates_are_replaced() -> None:
    assert json.loads(matrix._encode({"body": "a\ud800b"})) == {"body": "a?b"}


def test_transaction_is_the_same_in_every_process() -> None:
    parts = ("d1", ROOM, None, {"b": 1, "a": [2]})
    assert matrix._transaction(*parts) == matrix._transaction("d1", ROOM, None, {"a": [2], "b": 1})
    assert matrix._transaction("d1", ROOM) != matrix._transaction("d1", "!other:example.org")
    assert matrix._transaction("\ud800").isalnum()


# -- errors


@pytest.mark.parametrize(
    ("status", "code", "error", "read_error"),
    [
        (429, "M_LIMIT_EXCEEDED", RateLimited, RateLimited),
        (429, "", RateLimited, RateLimited),
        (401, "M_UNKNOWN_TOKEN", AccountProblem, AccountProblem),
        (401, "M_MISSING_TOKEN", AccountProblem, AccountProblem),
        (403, "M_USER_DEACTIVATED", AccountProblem, AccountProblem),
        (403, "M_FORBIDDEN", Refused, Refused),
        (404, "M_NOT_FOUND", Refused, Refused),
        (400, "M_BAD_JSON", Refused, Refused),
        (413, "M_TOO_LARGE", TooLarge, TooLarge),
        (413, "", TooLarge, TooLarge),
        (403, "M_RESOURCE_LIMIT_EXCEEDED", PlatformUnavailable, PlatformUnavailable),
        (404, "", PlatformUnavailable, PlatformUnavailable),
        (401, "", PlatformUnavailable, PlatformUnavailable),
        (301, "", PlatformUnavailable, PlatformUnavailable),
        (500, "M_UNKNOWN", OutcomeUnknown, PlatformUnavailable),
        (502, "", OutcomeUnknown, PlatformUnavailable),
    ],
)
def test_status_and_code_decide_what_becomes_of_a_message(
    status: int, code: str, error: type[PlatformError], read_error: type[PlatformError]
) -> None:
    response, answer = httpx2.Response(status), {"errcode": code} if code else None
    assert type(matrix._error_of(response, answer, is_read=False)) is error
    assert type(matrix._error_of(response, answer, is_read=True)) is read_error


@pytest.mark.parametrize(
    ("answer", "header", "seconds"),
    [({"retry_after_ms": 2500}, "", 2.5), ({}, "7", 7.0), ({}, "soon", 1.0),
     ({"retry_after_ms": "x"}, "", 1.0), ({"retry_after_ms": 10**9}, "", 3600.0)],
)  # fmt: skip
def test_homeserver_says_how_long_to_wait(
    answer: dict[str, Any], header: str, seconds: float
) -> None:
    response = httpx2.Response(429, headers={"retry-after": header})
    assert matrix._retry_after(response, answer) == seconds


# -- settings


def settings(**changes: Any) -> MatrixSettings:
    return MatrixSettings(**{"base_url": "https://matrix.example.org", **changes})


def test_adapter_is_built_for_its_account() -> None:
    context = BuildContext(
        name="matrix", account="work", settings=settings(token_env="MATRIX_TOKEN"), folder="x",
        environ={"MATRIX_TOKEN": "secret"},
    )  # fmt: skip
    adapter = matrix.PLATFORM.build_adapter(context)
    assert adapter.account == "work"
    assert adapter.listens_alone
    assert adapter.draft_seconds is not None
    assert "secret" not in repr(adapter)


def test_base_url_needs_http() -> None:
    with pytest.raises(ConfigError) as caught:
        MatrixAdapter(settings(base_url="matrix.example.org"), "x")
    assert caught.value.field == "base_url"


def test_streaming_can_be_switched_off() -> None:
    assert MatrixAdapter(settings(stream="off"), "x").draft_seconds is None


@pytest.mark.parametrize(
    ("join", "inviter", "accepts"),
    [("invited", None, True), ("never", ANA, False), ("allowed", ANA, True),
     ("allowed", "@ben:example.org", True), ("allowed", "@x:example.org", False)],
)  # fmt: skip
def test_invitations_are_accepted_by_setting(join: Any, inviter: str | None, accepts: bool) -> None:
    options = settings(join=join, allow=(ANA,), owners=("@ben:example.org",))
    assert MatrixAdapter(options, "x")._accepts(inviter) is accepts


def test_menu_names_the_commands() -> None:
    adapter = MatrixAdapter(settings(), "x")
    asyncio.run(adapter.fill_menu((MenuEntry("new", "begin anew"),)))
    assert adapter._menu[0].name == "new"
