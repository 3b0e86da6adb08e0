"""The conversation that a request belongs to, and the message id that makes it repeatable."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import msgspec
from starlette.requests import Request

from tertulia.core.text import sealed_text
from tertulia.errors import ConfigError

HEADER = "X-Conversation-Id"
IDEMPOTENCY = "Idempotency-Key"
_LONGEST_NAME = 200
_RESPONSE_PREFIX = "resp_"
# Marks the data of a `ResponseName`; ids of earlier versions hold the name of a conversation, and
# no name begins with it.
_DATA_MARK = "\0"


class ConversationName(msgspec.Struct, frozen=True):
    """The name of a conversation.

    `is_stored`: the client named the conversation, so its earlier messages are in the store and
    need not be read from the request.
    """

    id: str
    is_stored: bool


def check_name(field: str, value: Any) -> str:
    """Return a name that a client chose; raise `ConfigError` if it is not a valid one."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        raise ConfigError(
            f"{field} is not a valid name.",
            hint=f"Give 1 to {_LONGEST_NAME} printable characters.",
            field=field,
        )
    return value


def choose_message_id(request: Request, body_id: str | None = None) -> tuple[str, bool]:
    """Return the message id of a request, and whether the client chose it.

    The header `Idempotency-Key` goes before the id in the body; without both, the id is random.
    """
    client_id = request.headers.get(IDEMPOTENCY) or body_id
    if client_id:
        return check_name(IDEMPOTENCY, client_id), True
    return f"req_{os.urandom(12).hex()}", False


def choose_conversation(request: Request, message_id: str, *names: Any) -> ConversationName:
    """Return the conversation named by the header, else by the first of `names`, else a new one.

    The name of a new one is derived from its first message id, so that a repeated request finds it
    again.
    """
    header = request.headers.get(HEADER)
    if header:
        return ConversationName(check_name(HEADER, header), True)
    for name in names:
        if name:
            return ConversationName(check_name("conversation", name), True)
    digest = hashlib.sha256(message_id.encode("utf-8", "surrogatepass")).hexdigest()
    return ConversationName(f"conv_{digest[:24]}", False)


class ResponseName(msgspec.Struct, frozen=True, array_like=True):
    """The data in the id of a response, by which the response can be read again.

    conversation   the name of its conversation
    message        the id of the message that its turn answers; empty if it is not known
    part           its number in that turn, if it was asked for with tools: each step is a response;
                   None if it is the answer of the turn
    model          the name of the model that the client asked for
    created_at     when it was created, in seconds
    """

    conversation: str
    message: str = ""
    part: int | None = None
    model: str = ""
    created_at: int = 0


def create_response_id(key: bytes, name: ResponseName) -> str:
    """Return a response id that only this installation can read."""
    return _RESPONSE_PREFIX + sealed_text.seal(key, _DATA_MARK + msgspec.json.encode(name).decode())


def read_response_id(key: bytes, response_id: str) -> ResponseName:
    """Return the data in a response id; raise `ConfigError` if it is not ours."""
    text = sealed_text.unseal(key, response_id.removeprefix(_RESPONSE_PREFIX))
    if text is None:
        raise ConfigError(
            "previous_response_id was not created by this server.",
            hint="Give the id of a response, or name a conversation.",
            field="previous_response_id",
        )
    if text.startswith(_DATA_MARK):
        return msgspec.json.decode(text.removeprefix(_DATA_MARK), type=ResponseName)
    return ResponseName(text)  # of an earlier version
