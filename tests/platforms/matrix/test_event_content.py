"""The content of events that are sent."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.spans import FormattedText, Span
from tertulia.platforms.matrix import event_content
from tertulia.platforms.matrix.event_content import transaction_id

ROOM = "!room:example.org"


def test_text_has_html_only_if_formatted_and_pings_nobody() -> None:
    plain = event_content.text_content(FormattedText("hi @room @ana"))
    assert plain["body"] == "hi @room @ana"
    assert plain["m.mentions"] == {}
    assert "formatted_body" not in plain
    bold = event_content.text_content(FormattedText("a <b>", (Span("bold", 0, 1),)))
    assert bold["format"] == "org.matrix.custom.html"
    assert bold["formatted_body"] == "<strong>a</strong> &lt;b&gt;"


def test_edit_repeats_the_whole_content_once() -> None:
    content = event_content.text_content(FormattedText("x" * 1000)) | event_content.relation(
        "$root", None
    )
    edit = event_content.edit_content(content, "$0")
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$0"}
    assert edit["m.new_content"]["body"] == "x" * 1000
    assert "m.relates_to" not in edit["m.new_content"]
    assert len(edit["body"]) < 300
    assert edit["m.mentions"] == {}


def test_relation_names_thread_and_reply() -> None:
    assert event_content.relation(None, None) == {}
    assert event_content.relation(None, "$1") == {
        "m.relates_to": {"m.in_reply_to": {"event_id": "$1"}}
    }
    thread = event_content.relation("$root", None)["m.relates_to"]
    assert thread == {
        "rel_type": "m.thread", "event_id": "$root", "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$root"},
    }  # fmt: skip
    reply = event_content.relation("$root", "$1")["m.relates_to"]
    assert (reply["is_falling_back"], reply["m.in_reply_to"]) == (False, {"event_id": "$1"})


@given(st.text(st.characters(codec="utf-8") | st.sampled_from('&<>"*_`\n'), max_size=300))
def test_parts_fit_into_an_event_also_as_edits(source: str) -> None:
    for part in event_content.format_text(source * 200):
        content = event_content.text_content(part)
        edit = event_content.edit_content(content, "$" + "x" * 43)
        # Canonical JSON, in which a homeserver counts; signatures and references need 4 KiB.
        assert len(json.dumps(edit, ensure_ascii=False).encode()) < 65_536 - 4_096


def test_transaction_is_the_same_in_every_process() -> None:
    parts = ("d1", ROOM, None, {"b": 1, "a": [2]})
    assert transaction_id(*parts) == transaction_id("d1", ROOM, None, {"a": [2], "b": 1})
    assert transaction_id("d1", ROOM) != transaction_id("d1", "!other:example.org")
    assert transaction_id("\ud800").isalnum()
