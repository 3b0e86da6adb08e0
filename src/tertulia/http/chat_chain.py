"""Which conversation a request belongs to whose client names none, or sends all of it again."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

from tertulia.core.message import ASSISTANT, USER, text_of

_ROLES: Final = (USER, ASSISTANT)


class ChatChain:
    """A keyed hash over the texts of people and the assistant, in their order.

    Texts are compared in normal form (NFC) and without the white space around them, because clients
    change these. Messages of the system are left out: clients put the date into them.
    """

    def __init__(self, key: bytes, person: str) -> None:
        self._key = key
        self._digest = self._hash(b"", "person", person)
        self.is_empty = True

    def add(self, role: str, text: str) -> None:
        """Add a message; one without a text changes nothing."""
        normal = normal_text(text)
        if role in _ROLES and normal:
            self._digest = self._hash(self._digest, role, normal)
            self.is_empty = False

    def add_all(self, messages: Sequence[dict[str, Any]]) -> None:
        """Add messages in the form of the chat API."""
        for message in messages:
            self.add(str(message.get("role")), text_of(message))

    @property
    def digest(self) -> str:
        """The hash of everything added so far."""
        return self._digest.hex()

    def _hash(self, before: bytes, role: str, text: str) -> bytes:
        content = f"{role}\0{text}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, before + content, hashlib.sha256).digest()


def normal_text(text: str) -> str:
    """Return a text in the form in which texts are compared."""
    return unicodedata.normalize("NFC", text).strip()


def split_newest(messages: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return what was said before the newest message of the person, and that message.

    It is None if the request does not end with a message of the person.
    """
    chat_messages = [
        message
        for message in messages
        if isinstance(message, dict) and message.get("role") not in ("system", "developer")
    ]
    if not chat_messages or chat_messages[-1].get("role") != USER:
        return chat_messages, None
    return chat_messages[:-1], chat_messages[-1]
