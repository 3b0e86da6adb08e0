"""Find the configuration and the store that a command works on, and open the store."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

import tertulia
from tertulia.cli.options import CommandOptions
from tertulia.core.settings import Settings
from tertulia.errors import ConfigError, StoreUnavailable
from tertulia.private_files import make_private_folder
from tertulia.records.machine_zone import machine_zone
from tertulia.storage.connect import inspect_store, is_server, public_name
from tertulia.store import Store

if TYPE_CHECKING:
    from tertulia.config.load import LoadedConfig

STORE_VARIABLE = "TERTULIA_STORE"
CONFIG_VARIABLE = "TERTULIA_CONFIG"

_DEFAULT_FILE = "talk.db"

# A person waits at the terminal, so a command gives up sooner than a gateway would.
_BUSY_SECONDS = 10


def config_path(options: CommandOptions) -> str:
    """Return the path of the configuration file, whether or not it exists."""
    return options.config or os.environ.get(CONFIG_VARIABLE) or default_config_path()


def default_config_path() -> str:
    """Return the path of config.toml in the platform's config folder."""
    import platformdirs

    return str(platformdirs.user_config_path("tertulia", appauthor=False) / "config.toml")


def existing_config_path(options: CommandOptions) -> str | None:
    """Return the path of the configuration file; None if it is the default path and missing."""
    path = config_path(options)
    is_named = path != default_config_path()
    return path if is_named or os.path.exists(path) else None


def load_config(options: CommandOptions) -> LoadedConfig:
    """Load the configuration; only the file at the default path may be missing."""
    from tertulia.config import load

    return load.load_config(existing_config_path(options), os.environ)


def store_location(options: CommandOptions) -> str:
    """Return the location of the store as the user wrote it."""
    if options.store is not None:
        # Also if it is empty: a variable that expanded to nothing must not mean the default store.
        return options.store
    return load_config(options).config.store.where or default_store_path()


def default_store_path() -> str:
    """Return the path of the store in the platform's data folder."""
    return os.path.join(data_folder(), _DEFAULT_FILE)


def data_folder() -> str:
    """Return the platform's folder for the data of this user and program."""
    import platformdirs

    return str(platformdirs.user_data_path("tertulia", appauthor=False))


def platforms_folder() -> str:
    """Return the folder that contains the state of each platform's adapter."""
    return os.path.join(data_folder(), "platforms")


def nearest_existing_folder(location: str) -> str:
    """Return the folder of a store, or its nearest parent that exists.

    For a store on a server this is the current folder.
    """
    if is_server(location):
        return os.getcwd()
    folder = os.path.dirname(os.path.abspath(public_name(location)))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def open_existing_store(options: CommandOptions) -> Store:
    """Open the store; raise StoreUnavailable if there is none.

    Commands that only read use this, so that they never create an empty store.
    """
    location = store_location(options)
    if is_store_missing(location):
        raise missing_store_error(location)
    return open_store(location, store_settings(options))


@contextmanager
def open_to_read(options: CommandOptions) -> Iterator[Store]:
    """Open the store for a command that changes nothing; it may lie where nothing can be written.

    SQLite must write beside a store even to read it. So one that cannot be written, a backup on
    other media for example, is read from a private copy, which is deleted with the block.
    """
    location = store_location(options)
    if is_store_missing(location):
        raise missing_store_error(location)
    path = public_name(location)
    if is_server(location) or not os.path.isfile(path) or may_write(path):
        with open_store(location, store_settings(options)) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="tertulia-") as folder:
        copy = os.path.join(folder, "copy.db")
        for suffix in ("", "-wal"):
            if os.path.exists(path + suffix):
                shutil.copyfile(path + suffix, copy + suffix)
        with open_store(copy, store_settings(options)) as store:
            yield store


def may_write(path: str) -> bool:
    """Return whether this user may write a file, and create others in its folder."""
    folder = os.path.dirname(os.path.abspath(path))
    return os.access(path, os.W_OK) and os.access(folder, os.W_OK)


def store_settings(options: CommandOptions) -> Settings:
    """Return the store's settings from the configuration, with a shorter wait for locks."""
    settings = load_config(options).config.store_settings
    return msgspec.structs.replace(settings, busy_seconds=min(settings.busy_seconds, _BUSY_SECONDS))


def open_or_create_store(options: CommandOptions) -> Store:
    """Open the store; create it if there is none, readable by this user only."""
    location = store_location(options)
    with private_files():
        if location == default_store_path():
            _create_folder(os.path.dirname(location))
        return open_store(location, store_settings(options))


def create_private_file(location: str) -> None:
    """Create an empty file for a new store, and its folder, readable by this user only.

    For callers that open the store in a thread: the umask that `private_files` sets is the whole
    program's, so they cannot open the store inside that block.
    """
    if is_server(location) or "://" in public_name(location) or not is_store_missing(location):
        return
    path = public_name(location)
    if location == default_store_path():
        with private_files():
            _create_folder(os.path.dirname(location))
    with suppress(OSError):  # opening the store reports what is wrong with the path
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def is_store_missing(location: str) -> bool:
    """Return whether a valid file or database location contains no store yet.

    Raise StoreUnavailable if the file cannot be inspected.
    """
    if is_server(location):
        return not inspect_store(location).applied
    path = require_utf8(public_name(location))
    if not path or "://" in path:
        return False  # opening the store reports what is wrong with the location
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as problem:
        raise StoreUnavailable(
            f"{path} cannot be inspected: {problem.strerror}.",
            hint="Give this user the right to read and write the file and its folder.",
        ) from problem
    return status.st_size == 0 and os.path.isfile(path)


def missing_store_error(location: str, *, is_argument: bool = False) -> StoreUnavailable:
    """Return the error for a command that needs a store where there is none.

    `is_argument`: the command names the store itself, so `--store` would not help.
    """
    hint = (
        f"Name another one with --store or {STORE_VARIABLE}, or create this one with: "
        f"tertulia {store_option(location)}store migrate"
    )
    if is_argument:
        hint = "Check its path or address. `tertulia doctor` prints where your own store is."
    return StoreUnavailable(f"There is no store at {public_name(location)}.", hint=hint)


def store_option(location: str) -> str:
    """Return `--store` for a hint, if a command without it would use another file."""
    if is_server(location) or location == default_store_path():  # an address may have a password
        return ""
    return f"--store {shlex.quote(public_name(location))} "


def require_utf8(path: str) -> str:
    """Return the path; raise ConfigError if it is not UTF-8, which SQLite requires."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"The path {path!a} is not written in UTF-8.", hint="Rename the file."
        ) from None
    return path


@contextmanager
def private_files() -> Iterator[None]:
    """Let files created in the block be readable by this user only: conversations are private."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def open_store(location: str, settings: Settings | None = None) -> Store:
    """Open a store with the settings of a command."""
    machine_zone()  # checked before the library needs it, so that a wrong zone is a clear error
    return tertulia.open(location, settings=settings or Settings(busy_seconds=_BUSY_SECONDS))


def _create_folder(folder: str) -> None:
    try:
        make_private_folder(folder)
    except OSError as problem:
        raise StoreUnavailable(
            f"The folder {folder} cannot be created: {problem.strerror}.",
            hint=f"Choose another location for the store with --store or {STORE_VARIABLE}.",
        ) from problem
