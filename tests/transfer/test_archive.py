"""A store in one file, and back: nothing is lost, nothing is invented, nothing is half done."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Store, transfer
from tertulia.errors import (
    ConfigError,
    Error,
    IllegalMove,
    NotAStore,
    NotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
)
from tertulia.storage import statements, tables
from tertulia.transfer import archive
from tests.transfer import filled_stores
from tests.transfer.filled_stores import (
    ACTS,
    ANA,
    BEN,
    EVE,
    GROUP,
    SOURCES,
    everything,
    opened,
    parts,
)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "full.db"
    with opened(path) as store:
        everything(store)
    filled_stores.left_open(path)
    with opened(path) as store:
        transfer.write_archive(store, path.with_suffix(".zip"))
    return path


@pytest.fixture
def full(made_once: Path, tmp_path: Path) -> Path:
    """An archive of a store with something of everything; the store lies beside it."""
    for name in os.listdir(made_once.parent):
        shutil.copy(made_once.parent / name, tmp_path / name)
    return tmp_path / "full.zip"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "empty.db") as store:
        yield store


def asked(path: Path, sql: str, *values: str) -> list[Any]:
    """What the file itself says."""
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def is_untouched(store: Store) -> bool:
    return store.context.db.read(tables.is_empty) and store.check() == []


def written_to(table: tables.Table) -> str:
    """Return the table that rows are put into: `usage` is a view of two."""
    return "usage_kept" if table.name == "usage" else table.name


class TestTheListOfTables:
    @pytest.fixture
    def new(self, tmp_path: Path) -> Path:
        tertulia.open(tmp_path / "new.db").close()
        return tmp_path / "new.db"

    def schema(self, path: Path) -> dict[str, set[str]]:
        """Tables with the columns that are stored; not those of the search index itself."""
        listed = asked(
            path,
            "select name from sqlite_schema"
            " where type in ('table', 'view') and name not like 'sqlite_%'",
        )
        columns = "select name from pragma_table_xinfo(?) where hidden = 0"
        return {
            name: {column for (column,) in asked(path, columns, name)}
            for (name,) in listed
            if not re.match("(words|cards)_", name)
        }

    def test_list_has_every_table_and_column(self, new: Path) -> None:
        schema = self.schema(new)
        listed = {table.name for table in tables.TABLES}
        assert listed | set(tables.NOT_COPIED) == set(schema)
        assert not listed & set(tables.NOT_COPIED)
        for table in tables.TABLES:
            assert not set(table.columns) & set(table.left)
            assert set(table.columns) | set(table.left) == schema[table.name], table.name

    def test_keys_are_the_primary_keys(self, new: Path) -> None:
        kinds: dict[str, type] = {"INTEGER": int, "TEXT": str}
        keys = "select name, type from pragma_table_info(?) where pk > 0 order by pk"
        for table in tables.TABLES:
            found = {name: kinds[kind] for name, kind in asked(new, keys, written_to(table))}
            assert found == dict(table.key), table.name

    def test_statements_have_the_columns_in_order(self) -> None:
        sql = {name: " ".join(text.split()) for name, text in statements.load("sqlite").items()}
        for table in tables.TABLES:
            columns = ", ".join(table.columns)
            assert sql[f"copy_{table.name}_page"].startswith(f"select {columns} from {table.name} ")
            put = sql[f"copy_{table.name}_put"].replace("( ", "(").replace(" )", ")")
            assert put.startswith(f"insert into {written_to(table)} ({columns})")
            assert put.count("?") == len(table.columns)

    def test_skipped_columns_have_a_default(self, new: Path) -> None:
        # A column that may be null is null in the copy.
        value = 'coalesce(dflt_value, not "notnull" or null)'
        defaults = f"select name, {value} from pragma_table_info(?)"
        for table in tables.TABLES:
            found = dict(asked(new, defaults, table.name))
            assert all(found[name] is not None for name in table.left)

    @pytest.mark.parametrize("table", tables.TABLES, ids=[table.name for table in tables.TABLES])
    def test_table_is_read_completely_for_any_page_size(
        self, full: Path, table: tables.Table
    ) -> None:
        path = full.with_suffix(".db")
        ((count,),) = asked(path, f"select count(*) from {table.name}")
        is_partial = table.name == "installation"  # the rule of the search index stays behind
        with opened(path) as store:
            read = [
                store.context.db.read(
                    lambda tx, t=paged: [row for rows in t.pages(tx) for row in rows]  # type: ignore[misc]
                )
                for paged in (table, table._replace(page=1), table._replace(page=3))
            ]
        assert read[0] == read[1] == read[2]
        assert len(read[0]) == count - is_partial


class TestThereAndBack:
    steps = st.lists(
        st.tuples(
            st.sampled_from(sorted(ACTS)),
            st.sampled_from(SOURCES[:4]),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        ),
        max_size=14,
    )

    # Each example makes two stores on disk, so there are fewer than of other properties.
    @settings(
        max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(steps)
    def test_export_restore_export_gives_equal_bytes(self, steps: list[Any]) -> None:
        with filled_stores.folder() as place:
            with opened(place / "a.db") as store:
                for act, source, words in steps:
                    ACTS[act](store, source, words)
                transfer.write_archive(store, place / "a.zip")
                before = snapshot(store)
            with opened(place / "b.db") as copy:
                transfer.restore(copy, place / "a.zip")
                transfer.write_archive(copy, place / "b.zip")
                assert snapshot(copy) == before
                assert copy.check() == []
            assert parts(place / "b.zip") == parts(place / "a.zip")

    def test_restore_of_a_store_with_rows_in_every_table(self, full: Path, empty: Store) -> None:
        found = transfer.restore(empty, full)
        assert [part.table for part in found.parts if not part.rows] == []
        transfer.write_archive(empty, full.with_name("again.zip"))
        assert parts(full.with_name("again.zip")) == parts(full)
        assert empty.check() == []

    def test_two_archives_differ_only_in_the_time(self, tmp_path: Path) -> None:
        with opened(tmp_path / "a.db") as store:  # its clock stands still
            everything(store)
            transfer.write_archive(store, tmp_path / "1.zip")
            transfer.write_archive(store, tmp_path / "2.zip")
        assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()

    def test_empty_store_is_archived_and_restored(self, tmp_path: Path, empty: Store) -> None:
        with opened(tmp_path / "other.db") as store:
            transfer.write_archive(store, tmp_path / "a.zip")
        assert transfer.restore(empty, tmp_path / "a.zip").rows("sessions") == 0

    def test_pseudonyms_are_the_same_after_a_restore(self, full: Path, empty: Store) -> None:
        assert empty.redactor.user("telegram", "5")  # known before, and then another
        with opened(full.with_suffix(".db")) as before:
            transfer.restore(empty, full)
            assert empty.redactor.user("telegram", "5") == before.redactor.user("telegram", "5")

    def test_restored_messages_are_found_by_search(self, full: Path, empty: Store) -> None:
        transfer.restore(empty, full)
        empty.settle()
        with opened(full.with_suffix(".db")) as before:
            before.settle()
            wanted = [(hit.session_id, hit.seq) for hit in before.search("found").items]
        assert wanted
        assert [(hit.session_id, hit.seq) for hit in empty.search("found").items] == wanted

    def test_restored_session_continues(self, full: Path, empty: Store) -> None:
        transfer.restore(empty, full)
        last = max(arrival.id for arrival in empty.inbox.find().items)
        assert empty.inbox.put(ANA, "one more", message_id="new").id > last
        for source in (ANA, GROUP, EVE):  # Eve's turn was left open; its lease is not carried
            with empty.turn(source, "are you there?", wait=1) as turn:
                turn.add_assistant("yes")
        assert empty.check() == []

    def test_restored_dedupe_keys_refuse_duplicates(self, full: Path, empty: Store) -> None:
        with opened(full.with_suffix(".db")) as store:
            with store.turn(ANA, "once", message_id="m1") as turn:
                turn.add_assistant("yes")
            transfer.write_archive(store, full, force=True)
        transfer.restore(empty, full)
        with empty.turn(ANA, "once", message_id="m1") as again:
            assert again.duplicate
            assert again.answer == "yes"


def snapshot(store: Store) -> list[Any]:
    """The store as its users see it."""
    found: list[Any] = []
    for session in store.sessions.find(limit=1000).items:
        log = store.transcript(session.id)
        revisions = [(one, log.at(one.number)) for one in log.revisions()]
        found.append((session, log.load(), log.history(), revisions))
        found.append(store.sessions.explain(session.id))
    found += [store.people.find(), store.inbox.find(limit=200), store.outbox.find(limit=200)]
    found += [store.usage.sum(by="session"), store.usage.sum(by="day")]
    return [*found, [store.people.linked(source) for source in (ANA, BEN)]]


class TestRefused:
    def test_store_with_conversations_is_refused(
        self, full: Path, empty: Store, tmp_path: Path
    ) -> None:
        empty.sessions.open(ANA)
        transfer.write_archive(empty, tmp_path / "before.zip")
        for dry_run in (False, True):
            with pytest.raises(IllegalMove, match="holds conversations"):
                transfer.restore(empty, full, dry_run=dry_run)
        transfer.write_archive(empty, tmp_path / "after.zip")
        assert parts(tmp_path / "after.zip") == parts(tmp_path / "before.zip")

    @pytest.mark.parametrize("content", [b"", b"hello", b"PK\x05\x06" + b"\0" * 18, None])
    def test_file_that_is_no_archive_is_refused(
        self, empty: Store, tmp_path: Path, content: bytes | None
    ) -> None:
        path = tmp_path / "x.zip"
        if content is None:
            with zipfile.ZipFile(path, "w") as packed:
                packed.writestr("readme.txt", "another ZIP")
        else:
            path.write_bytes(content)
        with pytest.raises(NotAStore, match="is not a Tertulia archive"):
            transfer.restore(empty, path)
        assert is_untouched(empty)

    def test_missing_file_and_folder_are_refused(self, empty: Store, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="There is no file"):
            transfer.restore(empty, tmp_path / "nothing.zip")
        with pytest.raises(StoreError, match="cannot be read"):
            transfer.restore(empty, tmp_path)

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(where=st.floats(0, 1, exclude_max=True))
    def test_truncated_archive_is_refused(self, full: Path, empty: Store, where: float) -> None:
        whole = full.read_bytes()
        cut = full.with_name("cut.zip")
        cut.write_bytes(whole[: int(len(whole) * where)])
        with pytest.raises((StoreCorrupt, NotAStore)):
            transfer.restore(empty, cut)
        assert is_untouched(empty)

    @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_archive_with_a_changed_byte_is_refused(
        self, full: Path, empty: Store, data: st.DataObject
    ) -> None:
        whole = bytearray(full.read_bytes())
        where = data.draw(st.integers(0, len(whole) - 1))
        whole[where] ^= data.draw(st.integers(1, 255))
        changed = full.with_name("changed.zip")
        changed.write_bytes(whole)
        try:
            found = archive.check(changed)
        except Error as problem:
            with pytest.raises(type(problem)):
                transfer.restore(empty, changed)
            assert is_untouched(empty)
        else:  # it meant nothing, such as the attributes of a file in a ZIP
            assert found == archive.read_manifest(full)

    def rebuilt(self, full: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
        """The archive with other contents, and no damage to the ZIP itself."""
        with zipfile.ZipFile(full) as packed:
            found = {name: packed.read(name) for name in packed.namelist()}
        change(found)
        path = full.with_name("rebuilt.zip")
        with zipfile.ZipFile(path, "w") as packed:
            for name, content in found.items():
                packed.writestr(name, content)
        return path

    def refused(self, store: Store, path: Path) -> str:
        with pytest.raises(StoreCorrupt) as caught:
            transfer.restore(store, path)
        assert is_untouched(store)
        assert caught.value.hint is not None
        return caught.value.message

    def test_changed_text_is_reported_with_its_file(self, full: Path, empty: Store) -> None:
        def change(found: dict[str, bytes]) -> None:
            found["messages.jsonl"] = found["messages.jsonl"].replace(b"found", b"forge")

        assert "messages.jsonl has" in self.refused(empty, self.rebuilt(full, change))

    def test_broken_line_is_reported_with_its_number(self, full: Path, empty: Store) -> None:
        def change(found: dict[str, bytes]) -> None:
            lines = found["events.jsonl"].split(b"\n")
            lines[2] = b'{"session": 1'
            found["events.jsonl"] = b"\n".join(lines)

        assert "events.jsonl, line 3: " in self.refused(empty, self.rebuilt(full, change))

    @pytest.mark.parametrize("line", [b"[]", b'{"person":"x"}', b"\xff", b"1"])
    def test_line_with_other_columns_is_refused(
        self, full: Path, empty: Store, line: bytes
    ) -> None:
        def change(found: dict[str, bytes]) -> None:
            found["people.jsonl"] = line + b"\n" + found["people.jsonl"]

        assert "people.jsonl, line 1: " in self.refused(empty, self.rebuilt(full, change))

    def test_missing_part_is_refused(self, full: Path, empty: Store) -> None:
        def change(found: dict[str, bytes]) -> None:
            del found["usage.jsonl"]

        assert "usage.jsonl is missing" in self.refused(empty, self.rebuilt(full, change))

    def manifest(self, full: Path, change: Callable[[dict[str, Any]], None]) -> Path:
        def changed(found: dict[str, bytes]) -> None:
            told = json.loads(found["manifest.json"])
            change(told)
            found["manifest.json"] = json.dumps(told).encode()

        return self.rebuilt(full, changed)

    def test_manifest_without_a_table_is_refused(self, full: Path, empty: Store) -> None:
        path = self.manifest(full, lambda told: told["parts"].pop(6))
        assert "does not name messages" in self.refused(empty, path)

    @pytest.mark.parametrize("field", ["parts", "made_at", "schema"])
    def test_manifest_without_a_field_is_refused(
        self, full: Path, empty: Store, field: str
    ) -> None:
        path = self.manifest(full, lambda told: told.pop(field))
        assert "manifest.json: " in self.refused(empty, path)

    def newer_part(self, told: dict[str, Any]) -> None:
        told["parts"].append({**told["parts"][0], "table": "dreams"})

    def newer_column(self, told: dict[str, Any]) -> None:
        told["parts"][1]["columns"].append("shoe_size")

    def test_archive_of_a_newer_version_is_refused(self, full: Path, empty: Store) -> None:
        for change in (
            lambda told: told.update(version=2),
            self.newer_part,
            self.newer_column,
        ):
            with pytest.raises(SchemaMismatch, match="newer Tertulia"):
                transfer.restore(empty, self.manifest(full, change))
            assert is_untouched(empty)

    def test_rows_that_break_a_constraint_are_refused(self, full: Path, empty: Store) -> None:
        """Sound by its hashes, and yet two sessions are current for one key."""

        def change(found: dict[str, bytes]) -> None:
            rows = [json.loads(line) for line in found["sessions.jsonl"].splitlines()]
            again = {**rows[0], "ref": 10_000, "id": "another", "title": None, "ended_at": None}
            rows += [again, {**again, "ref": 10_001, "id": "third"}]
            text = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
            found["sessions.jsonl"] = text
            told = json.loads(found["manifest.json"])
            for part in told["parts"]:
                if part["table"] == "sessions":
                    digest = hashlib.sha256(text).hexdigest()
                    part.update(rows=len(rows), bytes=len(text), sha256=digest)
            found["manifest.json"] = json.dumps(told).encode()

        with pytest.raises(Error):
            transfer.restore(empty, self.rebuilt(full, change))
        assert is_untouched(empty)

    def test_valid_archive_is_restored_after_a_refused_one(self, full: Path, empty: Store) -> None:
        cut = full.with_name("cut.zip")
        cut.write_bytes(full.read_bytes()[:-30])
        self.refused(empty, cut)
        assert transfer.restore(empty, full).rows("sessions") > 3


class TestTheFile:
    def test_file_is_private(self, full: Path) -> None:
        assert stat.S_IMODE(full.stat().st_mode) == 0o600

    def test_existing_file_is_kept_without_force(self, full: Path, empty: Store) -> None:
        before = full.read_bytes()
        with pytest.raises(ConfigError, match="exists already"):
            transfer.write_archive(empty, full)
        assert full.read_bytes() == before
        transfer.write_archive(empty, full, force=True)
        assert full.read_bytes() != before

    def test_failed_archive_leaves_no_file(self, empty: Store, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="could not be written"):
            transfer.write_archive(empty, tmp_path / "nowhere" / "a.zip")

        def fail(done: int, total: int) -> None:
            raise RuntimeError("the person at the terminal left")

        empty.sessions.open(ANA)
        with pytest.raises(RuntimeError):
            transfer.write_archive(empty, tmp_path / "a.zip", progress=fail)
        assert [name for name in os.listdir(tmp_path) if not name.startswith("empty.db")] == []

    def test_content_is_readable_json(self, full: Path) -> None:
        with zipfile.ZipFile(full) as packed:
            told = json.loads(packed.read("manifest.json"))
            first = json.loads(packed.read("sessions.jsonl").splitlines()[0])
        assert told["format"] == "tertulia-archive"
        assert told["made_by"] == f"tertulia {tertulia.__version__}"
        assert told["made_at"] == "2026-03-01T12:00:00Z"
        assert first["key"] == "agent:main:telegram:dm:12025550101"

    def test_archive_is_one_consistent_state(self, tmp_path: Path) -> None:
        """Whoever talks during the export is in it with all their messages, or not at all."""
        with opened(tmp_path / "a.db") as store:
            filled_stores.talk(store, ANA, "before")
            told = iter(range(1000))

            def meanwhile(done: int, total: int) -> None:
                filled_stores.talk(store, BEN, f"during {next(told)}")

            transfer.write_archive(store, tmp_path / "a.zip", progress=meanwhile)
            assert store.sessions.count() == 2
        with opened(tmp_path / "b.db") as copy:
            transfer.restore(copy, tmp_path / "a.zip")
            assert [one.origin.platform for one in copy.sessions.find().items] == ["telegram"]
            assert copy.check() == []

    def test_progress_ends_at_the_total(self, full: Path, empty: Store) -> None:
        seen: list[tuple[int, int]] = []
        found = transfer.restore(empty, full, progress=lambda *step: seen.append(step))
        assert seen == sorted(seen)
        assert seen[-1] == (found.total, found.total)

    def test_dry_run_stores_nothing(self, full: Path, empty: Store) -> None:
        found = transfer.restore(empty, full, dry_run=True)
        assert found.rows("messages") > 10
        assert is_untouched(empty)


RESTORE = """
import os, signal, sys
import tertulia
from tertulia import transfer

