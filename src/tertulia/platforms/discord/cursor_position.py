"""The position in Discord's stream of events: the cursor of the adapter.

`seq` is the last event that is stored; a new process resumes the session after it, within some
minutes. After that only a new session is possible, which repeats nothing: then the messages after
`latest` are read from the channels, and from the private chats in `dms`, which Discord does not
list.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

_MAX_DMS: Final = 100


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that may be resumed, and where to read on if it cannot be."""

    session: str | None = None
    url: str | None = None
    seq: int = 0
    latest: int = 0
    dms: tuple[str, ...] = ()

    @classmethod
    def read(cls, cursor: str | None) -> Position:
        """Return the position that a cursor describes; an unreadable one is no position."""
        try:
            return cls() if cursor is None else msgspec.json.decode(cursor, type=cls)
        except (msgspec.DecodeError, UnicodeError):
            return cls()

    @property
    def cursor(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def is_resumable(self) -> bool:
        return self.session is not None and self.url is not None

    def without_session(self) -> Position:
        """Return the position after the session has ended."""
        return replace(self, session=None, url=None, seq=0)

    def after_message(self, message_id: int, private_chat: str | None) -> Position:
        """Return the position after a message, which may be in a private chat."""
        latest = max(self.latest, message_id)
        dms = self.dms
        if private_chat is not None and private_chat != (dms[-1:] or ("",))[0]:
            others = tuple(chat for chat in dms if chat != private_chat)
            dms = (*others, private_chat)[-_MAX_DMS:]
        return replace(self, latest=latest, dms=dms)
