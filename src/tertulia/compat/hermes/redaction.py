"""Whose pseudonyms a prompt uses: those of the installation that its configuration belongs to.

That system makes prompts by a function which is told of no store. So a context remembers the
configuration it was built from, and the stores that are open are known here, by weak references.
Where neither leads to a store, the pseudonyms hold for as long as the program runs.
"""

from __future__ import annotations

import secrets
import weakref
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tertulia.compat import store_folder
from tertulia.core.text.redact import Redactor
from tertulia.platforms import registry

if TYPE_CHECKING:
    from tertulia.compat.hermes.config import GatewayConfig
    from tertulia.compat.hermes.session import SessionContext, SessionStore

_open: weakref.WeakSet[SessionStore] = weakref.WeakSet()
_NOTE = "_tertulia_config"


def know(store: SessionStore) -> None:
    """Let prompts find a store that was opened."""
    _open.add(store)


def forget(store: SessionStore) -> None:
    """Leave out a store that is closed."""
    _open.discard(store)


def remember(context: SessionContext, config: GatewayConfig) -> None:
    # Not a field: the value has those of that system and no others.
    context.__dict__[_NOTE] = config


def per_user(context: SessionContext) -> bool:
    """Whether each person in a group has a conversation of their own."""
    config = _config(context)
    return config is None or config.group_sessions_per_user


def redactor_for(context: SessionContext) -> Redactor:
    config = _config(context)
    for store in list(_open):
        if store.config is config:
            return store.store.redactor
    if config is not None and store_folder.holds_store(config.sessions_dir):
        return _of_folder(config.sessions_dir)
    return _of_this_run()


def _config(context: SessionContext) -> GatewayConfig | None:
    return context.__dict__.get(_NOTE)


@cache
def _of_folder(sessions_dir: Path) -> Redactor:
    # The secret of a store never changes, so what was read once stays true.
    with store_folder.open_in(sessions_dir) as store:
        return store.redactor


@cache
def _of_this_run() -> Redactor:
    return Redactor(secrets.token_bytes(32), registry.needs_raw_ids)
