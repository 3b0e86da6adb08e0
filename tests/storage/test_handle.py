"""A handle is usable until it is closed or its process forks."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tertulia import StoreError
from tertulia.storage.handle import DatabaseHandle
from tertulia.storage.notify import notifier_of


class Handle(DatabaseHandle):
    def write(self, work: Any, *, lane: str | None = None) -> Any:
        raise AssertionError("no test writes")

    def _commit_state(self) -> tuple[Any, ...]:
        return (0,)

    def _is_one_commit(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
        return before == after

    def use(self) -> None:
        self._check_usable()

    def close(self) -> None:
        self._closed = True


def test_a_closed_handle_is_refused() -> None:
    handle = Handle("talk.db", "/talk.db")
    handle.use()
    handle.close()
    assert handle.is_closed
    with pytest.raises(StoreError, match="closed"):
        handle.use()


def test_a_handle_of_the_parent_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle("talk.db", "/talk.db")
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    with pytest.raises(StoreError, match="forked"):
        handle.use()


def test_handles_on_one_database_share_notifications() -> None:
    handles = [Handle("talk.db", "/talk.db"), Handle("talk.db", "/talk.db")]
    notifier_of("/talk.db").notify("inbox")
    assert [handle.notifications("inbox") for handle in handles] == [1, 1]
    assert Handle("other.db", "/other.db").notifications("inbox") == 0
