"""Routes: which agent answers in which chat."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from tertulia.core import keys
from tertulia.core.source import Source
from tertulia.errors import ConfigError


class AgentRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One route; the first that matches decides. A key that is not set matches everything.

    agent      the name of the agent that answers
    platform   the platform of the chat, such as telegram
    account    the account of the platform
    chat       the id of the chat
    person     who writes: their id on the platform, or their identity, such as telegram:42
    """

    agent: str
    platform: str | None = None
    account: str | None = None
    chat: str | None = None
    person: str | None = None

    def __post_init__(self) -> None:
        for name in ("chat", "person"):
            if getattr(self, name) is not None and self.platform is None and not self._has_platform:
                raise ConfigError(
                    f"The route to {self.agent!r} names a {name} and no platform.",
                    hint=f"Set platform too: the ids of two platforms can be the same {name}.",
                    field=name,
                )

    @property
    def _has_platform(self) -> bool:
        """Return whether the person is an identity, which names the platform."""
        return self.chat is None and ":" in (self.person or "")

    def matches(self, source: Source) -> bool:
        """Return whether a message from this source takes the route."""
        people = (source.user_id, source.user_id_alt, keys.person_of(source))
        return (
            self.platform in (None, source.platform)
            and self.account in (None, source.account)
            and self.chat in (None, source.chat_id)
            and (self.person is None or self.person in people)
        )


def decide_agent(
    source: Source,
    *,
    chosen: str | None,
    routes: Sequence[AgentRoute],
    main: str,
    others: Collection[str],
) -> str:
    """Return the name of the agent that answers: the one chosen in the chat, else the routed one.

    A choice of an agent that is not configured any more does not count.
    """
    if chosen is not None and (chosen == main or chosen in others):
        return chosen
    return next((route.agent for route in routes if route.matches(source)), main)
