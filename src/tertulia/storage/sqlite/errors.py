"""What SQLite raises, said in Tertulia's words. Translated here once, and nowhere else."""

from __future__ import annotations

import apsw

from tertulia.errors import (
    ConfigError,
    Error,
    NotAStore,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

# What the driver raises: SQLite's own errors, and Python's for values that are no text or no
# number of a database. `translate_errors` knows all of them.
FOREIGN = (apsw.Error, UnicodeError, OverflowError)

_KINDS: tuple[tuple[type[apsw.Error], type[StoreError], str, str], ...] = (
    (
        apsw.BusyError,
        StoreUnavailable,
        "The store is in use by another program that does not let go of it",
        "Close that program, or try again later.",
    ),
    (
        apsw.LockedError,
        StoreUnavailable,
        "A part of the store is locked",
        "Try again; if it stays so, restart the program.",
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
        "Look whether its folder exists and whether this user may write to it.",
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
        "This file is no Tertulia store",
        "Name another file; this one was not changed.",
    ),
    (
        apsw.IOError,
        StoreUnavailable,
        "The disk failed while the store was read or written; this call stored nothing",
        "Look at the disk and the system log, then try again.",
    ),
)


def translate_errors(problem: Exception, where: str) -> Error:
    """The Tertulia error for one of `FOREIGN`."""
    if isinstance(problem, UnicodeDecodeError):
        return translate_errors(apsw.CorruptError(str(problem)), where)
    if isinstance(problem, UnicodeEncodeError | OverflowError):
        return ConfigError(
            f"A value cannot be stored or looked for: {problem}.",
            hint="Give valid Unicode text, and numbers below 2⁶³.",
        )
    for kind, ours, words, hint in _KINDS:
        if isinstance(problem, kind):
            return ours(f"{words} ({where}: {problem}).", hint=hint, where=where)
    if isinstance(problem, apsw.SQLError) and "no such table" in str(problem):
        # SQLite has one code for all that is wrong with a statement, and ours are tested.
        return SchemaMismatch(
            f"The store is not of this version, or was moved to another one ({where}: {problem}).",
            hint="Open it again: that says where it is, or what to do.",
            where=where,
        )
    return StoreError(
        f"SQLite refused ({where}: {type(problem).__name__}: {problem}).",
        hint="Look for faults with: tertulia store check",
        where=where,
    )
