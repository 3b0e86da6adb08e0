"""Summaries: what stands for turns that are no longer shown word by word.

A summariser is any callable that takes the messages to sum up (in the OpenAI form) and the summary
that stood before them, and gives a text. It may be a model. The one here is not: it takes out the
beginning of what each side said, and says that it did no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tertulia.core.history import tokens
from tertulia.core.message import ASSISTANT, USER, text_of

Summariser = Callable[[Sequence[Mapping[str, Any]], str | None], str]


class Compaction(msgspec.Struct, frozen=True):
    """What was done: the summary, how many more messages it stands for, and the revision."""

    summary: str
    messages: int
    revision: int


_HEAD = "Extract of the earlier conversation (the beginning of what was said, word for word):"
_LINE = 160
_LINES = 60


def extract(messages: Sequence[Mapping[str, Any]], previous: str | None) -> str:
    """A summary without a model: the first words of each message of the two sides."""
    lines = previous.split("\n")[1:] if previous and previous.startswith(_HEAD) else []
    if previous and not lines:
        lines = [previous]
    for message in messages:
        said = " ".join(text_of(message).split())
        if message.get("role") in (USER, ASSISTANT) and said:
            cut = said if len(said) <= _LINE else said[: _LINE - 1].rstrip() + "…"
            lines.append(f"- {'Person' if message['role'] == USER else 'Assistant'}: {cut}")
    left_out = max(0, len(lines) - _LINES)
    if left_out:
        lines = [f"- ({left_out} older lines left out)", *lines[left_out:]]
    return "\n".join([_HEAD, *lines])


def fault(summary: object, messages: Sequence[Mapping[str, Any]]) -> str | None:
    """What is wrong with a summary, or None if it can stand for the messages."""
    if not isinstance(summary, str):
        return f"it is no text but {type(summary).__name__}"
    if not summary.strip():
        return "it is empty"
    size = tokens.estimate(summary)
    replaced = sum(tokens.estimate(text_of(message)) for message in messages)
    # A very short past may well be told in more words than it had.
    if size > max(replaced, 500):
        return f"it is longer ({size} tokens) than what it should stand for ({replaced})"
    return None
