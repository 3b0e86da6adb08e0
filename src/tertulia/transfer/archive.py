"""Write a whole store to one file, and restore it.

The file is a ZIP: for each table a `<table>.jsonl` with one row a line, and a `manifest.json` with
the program that made it and the rows, bytes and hash of each part. Two archives of the same store
differ only in the time in the manifest.

An archive holds one consistent state of the store. A restore is one transaction, and each part is
compared with its hash before the commit: a damaged archive, a full disk or a kill leaves the store
as it was, empty.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import IO, Any

import msgspec

from tertulia.errors import (
    IllegalMove,
    NotAStore,
    NotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
)
from tertulia.install_command import upgrade_command
from tertulia.storage import statements, tables
from tertulia.storage.base import Row, Transaction
from tertulia.storage.tables import TABLES, Table
from tertulia.store import Store
from tertulia.transfer.atomic_file import new_file
from tertulia.transfer.progress_callback import Progress
from tertulia.version import __version__

FORMAT = "tertulia-archive"
VERSION = 1
MANIFEST = "manifest.json"

# The time of every ZIP entry: the earliest ZIP allows. The real time is in the manifest.
_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
_COMPRESSION_LEVEL = 6
# At most this many rows are inserted by one call when an archive is restored.
_ROWS_PER_INSERT = 200
# No database stores a longer text, so an archive of ours has no longer line.
_LONGEST_LINE = 2**30 * 3 // 2
_LARGEST_MANIFEST = 2**24
# The exceptions by which `zipfile` says that a file is damaged or uses what it does not support.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

_encode = msgspec.json.Encoder().encode


class Part(msgspec.Struct, frozen=True):
    """One table in an archive."""

    table: str
    columns: tuple[str, ...]
    rows: int
    bytes: int
    sha256: str

    @property
    def file(self) -> str:
        """The name of its entry in the ZIP."""
        return f"{self.table}.jsonl"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of an archive: its format, its maker and its parts."""

    format: str
    version: int
    made_by: str
    made_at: datetime
    schema: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def total(self) -> int:
        """The number of rows in all parts."""
        return sum(part.rows for part in self.parts)

    def rows(self, table: str) -> int:
        """Return the number of rows of a table."""
        return next((part.rows for part in self.parts if part.table == table), 0)


# -- writing