def step(done, total):
    if done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

with tertulia.open(sys.argv[1]) as store:
    transfer.restore(store, sys.argv[2], progress=step)
"""


class TestKilled:
    @pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
    def test_kill_during_a_restore_leaves_the_store_empty(
        self, full: Path, tmp_path: Path, share: float
    ) -> None:
        path = tmp_path / "new.db"
        at = str(max(1, int(archive.read_manifest(full).total * share)))
        folders = os.pathsep.join(part for part in sys.path if part)
        done = subprocess.run(
            [sys.executable, "-c", RESTORE, str(path), str(full), at],
            env={**os.environ, "PYTHONPATH": folders},
            check=False,
        )
        assert done.returncode == -9
        with opened(path) as store:
            assert is_untouched(store)
            transfer.restore(store, full)
            transfer.write_archive(store, tmp_path / "again.zip")
        assert parts(tmp_path / "again.zip") == parts(full)


class TestMemory:
    def peak(self, work: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    @pytest.mark.check
    def test_memory_does_not_grow_with_the_store(self, tmp_path: Path) -> None:
        peaks: list[tuple[int, int]] = []
        for count in (2_000, 12_000):
            path = tmp_path / f"{count}.zip"
            with opened(tmp_path / f"{count}.db") as store:
                store._indexer.stop()  # it is at work beside us, with memory of its own
                log = store.transcript(store.sessions.open(ANA).id)
                words = {"role": "user", "content": "x" * 500}
                for _ in range(count // 500):
                    log.extend([words] * 500)
                wrote = self.peak(lambda s=store, p=path: transfer.write_archive(s, p))  # type: ignore[misc]
            with opened(tmp_path / f"{count}-back.db") as copy:
                copy._indexer.stop()
                read = self.peak(lambda c=copy, p=path: transfer.restore(c, p))  # type: ignore[misc]
            peaks.append((wrote, read))
        small, large = peaks
        # Ten thousand messages more are five million characters more.
        assert large[0] < small[0] + 1_000_000
        assert large[1] < small[1] + 1_000_000
