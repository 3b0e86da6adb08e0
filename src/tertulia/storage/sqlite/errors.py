"""The translation of SQLite's errors into Tertulia's. No other module translates them."""

from __future__ import annotations

import apsw

from tertulia.errors import (
    Error,
    NotAStore,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from tertulia.storage.error_kinds import ErrorKind, find_kind, invalid_value

# The errors that the driver raises: SQLite's own, and Python's for values that no column can hold
# (invalid Unicode, too large numbers). `translate_errors` accepts all of them.
FOREIGN = (apsw.Error, UnicodeError, OverflowError)

_KINDS: tuple[ErrorKind, ...] = (
    (
        apsw.BusyError,
        StoreUnavailable,
        "The store is locked by another program",
        "Close that program, or try again later.",
    ),
    (
        apsw.LockedError,
        StoreUnavailable,
        "A part of the store is locked",
        "Try again; if the error persists, restart the program.",
    ),
    (
        apsw.ReadOnlyError,
        StoreUnavailable,
        "The store may only be read",
        "Give this user the right to write to the file and to its folder.",
    ),
    (
        apsw.PermissionsError,
        StoreUnavailable,
        "This user may not open the store",
        "Give this user the right to read and write the file and its folder.",
    ),
    (
        apsw.CantOpenError,
        StoreUnavailable,
        "The store cannot be opened",
        "Check that its folder exists and that this user may write to it.",
    ),
    (
        apsw.FullError,
        StoreFull,
        "There is no space left for the store; this call stored nothing",
        "Free some space and try again.",
    ),
    (
        apsw.CorruptError,
        StoreCorrupt,
        "The store is damaged",
        "Keep the file, run: tertulia store check, and restore the newest backup.",
    ),
    (
        apsw.NotADBError,
        NotAStore,
        "This file holds no Tertulia store",
        "Name another file; this one was not changed.",
    ),
    (
        apsw.IOError,
        StoreUnavailable,
        "The disk failed while the store was read or written; this call stored nothing",
        "Check the disk and the system log, then try again.",
    ),
)


def translate_errors(problem: Exception, where: str) -> Error:
    """Return the Tertulia error for one of `FOREIGN`."""
    if isinstance(problem, UnicodeDecodeError):
        return translate_errors(apsw.CorruptError(str(problem)), where)
    if isinstance(problem, UnicodeEncodeError | OverflowError):
        return invalid_value(str(problem))
    if (error := find_kind(problem, _KINDS, where, str(problem))) is not None:
        return error
    if isinstance(problem, apsw.SQLError) and "no such table" in str(problem):
        # SQLite has one error code for every fault of a statement, so only the text tells this one.
        # Our statements are tested against the schema, so a missing table means another schema.
        return SchemaMismatch(
            f"The store has another schema version, or was moved elsewhere ({where}: {problem}).",
            hint="Open it again: the error then says where it is, or what to do.",
            where=where,
        )
    return StoreError(
        f"SQLite refused ({where}: {type(problem).__name__}: {problem}).",
        hint="Check the store with: tertulia store check",
        where=where,
    )
