"""Missing migrations are run and recorded; a new store is set up."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.errors import SchemaMismatch
from tertulia.storage import migration, statements

SCRIPTS = statements.migrations("sqlite")
NAMES = migration.names("sqlite")


def apply_missing(applied: list[str]) -> tuple[list[str], list[tuple[Any, ...]]]:
    calls: list[tuple[Any, ...]] = []
    names = migration.apply_missing(
        lambda *call: calls.append(call), "sqlite", applied, placeholder="%s"
    )
    return names, calls


def test_a_new_store_gets_every_script_and_a_secret() -> None:
    names, calls = apply_missing([])
    assert names == NAMES
    assert [call[0] for call in calls[:-1:2]] == [script for _, script in SCRIPTS]
    assert [call[1][0] for call in calls[1::2]] == NAMES
    text, (secret, _) = calls[-1]
    assert "%s" in text
    assert "?" not in text
    assert len(bytes.fromhex(secret)) == 32


def test_a_migrated_store_gets_only_the_missing_scripts() -> None:
    names, calls = apply_missing(NAMES[:-1])
    assert names == NAMES[-1:]
    assert [call[0] for call in calls[::2]] == [SCRIPTS[-1][1]]
    assert apply_missing(NAMES) == ([], [])


def test_a_newer_store_is_refused() -> None:
    migration.refuse_newer(NAMES, "sqlite", "talk.db")
    with pytest.raises(SchemaMismatch, match="9999_later") as caught:
        migration.refuse_newer([*NAMES, "9999_later"], "sqlite", "talk.db")
    assert caught.value.where == "talk.db"
