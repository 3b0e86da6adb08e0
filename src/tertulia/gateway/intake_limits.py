"""Limits of what one person can hand in: the length of a text, and commands in a minute.

How many messages of a person may wait is counted in the store (`Inbox.put`), because they may come
to several nodes. A sender is told once in a while which limit it was, not for every message.
"""

from __future__ import annotations

from typing import Final

from tertulia.errors import LimitExceeded, TooLarge
from tertulia.gateway.rate_brake import RateBrake
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Incoming
from tertulia.records.people import Role
from tertulia.records.queues.inbox import claim_person

_TELL_SECONDS: Final = 600.0
_MINUTE: Final = 60.0


class IntakeLimits:
    """The limits of one node."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._commands = RateBrake(settings.commands_per_minute, _MINUTE)
        self._tellings = RateBrake(1, _TELL_SECONDS)

    def check(self, incoming: Incoming, role: Role, *, is_immediate: bool) -> None:
        """Raise `TooLarge` or `LimitExceeded` if a message is beyond a limit.

        `is_immediate`: it is a command that is answered at once, without the inbox.
        """
        limit = self._settings.guest_text if role == "guest" else self._settings.max_text
        if len(incoming.text or "") > limit:
            raise TooLarge(
                f"This message is longer than {limit} characters, so I did not read it.",
                hint="Send it in parts.",
            )
        if is_immediate and not self._commands.allows(claim_person(incoming.source)):
            raise LimitExceeded(
                "These are too many commands at once.",
                hint="Wait a minute, then try again.",
                retry_after=_MINUTE,
            )

    def may_tell(self, incoming: Incoming, problem: LimitExceeded | TooLarge) -> bool:
        """Return whether the sender is told now; they are told once in a while."""
        return self._tellings.allows(f"{problem.code} {claim_person(incoming.source)}")
