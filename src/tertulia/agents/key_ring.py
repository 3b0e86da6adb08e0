"""Several API keys of one server: a session uses one key, and changes to the next if it is refused.

A provider's prompt cache belongs to the account of a key, so a session does not change its key
without need. A refused key is paused and tried again later: a limit may have ended by then.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from tertulia.core.backoff import Backoff
from tertulia.errors import AgentError

# A wrong key, no money, no right to use the model, a limit that is reached.
REFUSED_STATUSES: Final = (401, 402, 403, 429)
_REST: Final = Backoff(first=30, longest=300)


class KeyRing:
    """The keys of one agent, and which of them rest."""

    def __init__(self, keys: Sequence[str], *, now: Callable[[], float] = time.monotonic) -> None:
        self._keys = tuple(keys)
        self._now = now
        self._failures = dict.fromkeys(self._keys, 0)
        self._rests_until = dict.fromkeys(self._keys, 0.0)

    def choose(self, session_id: str) -> KeyChoice:
        """Return the keys in the order in which a session tries them."""
        keys = self._keys
        first = zlib.crc32(session_id.encode()) % len(keys) if keys else 0
        order = [*keys[first:], *keys[:first]]
        return KeyChoice(self, sorted(order, key=self._is_resting))

    def rest(self, key: str) -> None:
        """Pause a key that was refused."""
        self._failures[key] += 1
        self._rests_until[key] = self._now() + _REST.delay(self._failures[key], 0.0)

    def restore(self, key: str) -> None:
        """End the pause of a key."""
        self._failures[key], self._rests_until[key] = 0, 0.0

    def _is_resting(self, key: str) -> bool:
        return self._now() < self._rests_until[key]


class KeyChoice:
    """The key of one call; `current` is None if the agent has no key."""

    def __init__(self, ring: KeyRing, keys: Sequence[str]) -> None:
        self._ring = ring
        self._keys = list(keys)

    @property
    def current(self) -> str | None:
        return self._keys[0] if self._keys else None

    def worked(self) -> None:
        """Note that the server accepted the key."""
        if self._keys:
            self._ring.restore(self._keys[0])

    def replace_after(self, problem: AgentError) -> bool:
        """Change to the next key if this one was refused; return whether there is one."""
        if len(self._keys) < 2 or problem.status not in REFUSED_STATUSES:
            return False
        self._ring.rest(self._keys.pop(0))
        return True
