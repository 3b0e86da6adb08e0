"""What a person said, and where: what a turn begins with and the inbox accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.message import USER, Draft, draft
from tertulia.core.source import Source


class UserMessage(NamedTuple):
    """What a person said, and where."""

    source: Source
    text: str | None
    message_id: str | None
    media: Sequence[Any]

    @property
    def dedupe_key(self) -> str | None:
        """The message's name for ever: platform, account, chat and id, injective like a key."""
        if not self.message_id:
            return None
        source = self.source
        parts = (source.platform, source.account, source.chat_id, self.message_id)
        return ":".join(map(keys.part_of, parts))

    @property
    def is_silent(self) -> bool:
        """Whether nobody said anything: the agent begins."""
        return self.text is None and not self.media

    def drafts(self) -> list[Draft]:
        if self.is_silent:
            return []
        message: dict[str, Any] = {"role": USER, "content": self.text or ""}
        if self.media:
            message["media"] = list(self.media)
        if self.message_id:
            message["message_id"] = self.message_id
        return [draft(message)]
