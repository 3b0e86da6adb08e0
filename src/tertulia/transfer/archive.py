"""A whole store in one file, and back.

The file is a ZIP: for each table a `<table>.jsonl` with one row a line, and a `manifest.json` that
says what made it, which rows and bytes each part has, and the hash of each. Two archives of the
same store differ in nothing but the time in the manifest.

What is read is one state of the store. What is restored is written in one transaction, and each
part is compared with its hash before that is committed: a damaged archive, a full disk or a kill
leave the store as it was, empty.
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
from tertulia.storage import statements, tables
from tertulia.storage.base import Row, Transaction
from tertulia.storage.tables import (
    TABLES,
    Table,
)
from tertulia.store import Store
from tertulia.transfer.atomic_file import (
    Progress,
    new_file,
)
from tertulia.version import __version__

FORMAT = "tertulia-archive"
VERSION = 1
MANIFEST = "manifest.json"

# A fixed moment, the first a ZIP knows: what was packed when is said once, in the manifest.
_ANY_TIME = (1980, 1, 1, 0, 0, 0)
_LEVEL = 6
_ROWS = 200
# No database takes a longer text; a line that promises more was not written here.
_LONGEST_LINE = 2**30 * 3 // 2
_SMALL = 2**24
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)

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
        return f"{self.table}.jsonl"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive says of itself."""

    format: str
    version: int
    made_by: str
    made_at: datetime
    schema: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def total(self) -> int:
        """All rows."""
        return sum(part.rows for part in self.parts)

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return next((part.rows for part in self.parts if part.table == table), 0)


# -- writing


