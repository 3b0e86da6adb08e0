"""Places of new stores. A new SQLite file is a copy: that takes a sixth of the time.

How a store is created is tested in `tests/storage`, and by every test that starts a program.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import pytest

from tertulia.storage.sqlite import database
from tertulia.storage.sqlite.open import open_writer

NewPlace = Callable[[], AbstractContextManager[str]]

_CREATION_TESTS = "tests/storage/"
_NEW_SECRET = "update installation set value = lower(hex(randomblob(32))) where name = 'secret'"


@contextmanager
def place_on(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the place of a new store on SQLite or PostgreSQL, for the test of a request."""
    if database == "sqlite":
        yield str(request.getfixturevalue("tmp_path") / "talk.db")
        return
    with request.getfixturevalue("postgres").empty_store() as address:
        yield address


def copy_new_stores() -> None:
    """Make every store that a test would create in this process a copy of an empty one."""
    setattr(database, "open_writer", _open_copy)  # noqa: B010


def _open_copy(path: str, **options: Any) -> apsw.Connection:
    is_copy = False
    test = os.environ.get("PYTEST_CURRENT_TEST", _CREATION_TESTS)
    if not test.startswith(_CREATION_TESTS) and not os.path.lexists(path):
        # A link appears whole: of several threads that create the file, one does.
        with contextlib.suppress(OSError):
            copy = Path(f"{path}.{threading.get_ident()}")
            copy.touch(0o600)
            copy.write_bytes(_empty_store())
            try:
                os.link(copy, path)
                is_copy = True
            finally:
                copy.unlink()
    connection = open_writer(path, **options)
    if is_copy:
        connection.execute(_NEW_SECRET)
    return connection


@cache
def _empty_store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "talk.db")
        open_writer(str(path), is_safe=False, busy_seconds=30).close()
        return path.read_bytes()
