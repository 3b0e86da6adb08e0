"""Texts that were delivered to a chat and are in no transcript, as entries between its messages.

They are replies to commands, questions, failures, and what a program has sent with
`POST /deliveries`. They are in the outbox, so a page that is loaded later shows them too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
from markupsafe import Markup

from tertulia.console.environment import zone
from tertulia.console.markdown_html import bold_html, render_texts
from tertulia.console.transcript_entries import EntryBlock, TranscriptItem, file_block
from tertulia.records.queues.outbox import CLOSES, Delivery

_NAME: Final = "Tertulia"
_ROLE: Final = "note"
# Questions about the turns of others, which are asked in the home of the owner, and their ends.
_FOR_OWNER: Final = ("approval:", "declined:")


def choose_notes(
    newest: Sequence[Delivery], session_id: str | None, *, since: datetime | None
) -> list[Delivery]:
    """Return those of a chat's `newest` deliveries that a page shows, oldest first.

    Left out are those about another session, all before an answer in another session, and all
    before the time `since`, at which the messages on the page begin.
    """
    notes: list[Delivery] = []
    for delivery in newest:
        if is_in_transcript(delivery):
            if ":" not in delivery.delivery and delivery.session_id != session_id:
                break
        elif since is not None and delivery.created_at is not None and delivery.created_at < since:
            break
        elif _is_about(delivery, session_id) and _is_shown(delivery):
            notes.append(delivery)
    return notes[::-1]


def _is_about(delivery: Delivery, session_id: str | None) -> bool:
    """Return whether a note belongs to a session, to none, or asks the owner about another one."""
    return delivery.session_id in (None, session_id) or delivery.delivery.startswith(_FOR_OWNER)


def _is_shown(delivery: Delivery) -> bool:
    """Return whether a delivery is a message: it has content, and was not refused."""
    body = delivery.body
    has_content = bool(body["text"].strip() or body.get("media"))
    return has_content and delivery.state != "dead" and CLOSES not in body


def is_in_transcript(delivery: Delivery) -> bool:
    """Return whether the text of a delivery is in a transcript too.

    The keys of the gateway's own deliveries begin with their kind. What a schedule has produced is
    recorded, and news of a program if it had a session, as answers have.
    """
    kind, colon, _ = delivery.delivery.partition(":")
    if not colon or kind == "process":
        return delivery.session_id is not None
    return kind == "schedule"


async def show_notes(deliveries: Sequence[Delivery]) -> list[TranscriptItem]:
    """Return deliveries as entries. Their ids are negative: those of messages are not."""
    markdown = [each.body["text"] for each in deliveries if _is_of_program(each)]
    rendered = iter(await render_texts(markdown))
    return [
        _note(each, next(rendered) if _is_of_program(each) else bold_html(each.body["text"]))
        for each in deliveries
    ]


def merge_notes(
    entries: Sequence[TranscriptItem], notes: Sequence[TranscriptItem]
) -> list[TranscriptItem]:
    """Return messages and notes by time; each of both stays in its own order."""
    return list(_set_days(heapq.merge(entries, notes, key=lambda entry: entry.at)))


def _is_of_program(delivery: Delivery) -> bool:
    """Return whether a program has put the text in: it is Markdown then, as an answer is."""
    return ":" not in delivery.delivery or delivery.delivery.startswith("api:")


def _note(delivery: Delivery, html: Markup) -> TranscriptItem:
    assert delivery.created_at is not None  # every stored one has a time
    blocks = [EntryBlock(kind="words", html=html)] if delivery.body["text"].strip() else []
    if media := delivery.body.get("media"):
        blocks.append(file_block(media))
    return TranscriptItem(
        id=-delivery.id, turn=0, role=_ROLE, side="note", name=_NAME, kind=None,
        at=delivery.created_at, day=None, blocks=tuple(blocks), text=delivery.body["text"],
        is_cut=False,
    )  # fmt: skip


def _set_days(entries: Iterable[TranscriptItem]) -> Iterator[TranscriptItem]:
    """Yield entries, the first one of each day with that day."""
    last_day = None
    for entry in entries:
        day = entry.at.astimezone(zone()).date()
        yield msgspec.structs.replace(entry, day=None if day == last_day else day)
        last_day = day
