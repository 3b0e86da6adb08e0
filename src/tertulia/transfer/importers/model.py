"""One conversation of another system, as its reader hands it over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.source import CHAT_TYPES, Source
from tertulia.core.usage import STATUSES, Usage
from tertulia.errors import ConfigError
from tertulia.records.imports import (
    ImportedSession,
    ImportSummary,
)
from tertulia.records.usage import Charge, charge

UNKNOWN = "unknown"
_MOST_TOKENS = 2**53 - 1


class ForeignMessage(NamedTuple):
    """A message as it was found."""

    line: int | None
    message: Mapping[str, Any]
    at: int | None
    kind: str | None = None
    is_shown: bool = True


class Totals(NamedTuple):
    """What was seen of a session while its messages passed."""

    shown: int  # how many messages, without those that are hidden
    first_at: int | None
    last_at: int | None
    last_person: int  # number of the last message of the person among those that are shown
    hidden: tuple[tuple[int, int], ...]


class ForeignSession(NamedTuple):
    """A session that is to be imported.

    `said` is read once. `settled` is asked afterwards, since a file may tell at its end what is
    true of all of it.
    """

    file: str
    newcomer: ImportedSession
    said: Iterable[ForeignMessage]
    settled: Callable[[Totals], ImportSummary]
    about: str = ""  # which session it is, where a file holds many


def named(kind: str, *parts: object) -> str:
    """A name for what arrives, from all that tells it apart; it tells nobody's id."""
    whole = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return f"{kind}:{blake2b(whole, digest_size=16).hexdigest()}"


def unknown_source(platform: str, session_id: str, **details: Any) -> Source:
    """The source of a session of which nobody wrote down where it belongs.

    Each has a key of its own, and nobody's: it must not become a part of anyone's conversation.
    """
    return Source(platform or UNKNOWN, session_id, chat_type=UNKNOWN, **details)


def key_of(source: Source, agent: str = "main") -> str:
    """The key of a conversation in which nobody is told apart from the others in it."""
    return keys.session_key(source, agent=agent, per_user=False)


def source_of(found: object, platform: str | None = None) -> Source | None:
    """A source from what another system wrote of it, whatever the types are; None if nothing."""
    if not isinstance(found, Mapping):
        return None
    plain = {
        name: value
        for name, value in found.items()
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
    }
    given = text(plain.get("platform")) or platform
    try:
        return Source.from_dict({**plain, "platform": given})
    except ConfigError:
        return None


def person_in(source: Source, key: str) -> str | None:
    """Whose session it is, if the key says that it is one person's alone."""
    if source.chat_type not in CHAT_TYPES:
        return None
    last = key.rsplit(":", 1)[-1]
    chat = source.chat_id.partition("@")[0]
    if source.chat_type == "dm":
        own = {keys.escape(part) for part in (source.chat_id, chat, source.thread_id) if part}
    else:
        own = {keys.escape(part) for part in (source.user_id_alt, source.user_id) if part}
    return keys.person_of(source) if last in own else None


def text(value: object) -> str | None:
    """Text, if it is some and not empty."""
    return value if isinstance(value, str) and value else None


def count(value: object) -> int:
    """A count of tokens; 0 where it cannot be one."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= _MOST_TOKENS else 0


def dollars(value: object) -> float | None:
    """A cost; nothing is not free, it is unknown."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e9 else None


def charge_of(
    counts: Mapping[str, int],
    *,
    cost: float | None = None,
    status: object = None,
    last_prompt: int | None = None,
    **where: Any,
) -> Charge | None:
    """A charge of the ledger; None where nothing was used."""
    if cost is None and not any(counts.values()):
        return None
    certain: Any = status if status in STATUSES else None
    if cost is None:
        certain = certain if certain == "included" else "unknown"
    elif certain in (None, UNKNOWN):
        certain = "estimated"
    where.update(counts, cost_usd=cost, cost_status=certain, last_prompt=last_prompt)
    return charge(Usage(**where))
