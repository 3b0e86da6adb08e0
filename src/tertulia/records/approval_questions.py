"""Questions for an approval in the outbox: the text with its buttons, and what it becomes later.

Buttons stand under the last part of a question. When the question is settled, by whatever answer,
a delivery behind it in the same chat replaces that part and takes the buttons away. It names the
question by its delivery key, because the platform's id of the message may not be there yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tertulia.core.buttons import Button, choose_buttons
from tertulia.core.message import ToolCall
from tertulia.core.source import Source
from tertulia.core.text.split import length
from tertulia.platforms import registry
from tertulia.records.approval_rows import Approval
from tertulia.records.queues import outbox
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros

_OUTCOMES: Final = {
    "once": "Answer: approved once.",
    "session": "Answer: approved for this session.",
    "always": "Answer: approved always.",
}
_EXPIRED: Final = "Nobody answered in time, so it did not run."
_DENIED: Final = "Answer: denied."
_NOT_ANSWERED: Final = "It did not run: the question is not open any more."


class AskedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call to be approved: its code, the question, and how to answer it: by text or a button."""

    code: str
    call: ToolCall
    question: str
    instructions: str = ""
    buttons: tuple[Button, ...] = ()


def build_question(
    context: StoreContext,
    request: AskedCall,
    to: str,
    origin: Source,
    *,
    session_id: str,
    replaces: str | None = None,
) -> list[outbox.Delivery]:
    """Return the deliveries of a question, with as many buttons as its platform can show.

    If the whole text is too long for a message with buttons, they stand under the instructions.
    """

    def build(text: str) -> list[outbox.Delivery]:
        return outbox.build_deliveries(
            context, text, to, origin, session_id=session_id, delivery=f"approval:{request.code}",
            is_plain=True, replaces=replaces,
        )  # fmt: skip

    whole = "\n\n".join(filter(None, (request.question, request.instructions)))
    parts, answered = build(whole), request.question
    platform = registry.platform(parts[0].platform)
    buttons = choose_buttons(request.buttons, platform.buttons)
    if not buttons:
        return parts
    limit = platform.button_text_limit
    is_short = limit is None or length(whole, platform.length_unit) <= limit
    if len(parts) > 1 or not is_short:
        parts, answered = build(request.question), ""
        key = f"{parts[0].delivery}/{len(parts) + 1}"
        parts.append(replace(parts[0], delivery=key, body={"text": request.instructions}))
    parts[-1] = _with_buttons(parts[-1], buttons, answered)
    return parts


def _with_buttons(
    part: outbox.Delivery, buttons: Sequence[Button], answered: str
) -> outbox.Delivery:
    body: dict[str, Any] = {
        **part.body,
        "buttons": [[button.label, button.value] for button in buttons],
        "answered": answered,
    }
    return replace(part, body=body)


def close_question(tx: Transaction, approval: Approval, now: datetime) -> None:
    """Let the message of a question show that it was settled, where messages can be edited."""
    part = _find_last_part(tx, approval.code)
    if part is None or "buttons" not in part.body or not registry.platform(part.platform).edits:
        return
    text = "\n\n".join(filter(None, (part.body["answered"], _outcome(approval))))
    closing = replace(
        part, delivery=f"closed:{approval.code}", body={"text": text, outbox.CLOSES: part.delivery}
    )
    outbox.put_in(tx, [closing], to_micros(now))


def _outcome(approval: Approval) -> str:
    if approval.state in ("approved", "used"):
        return _OUTCOMES[approval.scope or "once"]
    if approval.state == "expired":
        return _EXPIRED
    return _NOT_ANSWERED if approval.answered_by is None else _DENIED


def _find_last_part(tx: Transaction, code: str) -> outbox.Delivery | None:
    key, last, number = f"approval:{code}", None, 1
    while (row := tx.one("outbox_get", {"delivery": key})) is not None:
        last, number = outbox.to_delivery(row), number + 1
        key = f"approval:{code}/{number}"
    return last
