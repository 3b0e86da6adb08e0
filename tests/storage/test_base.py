"""Both databases have every method of the contract, with the same parameters."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tertulia.storage import base
from tertulia.storage.postgres.database import PostgresDatabase
from tertulia.storage.postgres.transaction import PostgresTransaction
from tertulia.storage.sqlite.database import SqliteDatabase
from tertulia.storage.sqlite.transaction import SqliteTransaction


def parameters(owner: type, name: str) -> list[tuple[str, Any]] | None:
    """Return names and kinds of the parameters of a method; None for a property."""
    member = inspect.getattr_static(owner, name)
    if not inspect.isfunction(member):
        return None
    return [(p.name, p.kind) for p in inspect.signature(member).parameters.values()]


@pytest.mark.parametrize(
    ("contract", "implementation"),
    [
        (base.Transaction, SqliteTransaction),
        (base.Transaction, PostgresTransaction),
        (base.Database, SqliteDatabase),
        (base.Database, PostgresDatabase),
    ],
)
def test_implementation_has_the_signatures_of_the_contract(
    contract: type, implementation: type
) -> None:
    names = [name for name in vars(contract) if not name.startswith("_")]
    assert len(names) >= 8
    for name in names:
        assert parameters(implementation, name) == parameters(contract, name), name
