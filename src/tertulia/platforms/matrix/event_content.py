"""The content of the events that the agent sends: texts, edits and relations."""

from __future__ import annotations

import hashlib
import json
from typing import Final

from tertulia.core.text.markdown import format_parts
from tertulia.core.text.spans import FormattedText, to_html, to_plain
from tertulia.platforms.base import Outgoing
from tertulia.platforms.matrix.client_api import Json, encode

# An event has at most 65,536 bytes, with signatures and references. An edit repeats a little.
MAX_CONTENT_BYTES: Final = 48_000
# Tells other instances of this program that a program wrote the message.
AGENT_MARK: Final = "tertulia.agent"
_EDIT_PREVIEW: Final = 200
_CONTROL = dict.fromkeys(set(range(32)) - {9, 10})


def format_text(markdown: str) -> list[FormattedText]:
    """Return the agent's Markdown as messages that fit into an event each."""
    return format_parts(markdown, MAX_CONTENT_BYTES, _content_bytes)


def text_content(text: FormattedText) -> Json:
    """Return the content of a message: the plain text, and HTML if it is formatted.

    The empty `m.mentions` says that nobody is to be notified, whatever names the text contains.
    """
    content: Json = {"msgtype": "m.text", "body": to_plain(text), "m.mentions": {}, AGENT_MARK: {}}
    if text.spans:
        content |= {"format": "org.matrix.custom.html", "formatted_body": to_html(text)}
    return content


def edit_content(content: Json, event_id: str) -> Json:
    """Return the content of an edit. Clients that cannot show edits show the beginning of it."""
    return {
        "msgtype": content["msgtype"],
        "body": f"* {content['body'][:_EDIT_PREVIEW]}",
        "m.mentions": {},
        AGENT_MARK: {},
        "m.new_content": {key: content[key] for key in content if key != "m.relates_to"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
    }


def relation(thread_id: str | None, reply_to: str | None) -> Json:
    """Return the relation of a message to its thread and to the message it replies to."""
    reply: Json = {"m.in_reply_to": {"event_id": reply_to or thread_id}}
    if thread_id is not None:
        thread = {"rel_type": "m.thread", "event_id": thread_id}
        return {"m.relates_to": {**thread, "is_falling_back": reply_to is None, **reply}}
    return {"m.relates_to": reply} if reply_to is not None else {}


def _content_bytes(text: FormattedText) -> int:
    return len(encode(text_content(text)))


def message_content(message: Outgoing) -> Json:
    """Return the content of a message to be sent."""
    text = FormattedText(message.text, message.spans)
    content = text_content(text)
    content["body"] = content["body"].translate(_CONTROL)
    return content


def transaction_id(*parts: object) -> str:
    """Return the id of a transaction: the same for the same parts, in every process."""
    data = json.dumps(parts, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:40]


def file_name(name: str | None) -> str:
    """Return the name of a file without control characters."""
    return (name or "file").translate(_CONTROL)
