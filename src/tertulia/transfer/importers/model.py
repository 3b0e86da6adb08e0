"""A session of another system, as its reader yields it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from tertulia.core import keys
from tertulia.core.source import CHAT_TYPES, Source, StoredChatType
from tertulia.core.usage import STATUSES, Usage
from tertulia.errors import ConfigError
from tertulia.records.imports import ImportedSession, ImportSummary
from tertulia.records.usage import Charge, charge

UNKNOWN = "unknown"
_MOST_TOKENS = 2**53 - 1


class ForeignMessage(NamedTuple):
    """A message as it stands in the source."""

    line: int | None
    body: Mapping[str, Any]
    at: int | None
    kind: str | None = None
    is_visible: bool = True


class Totals(NamedTuple):
    """Counts and times collected while the messages of a session were read."""

    visible: int  # number of messages that are not hidden
    first_at: int | None
    last_at: int | None
    last_user: int  # number of the last user message among the visible ones
    hidden: tuple[tuple[int, int], ...]


class ForeignSession(NamedTuple):
    """A session to import.

    `messages` is iterated once. `summarise` is called afterwards, since the end of a file may say
    something about the whole session.
    """

    file: str
    session: ImportedSession
    messages: Iterable[ForeignMessage]
    summarise: Callable[[Totals], ImportSummary]
    prefix: str = ""  # names the session in problems, for a file that holds many
    needs_messages: bool = False  # without a message there is no session


def import_name(kind: str, *parts: object) -> str:
    """Return the name that identifies an imported session: a hash, so that it reveals no id."""
    identity = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return f"{kind}:{blake2b(identity, digest_size=16).hexdigest()}"


def unknown_source(platform: str, session_id: str, **details: Any) -> Source:
    """Return a source for a session whose origin is not recorded.

    Each such session gets a key of its own, so that it never becomes part of anyone's conversation.
    """
    chat_type = StoredChatType(UNKNOWN)
    return Source(platform or UNKNOWN, session_id, chat_type=chat_type, **details)


def key_of(source: Source, agent: str = "main") -> str:
    """Return the key of the conversation that all people of a chat share."""
    return keys.session_key(source, agent=agent, per_user=False)


def source_of(value: object, platform: str | None = None) -> Source | None:
    """Return the source in a foreign record, whatever its types are; None if it has none."""
    if not isinstance(value, Mapping):
        return None
    plain = {
        name: field
        for name, field in value.items()
        if isinstance(field, str) or (isinstance(field, int) and not isinstance(field, bool))
    }
    platform = text(plain.get("platform")) or platform
    try:
        return Source.from_dict({**plain, "platform": platform})
    except ConfigError:
        return None


def person_in(source: Source, key: str) -> str | None:
    """Return the person a session belongs to, if its key names one person alone."""
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
    """Return the value if it is a text that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def count(value: object) -> int:
    """Return a token count, or 0 if the value is not a possible one."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 <= value <= _MOST_TOKENS else 0


def dollars(value: object) -> float | None:
    """Return a cost in dollars, or None: a missing or zero cost is unknown, not free."""
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
    """Return an entry for the usage ledger, or None if nothing was used."""
    if cost is None and not any(counts.values()):
        return None
    cost_status: Any = status if status in STATUSES else None
    if cost is None:
        cost_status = cost_status if cost_status == "included" else "unknown"
    elif cost_status in (None, UNKNOWN):
        cost_status = "estimated"
    where.update(counts, cost_usd=cost, cost_status=cost_status, last_prompt=last_prompt)
    return charge(Usage(**where))
