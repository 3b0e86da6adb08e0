"""Choose the pseudonyms of a prompt: those of the installation that its configuration belongs to.

Hermes Agent builds prompts with a function that has no store among its parameters. Therefore a
context remembers the configuration it was built from, and this module knows the open stores, by
weak references. An installation whose folder has no store yet gets one: its secret is stored
there, so that all programs of the installation use the same pseudonyms. Only where there is no
installation at all, or none that can be written to, they are valid until the program ends.
"""

from __future__ import annotations

import logging
import secrets
import weakref
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tertulia.compat import store_folder
from tertulia.compat.hermes.config import GatewayConfig
from tertulia.core.text.redact import Redactor
from tertulia.errors import StoreError
from tertulia.platforms import registry

if TYPE_CHECKING:
    from tertulia.compat.hermes.session import SessionContext, SessionStore

log = logging.getLogger("tertulia.compat.hermes")

_open_stores: weakref.WeakSet[SessionStore] = weakref.WeakSet()
_CONFIG_ATTRIBUTE = "_tertulia_config"


def register_store(store: SessionStore) -> None:
    """Let prompts use the pseudonyms of a store that was opened."""
    _open_stores.add(store)


def unregister_store(store: SessionStore) -> None:
    """Remove a store that is closed."""
    _open_stores.discard(store)


def set_config(context: SessionContext, config: GatewayConfig) -> None:
    """Remember the configuration that a context was built from."""
    # Not a dataclass field: the value has exactly the fields of Hermes Agent's class.
    context.__dict__[_CONFIG_ATTRIBUTE] = config


def has_group_sessions_per_user(context: SessionContext) -> bool:
    """Return whether each person in a group has a session of their own."""
    config = _get_config(context)
    return config is None or config.group_sessions_per_user


def redactor_for(context: SessionContext) -> Redactor:
    """Return the redactor of the installation that a context belongs to."""
    config = _get_config(context)
    for store in list(_open_stores):
        if store.config is config:
            return store.store.redactor
    folder = GatewayConfig().sessions_dir if config is None else config.sessions_dir
    # The folder of the sessions may be missing; that of the installation above it may not.
    if folder.is_dir() or folder.parent.is_dir():
        try:
            return _redactor_of_folder(folder)
        except (OSError, StoreError) as problem:
            log.warning("no store in %s, using temporary pseudonyms: %s", folder, problem)
    return _temporary_redactor()


def _get_config(context: SessionContext) -> GatewayConfig | None:
    return context.__dict__.get(_CONFIG_ATTRIBUTE)


@cache
def _redactor_of_folder(sessions_dir: Path) -> Redactor:
    # Cached: the secret of a store never changes.
    with store_folder.open_store(sessions_dir) as store:
        return store.redactor


@cache
def _temporary_redactor() -> Redactor:
    return Redactor(secrets.token_bytes(32), registry.needs_raw_ids)
