"""Messages with buttons as blocks of Slack, and presses of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tertulia.core.buttons import Button
from tertulia.core.source import Source
from tertulia.platforms.base import Pressed
from tertulia.platforms.slack.event_reader import chat_type_of
from tertulia.platforms.slack.mrkdwn import plain_of

Json = Mapping[str, Any]

_MAX_SECTION: Final = 3_000  # characters of a text block, after escaping


def question_blocks(text: str, buttons: Sequence[Button]) -> list[dict[str, Any]]:
    """Return a text and its buttons as blocks; the text is plain, so that it notifies nobody."""
    styles = ["primary", *[None] * (len(buttons) - 2), "danger"]
    elements = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": button.label},
            "value": button.value,
            "action_id": f"answer_{number}",
            **({} if style is None else {"style": style}),
        }
        for number, (button, style) in enumerate(zip(buttons, styles, strict=False))
    ]
    return [*_sections(text), {"type": "actions", "elements": elements}]


def _sections(text: str) -> list[dict[str, Any]]:
    """Return a text as blocks; one that is too long for a block after escaping as several."""
    escaped = plain_of(text, ())
    if len(escaped) > _MAX_SECTION:
        middle = text.rfind("\n", 1, len(text) // 2) + 1 or len(text) // 2
        return [*_sections(text[:middle]), *_sections(text[middle:])]
    return [{"type": "section", "text": {"type": "plain_text", "text": escaped}}]


def is_press(payload: Json) -> bool:
    """Return whether a payload is about what people did with blocks."""
    return payload.get("type") == "block_actions"


def with_installation(payload: Json) -> dict[str, Any]:
    """Return a payload that names its workspace where events name it."""
    ids = {"team_id": payload.get("team"), "enterprise_id": payload.get("enterprise")}
    named = {name: part["id"] for name, part in ids.items() if isinstance(part, Mapping)}
    channel = payload.get("channel")
    event = {"channel": channel.get("id")} if isinstance(channel, Mapping) else {}
    return {**payload, **named, "event": event}


def read_press(payload: Json, account: str) -> Pressed | None:
    """Return the press of a button under a message, or None if it is something else.

    Raises one of `MALFORMED` if it is malformed.
    """
    (action, *_) = payload["actions"]
    message = payload.get("message")
    if action.get("type") != "button" or not isinstance(message, Mapping):
        return None
    user, channel = str(payload["user"]["id"]), str(payload["channel"]["id"])
    thread = message.get("thread_ts")
    source = Source(
        "slack",
        channel,
        account=account,
        chat_type=chat_type_of(channel),
        user_id=user,
        thread_id=str(thread) if thread else None,
    )
    return Pressed(
        source=source,
        value=str(action["value"]),
        press_id=f"{message['ts']}-{user}-{action['action_ts']}",
    )
