"""Summaries that replace old turns in a history.

A summariser is any callable that takes the messages to summarise (in the OpenAI form) and the
previous summary, and returns a text. It may be a model. The one here is not: it copies the
beginning of each message, and its first line says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tertulia.core.history import tokens
from tertulia.core.message import ASSISTANT, USER, text_of
from tertulia.core.text.excerpt import one_line

Summariser = Callable[[Sequence[Mapping[str, Any]], str | None], str]


class Compaction(msgspec.Struct, frozen=True):
    """The result of a compaction: the summary, the messages it newly replaces, the revision."""

    summary: str
    messages: int
    revision: int


_HEAD = "Extract of the earlier conversation (the beginning of what was said, word for word):"
_MAX_LINE_LENGTH = 160
_MAX_LINES = 60


def extract_summary(messages: Sequence[Mapping[str, Any]], previous: str | None) -> str:
    """Return a summary made without a model: the first words of each message of both sides."""
    lines = previous.split("\n")[1:] if previous and previous.startswith(_HEAD) else []
    if previous and not lines:
        lines = [previous]
    for message in messages:
        text = one_line(text_of(message), _MAX_LINE_LENGTH)
        if message.get("role") in (USER, ASSISTANT) and text:
            lines.append(f"- {'Person' if message['role'] == USER else 'Assistant'}: {text}")
    left_out = max(0, len(lines) - _MAX_LINES)
    if left_out:
        lines = [f"- ({left_out} older lines left out)", *lines[left_out:]]
    return "\n".join([_HEAD, *lines])


def find_summary_problem(summary: object, messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why a summary cannot replace the messages, or None if it can."""
    if not isinstance(summary, str):
        return f"it is not text but {type(summary).__name__}"
    if not summary.strip():
        return "it is empty"
    size = tokens.estimate_tokens(summary)
    replaced = sum(tokens.estimate_tokens(text_of(message)) for message in messages)
    # The summary of a very short conversation may be longer than the conversation.
    if size > max(replaced, 500):
        return f"it is longer ({size} tokens) than the messages it replaces ({replaced})"
    return None