def write_archive(
    store: Store,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write a whole store to a new file, as it stands at one moment, while it is in use."""
    with new_file(path, force=force) as partial:
        # The work may run again, after a lost connection; then the file is begun anew.
        return store.context.db.read(lambda tx: _pack(tx, partial, _now(store), progress))


def _pack(tx: Transaction, path: str, now: datetime, progress: Progress | None) -> Manifest:
    step = _counter(progress, lambda: _count(tx))
    with open(path, "wb") as file:
        with zipfile.ZipFile(file, "w", allowZip64=True) as packed:
            parts = tuple(_pack_table(tx, table, packed, step) for table in TABLES)
            manifest = Manifest(
                format=FORMAT,
                version=VERSION,
                made_by=f"tertulia {__version__}",
                made_at=now,
                schema=_schema(),
                parts=parts,
            )
            with _entry(packed, MANIFEST) as stream:
                stream.write(msgspec.json.format(_encode(manifest), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return manifest


def _pack_table(
    tx: Transaction, table: Table, packed: zipfile.ZipFile, step: Callable[[int], None]
) -> Part:
    digest, count, size = hashlib.sha256(), 0, 0
    with _entry(packed, f"{table.name}.jsonl") as stream:
        for rows in table.pages(tx):
            for row in rows:
                line = _encode(dict(zip(table.columns, map(_plain, row), strict=True))) + b"\n"
                digest.update(line)
                size += len(line)
                stream.write(line)
            count += len(rows)
            step(len(rows))
    return Part(table.name, table.columns, count, size, digest.hexdigest())


def _entry(packed: zipfile.ZipFile, name: str) -> IO[bytes]:
    info = zipfile.ZipInfo(name, _ANY_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    info._compresslevel = _LEVEL  # type: ignore[attr-defined]
    return packed.open(info, "w", force_zip64=True)


def _plain(value: Any) -> Any:
    """Bytes are not JSON; everything else in a row is."""
    if isinstance(value, bytes | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    return value


# -- reading


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """What an archive says of itself, as far as this program can restore it."""
    with _opened(path) as packed:
        return _manifest(packed, os.fspath(path))


def restore(
    store: Store,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Fill an empty store from an archive: all of it, or nothing where anything is wrong.

    A dry run reads and compares all of the archive, and writes nothing.
    """
    name = os.fspath(path)

    def work(tx: Transaction) -> Manifest:
        _require_empty(tx, store)
        return _unpack(name, lambda table, rows: table.put(tx, rows), progress, tx)

    if dry_run:
        store.context.db.read(lambda tx: _require_empty(tx, store))
        return check(path, progress=progress)
    manifest = store.context.db.write(work)
    store.__dict__.pop("redactor", None)  # the pseudonyms are those of the archive from now on
    store.context.notify()
    return manifest


def check(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Manifest:
    """Read all of an archive and compare it with its manifest; raises where they differ."""
    return _unpack(os.fspath(path), lambda table, rows: None, progress, None)


def _unpack(
    path: str,
    put: Callable[[Table, list[Row]], None],
    progress: Progress | None,
    tx: Transaction | None,
) -> Manifest:
    with _opened(path) as packed:
        manifest = _manifest(packed, path)
        step = _counter(progress, lambda: manifest.total)
        parts = {part.table: part for part in manifest.parts}
        for table in TABLES:
            if table.name in parts:
                for rows in _unpacked(packed, path, table, parts[table.name]):
                    put(table, rows)
                    step(len(rows))
    if tx is not None:
        tables.settle(tx)
    return manifest


def _unpacked(packed: zipfile.ZipFile, path: str, table: Table, part: Part) -> Iterator[list[Row]]:
    """The rows of a table; at its end it is compared with what the manifest says."""
    digest, count, size = hashlib.sha256(), 0, 0
    rows: list[Row] = []
    order = [(name, table.added.get(name)) for name in table.columns]
    for line in _lines(packed, path, part):
        digest.update(line)
        size += len(line)
        count += 1
        rows.append(_row(line, order, part, path, count))
        if len(rows) >= min(_ROWS, table.page):
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


def _lines(packed: zipfile.ZipFile, path: str, part: Part) -> Iterator[bytes]:
    number = 0
    try:
        with packed.open(part.file) as stream:
            while line := stream.readline(_LONGEST_LINE):
                number += 1
                yield line
    except KeyError as problem:
        raise damaged(path, f"{part.file} is missing") from problem
    except _BROKEN as problem:
        raise damaged(path, f"{part.file}, after line {number}: {problem}") from problem


def _row(
    line: bytes, order: list[tuple[str, Any]], part: Part, path: str, number: int
) -> tuple[Any, ...]:
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
        values = {name: _value(found[name]) for name in part.columns}
        return tuple(values.get(name, new) for name, new in order)
    except KeyError as problem:
        raise damaged(path, f"{part.file}, line {number}: it has no {problem}") from problem
    except (msgspec.MsgspecError, ValueError, TypeError) as problem:
        raise damaged(path, f"{part.file}, line {number}: {problem}") from problem


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{value!r} is neither a text nor a whole number")


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    name = os.fspath(path)
    try:
        with open(name, "rb") as file, _directory(file, name) as packed:
            yield packed
    except FileNotFoundError as problem:
        raise NotFound(f"There is no file {name}.", hint="Look at its name.") from problem
    except OSError as problem:
        raise StoreError(
            f"{name} cannot be read: {problem.strerror or problem}.",
            hint="Nothing was stored. Look whether it is a file that you may read.",
            where=name,
        ) from problem


def _directory(file: IO[bytes], name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except (*_BROKEN, ValueError) as problem:
        file.seek(0)
        if file.read(4) == b"PK\x03\x04":
            raise damaged(name, f"its end is missing or broken ({problem})") from problem
        raise _not_an_archive(name) from problem


def _manifest(packed: zipfile.ZipFile, path: str) -> Manifest:
    try:
        if packed.getinfo(MANIFEST).file_size > _SMALL:
            raise damaged(path, f"{MANIFEST} is too large")
        text = packed.read(MANIFEST)
    except KeyError as problem:
        raise _not_an_archive(path) from problem
    except _BROKEN as problem:
        raise damaged(path, f"{MANIFEST}: {problem}") from problem
    try:
        told = msgspec.json.decode(text, type=dict[str, Any])
        if told.get("format") != FORMAT:
            raise _not_an_archive(path)
        if told.get("version") != VERSION:
            raise _newer(path, f"its form is of version {told.get('version')}")
        manifest = msgspec.convert(told, Manifest)
    except msgspec.MsgspecError as problem:
        raise damaged(path, f"{MANIFEST}: {problem}") from problem
    _require_known(manifest, path)
    return manifest


def _require_known(manifest: Manifest, path: str) -> None:
    """Every part has a place here; what this schema has besides came after the archive."""
    by_name = {table.name: table for table in TABLES}
    for part in manifest.parts:
        table = by_name.get(part.table)
        strange = set(part.columns) - set(table.columns if table else ())
        if table is None or strange:
            raise _newer(path, f"it has {', '.join(sorted(strange)) or 'rows'} of {part.table}")
        missing = set(table.columns) - set(part.columns) - set(table.added)
        if missing:
            raise damaged(path, f"{part.file} lacks {', '.join(sorted(missing))}")
    absent = set(by_name) - {part.table for part in manifest.parts}
    if absent and set(manifest.schema) >= set(_schema()):
        raise damaged(path, f"{MANIFEST} does not name {', '.join(sorted(absent))}")


def _require_empty(tx: Transaction, store: Store) -> None:
    if not tables.is_empty(tx):
        raise IllegalMove(
            f"{store.path} has conversations in it; an archive fills an empty store.",
            hint="Name a new store with --store; nothing was changed.",
        )


def damaged(path: str, place: str) -> StoreCorrupt:
    """An archive that is not what was written, with the place."""
    return StoreCorrupt(
        f"The archive {path} is damaged: {place}.",
        hint="Nothing was stored. Take another copy of it.",
        where=path,
    )


def _not_an_archive(path: str) -> NotAStore:
    return NotAStore(
        f"{path} is no archive of Tertulia.",
        hint="Make one with: tertulia export --format archive --output FILE",
        where=path,
    )


def _newer(path: str, reason: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"{path} was made by a newer Tertulia: {reason}.",
        hint="Upgrade this program: pip install --upgrade tertulia. Nothing was stored.",
        where=path,
    )


def _schema() -> tuple[str, ...]:
    """The names of the migrations, which are the same for every database."""
    return tuple(name for name, _ in statements.migrations("sqlite"))


def _now(store: Store) -> datetime:
    return store.context.clock.now()


def _count(tx: Transaction) -> int:
    row = tx.one("copy_count")
    return int(row[0]) if row else 0


def _counter(progress: Progress | None, total: Callable[[], int]) -> Callable[[int], None]:
    """Adds up and tells; without anybody to tell, nothing is counted."""
    if progress is None:
        return lambda count: None
    tell, whole, done = progress, total(), 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        tell(min(done, whole), whole)

    return step
