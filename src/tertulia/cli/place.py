"""Where the store is, and opening it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import tzinfo

import tertulia
from tertulia.cli.options import Request
from tertulia.core.settings import Settings
from tertulia.errors import ConfigError, StoreUnavailable
from tertulia.storage.opening import is_server, look, public_name
from tertulia.store import Store

VARIABLE = "TERTULIA_STORE"

_FILE = "talk.db"

# A person waits before the terminal, so the program gives up sooner than a gateway would.
_SETTINGS = Settings(busy_seconds=10)


def where(request: Request) -> str:
    """The store that is meant, as it was given."""
    if request.store is not None:
        return request.store  # an empty one too: the default is not what a lost variable meant
    return os.environ.get(VARIABLE) or default_path()


def default_path() -> str:
    """A file in the platform's data folder."""
    import platformdirs

    return str(platformdirs.user_data_path("tertulia", appauthor=False) / _FILE)


def existing(request: Request) -> Store:
    """Open the store that is meant; no command that only reads makes an empty one."""
    place = where(request)
    if is_missing(place):
        raise missing(place)
    return opened(place)


def made(request: Request) -> Store:
    """Open the store that is meant, and make it if there is none. Nobody else may read it."""
    place = where(request)
    with private_files():
        if place == default_path():
            _make_folder(os.path.dirname(place))
        return opened(place)


def is_missing(place: str) -> bool:
    """Whether a file or a database is named in which there is no store yet."""
    if is_server(place):
        return not look(place).applied
    path = require_utf8(public_name(place))
    if not path or "://" in path:
        return False  # the library says what is wrong with it
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as problem:
        raise StoreUnavailable(
            f"{path} cannot be looked at: {problem.strerror}.",
            hint="Give this user the right to read and write the file and its folder.",
        ) from problem
    return found.st_size == 0 and os.path.isfile(path)


def missing(place: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"There is no store at {public_name(place)}.",
        hint=f"Name another one with --store or {VARIABLE}, or make this one with: "
        "tertulia store migrate",
    )


def require_utf8(path: str) -> str:
    """The path, if SQLite can be told it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"The path {path!a} is not written in UTF-8.", hint="Rename the file."
        ) from None
    return path


def zone() -> tzinfo:
    """The machine's time zone: people read and give their times in it."""
    import tzlocal

    try:
        return tzlocal.get_localzone()
    except (LookupError, ValueError, OSError) as problem:
        raise ConfigError(
            f"The machine's time zone {os.environ.get('TZ', '')!r} is not known.",
            hint="Set TZ to a name of the IANA list, such as Europe/Madrid or UTC.",
            field="TZ",
        ) from problem


@contextmanager
def private_files() -> Iterator[None]:
    """Whatever is created within is for this user only: conversations are."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def opened(place: str) -> Store:
    """Open a store as a command does."""
    zone()  # before the library asks for it, so that a wrong one is told
    return tertulia.open(place, settings=_SETTINGS)


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as problem:
        raise StoreUnavailable(
            f"The folder {folder} cannot be made: {problem.strerror}.",
            hint=f"Name another place for the store with --store or {VARIABLE}.",
        ) from problem
