"""Messages in the OpenAI form, and rows of other kinds, for the tests of histories."""

from __future__ import annotations

from typing import Any

from tertulia.core.message import draft
from tertulia.records import session_rows
from tertulia.records.transcript.log import Entry, add_messages
from tertulia.records.transcript.transcript import Transcript
from tertulia.storage.base import Transaction

Body = dict[str, Any]

FORMATS = ("openai", "responses", "anthropic", "text")


def ask(content: Any = "What is the weather?", **fields: Any) -> Body:
    return {"role": "user", "content": content, **fields}


def answer(content: Any = "Sunny.", **fields: Any) -> Body:
    return {"role": "assistant", "content": content, **fields}


def calls(*ids: str, content: Any = None, arguments: str = "{}") -> Body:
    tool_calls = [
        {"id": i, "type": "function", "function": {"name": "look", "arguments": arguments}}
        for i in ids
    ]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def result(call_id: str, content: Any = "sunny", **fields: Any) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def add_row(transcript: Transcript, kind: str, body: Body) -> None:
    """Add a row as commands, deliveries and bookkeeping do."""

    def work(tx: Transaction) -> None:
        ref = session_rows.current_view(tx, transcript.session_id).ref
        add_messages(tx, ref, [Entry(draft(body), kind)], 0)

    transcript._db.write(work)
