"""Codes that people type: stored as keyed hashes, limited in number and in wrong tries.

A code has a purpose. `pair`, `link` and `browser` are valid; `replaced` is a pairing code that made
room for newer ones, `refused` one whose person the owner refused. Both keep their person from
asking again at once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, NamedTuple

from tertulia.core import pairing_code
from tertulia.core.message import to_json
from tertulia.core.source import Source
from tertulia.core.text.storable import storable
from tertulia.errors import AccessDenied, NotFound
from tertulia.records.links import LinkedChat, to_chat
from tertulia.storage import installation
from tertulia.storage.base import Transaction
from tertulia.storage.rows import to_micros

# The lane of every write to codes: their limits are counted, and each is used once. It is locked
# before the lanes of conversations, so that no two transactions wait for each other.
LANE: Final = "codes"

Purpose = Literal["pair", "link", "browser"]


class Code(NamedTuple):
    """A valid code: whom or which conversation it stands for, and the chat it was made in."""

    hash: str
    subject: str
    source: str | None
    claimed_key: str | None

    @property
    def chat(self) -> LinkedChat:
        """The chat whose conversation a code of the purpose `link` offers."""
        return to_chat(self.subject, self.source)


def put_code(
    tx: Transaction, code: str, purpose: Purpose, source: Source, subject: str, now: datetime
) -> bool:
    """Store a code for a subject in place of its older one; return False if it is too early.

    If too many pairing codes are pending on the platform, the oldest is replaced, so that a few
    strangers cannot keep all others out.
    """
    tx.run("codes_expire", {"now": to_micros(now)})
    (newest,) = tx.one("code_of_subject", {"subject": subject, "purpose": purpose}) or (None,)
    if newest is not None and newest > to_micros(now - pairing_code.MIN_INTERVAL):
        return False
    if tx.one("code_is_refused", {"subject": subject}) is not None:
        return False
    tx.run("codes_delete_of_subject", {"subject": subject, "purpose": purpose})
    # Visitors of a page have an account each, below the name of their token: they share its limit.
    name = source.account.partition("/")[0]
    account = {"platform": storable(source.platform), "account": storable(name)}
    if purpose == "pair":
        tx.run("codes_replace_oldest", {**account, "kept": pairing_code.MAX_PENDING - 1})
    tx.run(
        "code_insert",
        {
            **account,
            "hash": _hash(tx, code),
            "purpose": purpose,
            "subject": subject,
            "now": to_micros(now),
            "until": to_micros(now + pairing_code.LIFETIME),
            "source": to_json(source.to_dict()),
        },
    )
    return True


def put_browser_code(tx: Transaction, code: str, name: str, now: datetime, until: datetime) -> None:
    """Store a code that signs a browser in as a token's name, in place of its older one."""
    tx.run("codes_expire", {"now": to_micros(now)})
    tx.run("codes_delete_of_subject", {"subject": storable(name), "purpose": "browser"})
    tx.run(
        "code_insert",
        {
            "platform": "",
            "account": "",
            "hash": _hash(tx, code),
            "purpose": "browser",
            "subject": storable(name),
            "now": to_micros(now),
            "until": to_micros(until),
            "source": None,
        },
    )


def find_code(
    tx: Transaction, code: str, purpose: Purpose, redeemer: str, now: datetime
) -> Code | None:
    """Return a valid code; or None, and count a wrong try of the person `redeemer`.

    Raise `AccessDenied` without a lookup after too many of them. A right code does not clear the
    count: otherwise a code of one's own would allow five more tries.
    """
    since = to_micros(now - pairing_code.LIFETIME)
    (wrong,) = tx.one("wrong_codes_count", {"place": redeemer, "since": since}) or (0,)
    if wrong >= pairing_code.MAX_WRONG_TRIES:
        raise AccessDenied("Too many wrong codes.", hint="Try again in an hour.", retry_after=3600)
    tx.run("codes_expire", {"now": to_micros(now)})
    row = tx.one("code_get", {"hash": _hash(tx, code), "purpose": purpose})
    if row is not None:
        return Code._make(row)
    tx.run("wrong_codes_expire", {"since": since})
    tx.run("wrong_code_insert", {"place": redeemer, "now": to_micros(now)})
    return None


def unknown_code() -> NotFound:
    """Return the error for a wrong code."""
    return NotFound(
        "That code is not known.", hint="It may be older than an hour: ask for a new one."
    )


def _hash(tx: Transaction, code: str) -> str:
    return pairing_code.hash_code(code, bytes.fromhex(installation.require(tx, "secret")))
