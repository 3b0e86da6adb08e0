"""Where the configuration and the store are, and opening them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import tzinfo
from typing import TYPE_CHECKING

import msgspec

import tertulia
from tertulia.cli.options import Request
from tertulia.core.settings import Settings
from tertulia.errors import ConfigError, StoreUnavailable
from tertulia.storage.connect import (
    is_server,
    look,
    public_name,
)
from tertulia.store import Store

if TYPE_CHECKING:
    from tertulia.config.load import LoadedConfig

VARIABLE = "TERTULIA_STORE"
CONFIG_VARIABLE = "TERTULIA_CONFIG"

_FILE = "talk.db"

# A person waits before the terminal, so the program gives up sooner than a gateway would.
_BUSY_SECONDS = 10


def config_path(request: Request) -> str:
    """The configuration that is meant, whether or not it exists."""
    return request.config or os.environ.get(CONFIG_VARIABLE) or default_config_path()


def default_config_path() -> str:
    """A file in the platform's config folder."""
    import platformdirs

    return str(platformdirs.user_config_path("tertulia", appauthor=False) / "config.toml")


def config(request: Request) -> LoadedConfig:
    """The configuration. One that was named has to exist; the one in the folder need not."""
    path = config_path(request)
    is_named = path != default_config_path()
    from tertulia.config.load import read

    return read(path if is_named or os.path.exists(path) else None, os.environ)


def where(request: Request) -> str:
    """The store that is meant, as it was given."""
    if request.store is not None:
        return request.store  # an empty one too: the default is not what a lost variable meant
    return config(request).config.store.where or default_path()


def default_path() -> str:
    """A file in the platform's data folder."""
    return os.path.join(data_folder(), _FILE)


def data_folder() -> str:
    """Where the platform keeps what programs keep for a user."""
    import platformdirs

    return str(platformdirs.user_data_path("tertulia", appauthor=False))


def nearest_folder(path: str) -> str:
    """The folder of a store, or as much of it as exists; where that is a server, this one."""
    if is_server(path):
        return os.getcwd()
    folder = os.path.dirname(os.path.abspath(public_name(path)))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def existing(request: Request) -> Store:
    """Open the store that is meant; no command that only reads makes an empty one."""
    place = where(request)
    if is_missing(place):
        raise missing(place)
    return opened(place, settings(request))


def settings(request: Request) -> Settings:
    """How the configuration wants the store, but for how long a person waits."""
    found = config(request).config.settings
    return msgspec.structs.replace(found, busy_seconds=min(found.busy_seconds, _BUSY_SECONDS))


def made(request: Request) -> Store:
    """Open the store that is meant, and make it if there is none. Nobody else may read it."""
    place = where(request)
    with private_files():
        if place == default_path():
            _make_folder(os.path.dirname(place))
        return opened(place, settings(request))


def make_private(place: str) -> None:
    """Make what is missing of a file and its folder, so that nobody else may read it.

    For those who cannot open the store within `private_files`, since they open it in a thread.
    """
    if is_server(place) or "://" in public_name(place) or not is_missing(place):
        return
    path = public_name(place)
    if place == default_path():
        with private_files():
            _make_folder(os.path.dirname(place))
    with suppress(OSError):  # the library says what is wrong with it
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


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


def opened(place: str, wanted: Settings | None = None) -> Store:
    """Open a store as a command does."""
    zone()  # before the library asks for it, so that a wrong one is told
    return tertulia.open(place, settings=wanted or Settings(busy_seconds=_BUSY_SECONDS))


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as problem:
        raise StoreUnavailable(
            f"The folder {folder} cannot be made: {problem.strerror}.",
            hint=f"Name another place for the store with --store or {VARIABLE}.",
        ) from problem
