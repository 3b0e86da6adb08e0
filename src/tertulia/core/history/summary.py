"""Summaries that replace old turns in a history.

A summariser is any callable that takes the messages to summarise and the previous summary, and
returns a text. The messages are those that a model would be shown, in the OpenAI form: with the
heads of their authors, and with every head made inert that a person wrote. It may be a model. The
one here is not: it copies the beginning of each message, and its first line says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tertulia.core.history import tokens
from tertulia.core.message import ASSISTANT, USER, text_of
from tertulia.core.text import heads
from tertulia.core.text.excerpt import one_line
from tertulia.core.text.prompt_safe import quote_text

Summariser = Callable[[Sequence[Mapping[str, Any]], str | None], str]


class Compaction(msgspec.Struct, frozen=True):
    """The result of a compaction: the summary, the messages it newly replaces, the revision."""

    summary: str
    messages: int
    revision: int


_HEAD = "Extract of the earlier conversation (the beginning of what was said, word for word):"
_MAX_LINE_LENGTH = 160
_MAX_LINES = 60
# The head that a rendering puts before a message; a name and an id contain no quotes.
_AUTHOR = re.compile(re.escape(heads.AUTHOR_HEAD) + r'("[^"\n]*", id "[^"\n]*")\]\n')


def extract_summary(messages: Sequence[Mapping[str, Any]], previous: str | None) -> str:
    """Return a summary made without a model: the first words of each message of both sides."""
    lines = previous.split("\n")[1:] if previous and previous.startswith(_HEAD) else []
    if previous and not lines:
        lines = [previous]
    for message in messages:
        if message.get("role") in (USER, ASSISTANT) and (line := _line(message)):
            lines.append(line)
    left_out = max(0, len(lines) - _MAX_LINES)
    if left_out:
        lines = [f"- ({left_out} older lines left out)", *lines[left_out:]]
    return "\n".join([_HEAD, *lines])


def _line(message: Mapping[str, Any]) -> str:
    """Return one line with the author and the beginning of a message; "" if it has no text.

    If several people write, the text is quoted, so that nothing in it looks like an author.
    """
    text = text_of(message)
    author = _AUTHOR.match(text) if message["role"] == USER else None
    if author is not None:
        words = text[author.end() :]
        return f"- From {author[1]}: {quote_text(words, _MAX_LINE_LENGTH)}" if words.strip() else ""
    text = one_line(text, _MAX_LINE_LENGTH)
    name = "Person" if message["role"] == USER else "Assistant"
    return f"- {name}: {text}" if text else ""


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
