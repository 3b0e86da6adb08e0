"""Which deliveries of a chat stand between the messages of its page, and in which order."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from tertulia.console.chat_notes import choose_notes, merge_notes, show_notes
from tertulia.console.transcript_entries import TranscriptItem
from tertulia.records.queues.outbox import CLOSES, Delivery

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def delivery(number: int, key: str, session_id: str | None = None, **fields: Any) -> Delivery:
    """Return a delivery that was put in so many minutes after noon."""
    values: dict[str, Any] = {
        "id": number, "delivery": key, "session_id": session_id, "target": "origin",
        "platform": "web", "account": "root", "chat_id": "console", "thread_id": None,
        "body": {"text": key}, "state": "sent", "created_at": NOON + timedelta(minutes=number),
    }  # fmt: skip
    return Delivery(**(values | fields))


def show(deliveries: list[Delivery]) -> list[TranscriptItem]:
    return asyncio.run(show_notes(deliveries))


def chosen(*oldest_first: Delivery, since: datetime | None = None) -> list[str]:
    notes = choose_notes(oldest_first[::-1], "s", since=since)
    return [each.delivery for each in notes]


def test_only_what_is_in_no_transcript_is_a_note() -> None:
    assert chosen(
        delivery(1, "0a", "s"),  # an answer
        delivery(2, "0b"),  # what a program has sent
        delivery(3, "api:root:x"),
        delivery(4, "command:1", "s"),
        delivery(5, "schedule:7", "other"),
        delivery(6, "schedule:8:told"),
        delivery(7, "process:1:end", "s"),
        delivery(8, "process:2:end"),  # there was no session to record it in
        delivery(9, "failure:9", "s"),
        delivery(10, "0c", "s"),
    ) == ["0b", "api:root:x", "command:1", "process:2:end", "failure:9"]


def test_what_was_not_sent_as_a_message_is_no_note() -> None:
    body = {"text": "It was approved.", CLOSES: "approval:1"}
    blank = {"text": " \n"}
    assert chosen(
        delivery(1, "0a", state="dead"),
        delivery(2, "closed:1", body=body),
        delivery(3, "0b", body=blank),
    ) == []  # fmt: skip


def test_file_without_a_caption_is_shown_by_its_name() -> None:
    media = {"hash": "0" * 64, "name": "plan <b>.pdf", "type": "application/pdf", "size": 3}
    sent = delivery(1, "api:root:1", body={"text": "", "media": media})
    assert chosen(sent) == ["api:root:1"]
    (note,) = show([sent])
    (block,) = note.blocks
    assert (block.kind, block.label, block.href) == ("file", "plan <b>.pdf (application/pdf)", "")


def test_notes_of_an_earlier_session_are_left_out() -> None:
    assert chosen(
        delivery(1, "0a"),
        delivery(2, "0b", "earlier"),
        delivery(3, "0c"),
        delivery(4, "failure:4", "earlier"),
        delivery(5, "command:new", "s"),
        delivery(6, "0d", "s"),
    ) == ["0c", "command:new"]


def test_question_to_the_owner_about_another_session_is_shown() -> None:
    question = delivery(1, "approval:7F3K", "of a schedule")
    assert chosen(question, delivery(2, "0a", "s")) == ["approval:7F3K"]


def test_notes_of_a_session_that_has_ended_are_left_out() -> None:
    newest = [delivery(2, "command:help"), delivery(1, "failure:1", "earlier")]
    assert [each.delivery for each in choose_notes(newest, None, since=None)] == ["command:help"]


def test_notes_before_the_messages_on_the_page_are_left_out() -> None:
    notes = [delivery(1, "0a"), delivery(2, "0b")]
    assert chosen(*notes, since=NOON + timedelta(minutes=2)) == ["0b"]


def test_order_within_messages_and_notes_survives_a_clock_that_jumps() -> None:
    early, late, back = show([delivery(n, f"0{n}") for n in (1, 3, 2)])
    (note,) = show([delivery(2, "command:1")])
    assert [each.text for each in merge_notes([early, late, back], [note])] == [
        "01", "command:1", "03", "02",
    ]  # fmt: skip


def test_text_of_a_note_is_no_markup() -> None:
    text = "**bold <b>** <script>"
    (note,) = show([delivery(1, "command:1", body={"text": text})])
    (block,) = note.blocks
    assert block.html == ('<p class="plain"><strong>bold &lt;b&gt;</strong> &lt;script&gt;</p>')