def write_archive(
    store: Store,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write one consistent state of a store to a new file, and return the manifest.

    The store may be in use. Raise `ConfigError` if the file exists and `force` is not set, and
    `StoreError` if it cannot be written.
    """
    with new_file(path, force=force) as partial:
        # `read` repeats its function after a lost connection; it then rewrites the whole file.
        return store.context.read(lambda tx: _write_zip(tx, partial, _now(store), progress))


def _write_zip(tx: Transaction, path: str, now: datetime, progress: Progress | None) -> Manifest:
    step = _counter(progress, lambda: tables.count_rows(tx))
    with open(path, "wb") as file:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            parts = tuple(_write_table(tx, table, archive, step) for table in TABLES)
            manifest = Manifest(
                format=FORMAT,
                version=VERSION,
                made_by=f"tertulia {__version__}",
                made_at=now,
                schema=_schema(),
                parts=parts,
            )
            with _entry(archive, MANIFEST) as stream:
                stream.write(msgspec.json.format(_encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return manifest


def _write_table(
    tx: Transaction, table: Table, archive: zipfile.ZipFile, step: Callable[[int], None]
) -> Part:
    digest, count, size = hashlib.sha256(), 0, 0
    with _entry(archive, f"{table.name}.jsonl") as stream:
        for rows in table.pages(tx):
            for row in rows:
                line = (
                    _encode(dict(zip(table.columns, map(_to_json_value, row), strict=True))) + b"\n"
                )
                digest.update(line)
                size += len(line)
                stream.write(line)
            count += len(rows)
            step(len(rows))
    return Part(table.name, table.columns, count, size, digest.hexdigest())


def _entry(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    info = zipfile.ZipInfo(name, _ENTRY_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    info._compresslevel = _COMPRESSION_LEVEL  # type: ignore[attr-defined]
    return archive.open(info, "w", force_zip64=True)


def _to_json_value(value: Any) -> Any:
    """Return a value that JSON can represent: bytes become base64."""
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    return value


# -- reading


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Return the manifest of an archive.

    Raise `NotFound` if there is no such file, `NotAStore` if it is not an archive, `StoreCorrupt`
    if it is damaged, and `SchemaMismatch` if only a newer version can restore it.
    """
    with _open_archive(path) as archive:
        return _read_manifest(archive, os.fspath(path))


def restore(
    store: Store,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Fill an empty store from an archive: all of it, or nothing if anything is wrong.

    A dry run reads and checks the whole archive and writes nothing. Raise `IllegalMove` if the
    store is not empty, else as `read_manifest` does.
    """
    name = os.fspath(path)

    def work(tx: Transaction) -> Manifest:
        _require_empty(tx, store)
        return _restore_rows(name, lambda table, rows: table.put(tx, rows), progress, tx)

    if dry_run:
        store.context.read(lambda tx: _require_empty(tx, store))
        return check(path, progress=progress)
    manifest = store.context.write(work)
    store.context.forget_secret()  # its pseudonyms now come from the secret in the archive
    store.context.notify_indexer()
    return manifest


def check(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Manifest:
    """Read the whole archive and return its manifest; raise `StoreCorrupt` if they differ."""
    return _restore_rows(os.fspath(path), lambda table, rows: None, progress, None)


def _restore_rows(
    path: str,
    put: Callable[[Table, list[Row]], None],
    progress: Progress | None,
    tx: Transaction | None,
) -> Manifest:
    """Pass every page of rows to `put`; then complete the copy in `tx`, if there is one."""
    with _open_archive(path) as archive:
        manifest = _read_manifest(archive, path)
        step = _counter(progress, lambda: manifest.total)
        parts = {part.table: part for part in manifest.parts}
        for table in TABLES:
            if table.name in parts:
                for rows in _read_rows(archive, path, table, parts[table.name]):
                    put(table, rows)
                    step(len(rows))
    if tx is not None:
        tables.finish_copy(tx)
    return manifest


def _read_rows(
    archive: zipfile.ZipFile, path: str, table: Table, part: Part
) -> Iterator[list[Row]]:
    """Yield the rows of a table in pages; at the end, compare it with the manifest."""
    digest, count, size = hashlib.sha256(), 0, 0
    rows: list[Row] = []
    order = [(name, table.added.get(name)) for name in table.columns]
    for line in _lines(archive, path, part):
        digest.update(line)
        size += len(line)
        count += 1
        rows.append(_row(line, order, part, path, count))
        if len(rows) >= min(_ROWS_PER_INSERT, table.page):
            yield rows
            rows = []
    if rows:
        yield rows
    if (count, size, digest.hexdigest()) != (part.rows, part.bytes, part.sha256):
        raise damaged(
            path,
            f"{part.file} has {count} rows and {size} bytes that do not match its hash; the "
            f"manifest says {part.rows} rows and {part.bytes} bytes",
        )


def _lines(archive: zipfile.ZipFile, path: str, part: Part) -> Iterator[bytes]:
    number = 0
    try:
        with archive.open(part.file) as stream:
            while line := stream.readline(_LONGEST_LINE):
                number += 1
                yield line
    except KeyError as problem:
        raise damaged(path, f"{part.file} is missing") from problem
    except _ZIP_ERRORS as problem:
        raise damaged(path, f"{part.file}, after line {number}: {problem}") from problem


def _row(
    line: bytes, order: list[tuple[str, Any]], part: Part, path: str, number: int
) -> tuple[Any, ...]:
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
        values = {name: _from_json_value(fields[name]) for name in part.columns}
        return tuple(values.get(name, new) for name, new in order)
    except KeyError as problem:
        raise damaged(path, f"{part.file}, line {number}: no column {problem}") from problem
    except (msgspec.MsgspecError, ValueError, TypeError) as problem:
        raise damaged(path, f"{part.file}, line {number}: {problem}") from problem


def _from_json_value(value: Any) -> Any:
    """Return the value that `_to_json_value` encoded; raise ValueError for anything else."""
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{value!r} is neither a text nor an integer")


@contextlib.contextmanager
def _open_archive(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    name = os.fspath(path)
    try:
        with open(name, "rb") as file, _open_zip(file, name) as archive:
            yield archive
    except FileNotFoundError as problem:
        raise NotFound(f"There is no file {name}.", hint="Check its name.") from problem
    except OSError as problem:
        raise StoreError(
            f"{name} cannot be read: {problem.strerror or problem}.",
            hint="Nothing was stored. Check that it is a file you may read.",
            where=name,
        ) from problem


def _open_zip(file: IO[bytes], name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (*_ZIP_ERRORS, ValueError) as problem:
        file.seek(0)
        if file.read(4) == b"PK\x03\x04":
            raise damaged(name, f"its end is missing or broken ({problem})") from problem
        raise _not_an_archive(name) from problem


def _read_manifest(archive: zipfile.ZipFile, path: str) -> Manifest:
    try:
        if archive.getinfo(MANIFEST).file_size > _LARGEST_MANIFEST:
            raise damaged(path, f"{MANIFEST} is too large")
        text = archive.read(MANIFEST)
    except KeyError as problem:
        raise _not_an_archive(path) from problem
    except _ZIP_ERRORS as problem:
        raise damaged(path, f"{MANIFEST}: {problem}") from problem
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        if fields.get("format") != FORMAT:
            raise _not_an_archive(path)
        if fields.get("version") != VERSION:
            raise _newer(path, f"its format version is {fields.get('version')}")
        manifest = msgspec.convert(fields, Manifest)
    except msgspec.MsgspecError as problem:
        raise damaged(path, f"{MANIFEST}: {problem}") from problem
    _require_known_columns(manifest, path)
    return manifest


def _require_known_columns(manifest: Manifest, path: str) -> None:
    """Raise unless this schema has every column of the archive; it may have newer ones."""
    by_name = {table.name: table for table in TABLES}
    for part in manifest.parts:
        table = by_name.get(part.table)
        unknown = set(part.columns) - set(table.columns if table else ())
        if table is None or unknown:
            raise _newer(path, f"it has {', '.join(sorted(unknown)) or 'rows'} of {part.table}")
        missing = set(table.columns) - set(part.columns) - set(table.added)
        if missing:
            raise damaged(path, f"{part.file} lacks {', '.join(sorted(missing))}")
    absent = set(by_name) - {part.table for part in manifest.parts}
    if absent and set(manifest.schema) >= set(_schema()):
        raise damaged(path, f"{MANIFEST} does not name {', '.join(sorted(absent))}")


def _require_empty(tx: Transaction, store: Store) -> None:
    if not tables.is_empty(tx):
        raise IllegalMove(
            f"{store.path} holds conversations; only an empty store can be restored.",
            hint="Give a new store with --store. Nothing was changed.",
        )


def damaged(path: str, detail: str) -> StoreCorrupt:
    """Return the error for a damaged archive."""
    return StoreCorrupt(
        f"The archive {path} is damaged: {detail}.",
        hint="Nothing was stored. Use another copy of it.",
        where=path,
    )


def _not_an_archive(path: str) -> NotAStore:
    return NotAStore(
        f"{path} is not a Tertulia archive.",
        hint="Create one with: tertulia export --format archive --output FILE",
        where=path,
    )


def _newer(path: str, reason: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{path} was made by a newer Tertulia: {reason}.",
        hint=f"Nothing was stored. Upgrade this program: {upgrade_command()}",
        where=path,
    )


def _schema() -> tuple[str, ...]:
    """Return the names of the migrations, which are the same for every database."""
    return tuple(name for name, _ in statements.migrations("sqlite"))


def _now(store: Store) -> datetime:
    return store.context.clock.now()


def _counter(progress: Progress | None, total: Callable[[], int]) -> Callable[[int], None]:
    """Return a function that adds up rows and reports them; without `progress` it does nothing."""
    if progress is None:
        return lambda count: None
    report, total_rows, done = progress, total(), 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        report(min(done, total_rows), total_rows)

    return step
