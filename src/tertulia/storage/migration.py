"""Migrations: numbered scripts, each applied once. The database locks and connects."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from tertulia.core.text import search_terms
from tertulia.errors import SchemaMismatch
from tertulia.install_command import upgrade_command
from tertulia.storage import statements

_RECORD = "insert into migrations (name, applied_at) values (?, ?)"
_SET_UP = "insert into installation (name, value) values ('secret', ?), ('search_rule', ?)"


def names(dialect: str) -> list[str]:
    """Return the names of the migrations that this program has, in order."""
    return [name for name, _ in statements.migrations(dialect)]


def refuse_newer(applied: Sequence[str], dialect: str, where: str) -> None:
    """Raise `SchemaMismatch` if a store has migrations that this program does not have."""
    ours = set(names(dialect))
    unknown = [name for name in applied if name not in ours]
    if unknown:
        raise SchemaMismatch(
            f"{where} was written by a newer Tertulia (it has {unknown[-1]}).",
            hint=f"The store was not changed. Upgrade this program: {upgrade_command()}",
            where=where,
        )


def apply_missing(
    execute: Callable[..., Any], dialect: str, applied: Collection[str], *, placeholder: str
) -> list[str]:
    """Run the missing scripts, record each one, and set up a new store; return their names.

    The caller has begun a transaction that no other process can run at the same time.
    """
    missing = [script for script in statements.migrations(dialect) if script[0] not in applied]
    for name, script in missing:
        execute(script)
        applied_at = datetime.now(UTC).isoformat(timespec="seconds")
        execute(_RECORD.replace("?", placeholder), (name, applied_at))
    if not applied:
        # Redaction is keyed with this secret: a plain hash of a phone number can be guessed.
        secret, rule = os.urandom(32).hex(), str(search_terms.RULE_VERSION)
        execute(_SET_UP.replace("?", placeholder), (secret, rule))
    return [name for name, _ in missing]
