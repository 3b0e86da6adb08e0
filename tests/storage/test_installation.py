"""Values that belong to a store as a whole."""

from __future__ import annotations

import pytest

import tertulia
from tertulia import StoreError
from tertulia.storage import installation


def test_a_value_is_replaced_and_deleted(where: str) -> None:
    with tertulia.open(where) as store:
        context = store.context
        assert context.read(lambda tx: installation.get(tx, "note")) is None
        context.write(lambda tx: installation.put(tx, "note", "first"))
        context.write(lambda tx: installation.put(tx, "note", "second"))
        assert context.read(lambda tx: installation.require(tx, "note")) == "second"
        context.write(lambda tx: installation.delete(tx, "note"))
        assert context.read(lambda tx: installation.get(tx, "note")) is None


def test_a_missing_value_that_is_required_is_an_error(where: str) -> None:
    with tertulia.open(where) as store, pytest.raises(StoreError, match="'note'"):
        store.context.read(lambda tx: installation.require(tx, "note"))
