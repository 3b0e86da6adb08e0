"""What PostgreSQL raises, said in Tertulia's words. Translated here once, and nowhere else."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from tertulia.errors import (
    ConfigError,
    Error,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

_KINDS: tuple[tuple[type[Exception], type[StoreError], str, str], ...] = (
    (
        pg.DiskFull,
        StoreFull,
        "The database server has no space left; this call stored nothing",
        "Free some space on the server and try again.",
    ),
    (
        pg.InvalidPassword,
        StoreUnavailable,
        "The database does not accept this user and password",
        "Look at the address of the store, or at PGPASSWORD.",
    ),
    (
        pg.InvalidAuthorizationSpecification,
        StoreUnavailable,
        "The database does not let this user in",
        "Look at the address of the store and at the server's pg_hba.conf.",
    ),
    (
        pg.InvalidCatalogName,
        StoreUnavailable,
        "There is no such database",
        "Make it first: createdb NAME.",
    ),
    (
        pg.InsufficientPrivilege,
        StoreUnavailable,
        "This user may not do that in the database",
        "Give the user the right to create and change tables in its schema.",
    ),
    (
        pg.ReadOnlySqlTransaction,
        StoreUnavailable,
        "The database may only be read",
        "Connect to the primary server, not to a replica.",
    ),
    (
        # What a replica says to a write: it knows no serializable transactions.
        pg.FeatureNotSupported,
        StoreUnavailable,
        "The database may only be read",
        "Connect to the primary server, not to a replica.",
    ),
    (
        pg.UndefinedTable,
        SchemaMismatch,
        "The store in this database is not of this version, or was moved to another one",
        "Open it again: that says where it is, or what to do.",
    ),
    (
        pg.DataCorrupted,
        StoreCorrupt,
        "The database is damaged",
        "Keep it as it is and restore the newest backup.",
    ),
    (
        pg.QueryCanceled,
        StoreUnavailable,
        "The database gave up on a statement that took too long; this call stored nothing",
        "Raise the server's statement_timeout, or try again.",
    ),
    (
        pg.LockNotAvailable,
        StoreUnavailable,
        "The database gave up waiting for somebody else; this call stored nothing",
        "Raise the server's lock_timeout, or try again.",
    ),
    (
        pg.SerializationFailure,
        StoreUnavailable,
        "Too many others change the same conversations",
        "Try again.",
    ),
    (
        pg.DeadlockDetected,
        StoreUnavailable,
        "Too many others change the same conversations",
        "Try again.",
    ),
    (
        PoolTimeout,
        StoreUnavailable,
        "The database gave no connection in time",
        "Look whether the server runs and how many connections it allows.",
    ),
    (
        psycopg.OperationalError,
        StoreUnavailable,
        "The database cannot be reached",
        "Look whether the server runs at that address, then try again.",
    ),
)


# What can come out of the driver: its own errors, and those of values that it cannot send.
FOREIGN = (psycopg.Error, PoolTimeout, UnicodeEncodeError, OverflowError)


def translate_errors(problem: Exception, where: str) -> Error:
    """The Tertulia error for one of PostgreSQL's."""
    told = " ".join(str(problem).split())
    # The driver's own complaint of a zero character, and the server's of a value of another type.
    if isinstance(problem, UnicodeEncodeError | OverflowError | pg.UndefinedFunction) or (
        type(problem) is psycopg.DataError
    ):
        return ConfigError(
            f"A value cannot be stored or looked for: {told}.",
            hint="Give valid Unicode text, and numbers below 2⁶³.",
        )
    for kind, ours, words, hint in _KINDS:
        if isinstance(problem, kind):
            return ours(f"{words} ({where}: {told}).", hint=hint, where=where)
    return StoreError(
        f"PostgreSQL refused ({where}: {type(problem).__name__}: {told}).",
        hint="Nothing of this call was stored.",
        where=where,
    )
