"""Which conversation a request belongs to, and the name it can be repeated by."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Any

import msgspec
from starlette.requests import Request

from tertulia.errors import ConfigError

HEADER = "X-Conversation-Id"
IDEMPOTENCY = "Idempotency-Key"
_LONGEST = 200
_RESPONSE = "resp_"


class ConversationName(msgspec.Struct, frozen=True):
    """A conversation. `is_kept`: the client names it, so what was said in it is stored already."""

    id: str
    is_kept: bool


def checked(name: str, given: Any) -> str:
    """A name that a client has chosen."""
    if not isinstance(given, str) or not 0 < len(given) <= _LONGEST or not given.isprintable():
        raise ConfigError(
            f"{name} is not allowed.",
            hint=f"Give 1 to {_LONGEST} printable characters.",
            field=name,
        )
    return given


def message_id(request: Request, given: str | None = None) -> tuple[str, bool]:
    """The name of a request, and whether the client has chosen it."""
    chosen = request.headers.get(IDEMPOTENCY) or given
    if chosen:
        return checked(IDEMPOTENCY, chosen), True
    return f"req_{os.urandom(12).hex()}", False


def named(request: Request, message: str, *given: Any) -> ConversationName:
    """The conversation by the header or the first field that names one, else a new one.

    The new one is called after its first message, so that a repeated request finds it again.
    """
    header = request.headers.get(HEADER)
    if header:
        return ConversationName(checked(HEADER, header), True)
    for one in given:
        if one:
            return ConversationName(checked("conversation", one), True)
    digest = hashlib.sha256(message.encode("utf-8", "surrogatepass")).hexdigest()
    return ConversationName(f"conv_{digest[:24]}", False)


def response_id(conversation: str) -> str:
    """The id of a response, which tells the conversation it stands in."""
    written = msgspec.json.encode([conversation, os.urandom(6).hex()])
    return _RESPONSE + base64.urlsafe_b64encode(written).decode().rstrip("=")


def of_response(given: str) -> str:
    """The conversation of a response id. It is looked for among the caller's own only."""
    text = given.removeprefix(_RESPONSE)
    try:
        written = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        conversation, _ = msgspec.json.decode(written, type=tuple[str, str])
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise ConfigError(
            "previous_response_id is not one of this server.",
            hint="Give the id of a response, or name a conversation.",
            field="previous_response_id",
        ) from None
    return conversation
