"""The message of a user and its source: a turn begins with it, and the inbox accepts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.message import USER, Draft, draft
from tertulia.core.source import Source


class UserMessage(NamedTuple):
    """The message of a user and the source it came from."""

    source: Source
    text: str | None
    message_id: str | None
    media: Sequence[Any]

    @property
    def dedupe_key(self) -> str | None:
        """The permanent identity of the message, or None without a message id.

        It is made of platform, account, chat and message id, and is injective like a session key.
        """
        if not self.message_id:
            return None
        source = self.source
        parts = (source.platform, source.account, source.chat_id, self.message_id)
        return ":".join(map(keys.key_part, parts))

    @property
    def is_silent(self) -> bool:
        """True if there is neither text nor media: then the agent begins."""
        return self.text is None and not self.media

    def drafts(self) -> list[Draft]:
        """Return the message encoded for the log; an empty list if it is silent."""
        if self.is_silent:
            return []
        message: dict[str, Any] = {"role": USER, "content": self.text or ""}
        if self.media:
            message["media"] = list(self.media)
        if self.message_id:
            message["message_id"] = self.message_id
        return [draft(message)]
