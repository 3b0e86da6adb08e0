"""Stores in files that the tests of SQLite make, damage and compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import Settings, Store
from tests.storage.child_programs import source

SETTINGS = Settings(zone="UTC", durability="fast")


def opened(path: Path | str, **settings: Any) -> Store:
    """Open a store that waits only briefly for locks."""
    return tertulia.open(path, settings=Settings(zone="UTC", busy_seconds=0.3, **settings))


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(store: Store, session_id: str) -> list[str]:
    return [message["content"] for message in store.transcript(session_id).load()]


def create_store(path: Path, messages: int = 20) -> str:
    """Create a store with a conversation in it; return the id of its session."""
    with opened(path) as store:
        session = store.sessions.open(source(1))
        store.transcript(session.id).extend(said(f"message {n}") for n in range(messages))
        store.transcript(session.id).append(said("large " * 20_000))
        store.settle()
    return session.id


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Assert that the block does not change the file."""
    before = fingerprint(path)
    yield
    assert fingerprint(path) == before


@contextmanager
def refused(kind: type[tertulia.Error], *, retryable: bool | None = None) -> Iterator[None]:
    """Assert that the block raises exactly this class, with a hint."""
    with pytest.raises(tertulia.Error) as caught:
        yield
    assert type(caught.value) is kind
    assert caught.value.hint
    if retryable is not None:
        assert caught.value.retryable is retryable


def error_of(call: Callable[[], object]) -> tertulia.Error | None:
    """Return the Tertulia error that a call raises, or None."""
    try:
        call()
    except tertulia.Error as problem:
        return problem
    return None
