"""The nanobot reader with hostile keys, fields and folders."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tertulia import Store
from tertulia.transfer import import_from
from tests.transfer.foreign_folders import all_sessions
from tests.transfer.importers.source_files import HEAD, HELLO, ODD, kinds, write


@pytest.mark.check
@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_files_are_imported(store: Store, folder: Path, count: int) -> None:
    for number in range(count):
        write(folder / f"telegram_{number}.jsonl", {**HEAD, "key": f"telegram:{number}"}, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert (report.sessions, report.messages, report.problems) == (count, count, ())
    assert store.sessions.count() == count


def test_keys_that_collide_in_file_names_stay_apart(store: Store, folder: Path) -> None:
    for number, key in enumerate(["a:b_c", "a:b:c", "a_b:c", "a:b%3Ac", "a:b~c", "A:b_c"]):
        write(folder / f"a_b_c {number}.jsonl", {**HEAD, "key": key}, HELLO)
    assert import_from(store, "nanobot", folder.parent).sessions == 6
    assert len({session.key for session in all_sessions(store)}) == 6


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_wrong_types_in_nanobot_fields_are_survived(store: Store, folder: Path, value: Any) -> None:
    for number, name in enumerate(HEAD):
        write(
            folder / f"telegram_{number}.jsonl", {**HEAD, "key": f"telegram:{number}", name: value}
        )
    fields = (
        "role",
        "content",
        "timestamp",
        "tool_calls",
        "tool_call_id",
        "name",
        "media",
        "_type",
    )
    rows = [{**HELLO, name: value} for name in fields]
    write(folder / "telegram_99.jsonl", {**HEAD, "key": "telegram:99"}, *rows, HELLO)
    report = import_from(store, "nanobot", folder.parent)
    assert report.sessions == len(HEAD) + 1
    found = [s for s in all_sessions(store) if s.metadata["imported"].get("key") == "telegram:99"]
    lost = {p.line for p in report.problems if p.file.endswith("99.jsonl")}
    # A `_type` makes a record of a row, and a record is kept with the session.
    assert len(store.transcript(found[0].id).load()) >= len(rows) - len(lost)
    assert store.check() == []
    for session in all_sessions(store):
        store.transcript(session.id).history()


def test_copies_of_a_file_are_imported_once(store: Store, folder: Path) -> None:
    later = {**HEAD, "updated_at": "2026-03-02T00:00:00"}
    (folder / "more").mkdir()
    write(folder / "telegram_42.jsonl", HEAD, HELLO)
    write(folder / "copy.jsonl", later, HELLO)
    write(folder / "more/copy.jsonl", HEAD, HELLO)
    assert import_from(store, "nanobot", folder.parent).sessions == 3
    latest = {**HEAD, "updated_at": "2026-03-03T00:00:00"}
    write(folder / "telegram_42.jsonl", latest, HELLO)
    assert import_from(store, "nanobot", folder.parent).skipped == 3
    assert store.sessions.count() == 3


@pytest.mark.parametrize("rows", [(), (HELLO,)])
def test_cut_metadata_line_is_reported(store: Store, folder: Path, rows: tuple[Any, ...]) -> None:
    cut = b'{"_type": "metadata", "key": "telegram:42", "created_'
    write(folder / "telegram_42.jsonl", cut, *rows)
    report = import_from(store, "nanobot", folder.parent)
    assert kinds(report) == {"garbage_line", "metadata_missing"}
    assert report.messages == len(rows)


def test_impossible_times_are_reported_and_not_used(store: Store, folder: Path) -> None:
    """A small number is not seconds since 1970; the times of the messages are used instead."""
    later = {**HELLO, "timestamp": "2026-03-01T12:00:00"}
    write(folder / "telegram_42.jsonl", {**HEAD, "created_at": 5, "updated_at": 17}, HELLO, later)
    report = import_from(store, "nanobot", folder.parent)
    assert [(p.kind, p.line) for p in report.problems] == [("unparseable_timestamp", 1)] * 2
    (session,) = all_sessions(store)
    assert session.created_at == datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC)
    assert session.updated_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
