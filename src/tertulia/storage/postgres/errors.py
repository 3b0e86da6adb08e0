"""The translation of PostgreSQL's errors into Tertulia's. No other module translates them."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from tertulia.errors import (
    Error,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from tertulia.storage.error_kinds import ErrorKind, find_kind, invalid_value

_KINDS: tuple[ErrorKind, ...] = (
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
        "Check the address of the store, or PGPASSWORD.",
    ),
    (
        pg.InvalidAuthorizationSpecification,
        StoreUnavailable,
        "The database does not let this user in",
        "Check the address of the store and the server's pg_hba.conf.",
    ),
    (
        pg.InvalidCatalogName,
        StoreUnavailable,
        "There is no such database",
        "Create it first: createdb NAME.",
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
        # A replica answers a write with this error: it has no serializable transactions.
        pg.FeatureNotSupported,
        StoreUnavailable,
        "The database may only be read",
        "Connect to the primary server, not to a replica.",
    ),
    (
        pg.UndefinedTable,
        SchemaMismatch,
        "The store in this database has another schema version, or was moved elsewhere",
        "Open it again: the error then says where it is, or what to do.",
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
        "The database gave up waiting for a lock; this call stored nothing",
        "Raise the server's lock_timeout, or try again.",
    ),
    (
        pg.SerializationFailure,
        StoreUnavailable,
        "Too many other transactions change the same conversations",
        "Try again.",
    ),
    (
        pg.DeadlockDetected,
        StoreUnavailable,
        "Too many other transactions change the same conversations",
        "Try again.",
    ),
    (
        PoolTimeout,
        StoreUnavailable,
        "The database gave no connection in time",
        "Check that the server runs and how many connections it allows.",
    ),
    (
        psycopg.OperationalError,
        StoreUnavailable,
        "The database cannot be reached",
        "Check that the server runs at that address, then try again.",
    ),
)


# The errors that the driver raises: its own, and Python's for values that it cannot send.
FOREIGN = (psycopg.Error, PoolTimeout, UnicodeEncodeError, OverflowError)
_INVALID_VALUE = (
    UnicodeEncodeError,
    OverflowError,
    pg.UndefinedFunction,
    pg.NumericValueOutOfRange,
)


def translate_errors(problem: Exception, where: str) -> Error:
    """Return the Tertulia error for one of `FOREIGN`."""
    text = " ".join(str(problem).split())
    # DataError itself is the driver's error for a zero character; the others are the server's for a
    # value of another type, and for a number that its column cannot hold.
    if isinstance(problem, _INVALID_VALUE) or type(problem) is psycopg.DataError:
        return invalid_value(text)
    return find_kind(problem, _KINDS, where, text) or StoreError(
        f"PostgreSQL refused ({where}: {type(problem).__name__}: {text}).",
        hint="Nothing of this call was stored.",
        where=where,
    )
