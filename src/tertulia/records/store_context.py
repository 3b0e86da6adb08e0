"""What every record needs: the database, the settings, the clock and the zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from typing import NamedTuple

from tertulia.core.clock import Clock
from tertulia.core.settings import Settings, zone
from tertulia.core.text.redact import Redactor
from tertulia.storage.base import Database


class StoreContext(NamedTuple):
    """One open store, as its records see it."""

    db: Database
    settings: Settings
    clock: Clock
    zone: tzinfo
    notify: Callable[[], None]  # says that there is something new to index
    catch_up: Callable[[], object]  # indexes what is new, as far as that is quickly done
    redactor: Callable[[], Redactor | None]  # for what leaves the store, where that is asked for

    def shown(self, key: str) -> str:
        """A key as logs may show it."""
        redactor = self.redactor()
        return key if redactor is None else redactor.key(key)

    def has_processes(self, key: str) -> bool:
        """Whether work goes on for a conversation. Foreign code is asked: in no transaction."""
        guard = self.settings.has_active_processes
        return bool(guard and guard(key))

    def zone_of(self, person_zone: str | None) -> tzinfo:
        """The person's zone where it is known, else the store's."""
        return self.zone if person_zone is None else zone(person_zone)
