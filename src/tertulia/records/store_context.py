"""What every record needs: the database, the settings, the clock and the zone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple, Protocol

from tertulia.core.settings import Settings, zone
from tertulia.core.text.redact import Redactor
from tertulia.errors import ConfigError
from tertulia.storage.base import Database


class Clock(Protocol):
    """Tells the time; a test brings its own."""

    def now(self) -> datetime:
        """The moment, with its time zone."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class UtcClock(NamedTuple):
    """A clock that was given, read in UTC: ids, days and policies never see its own zone."""

    given: Clock

    def now(self) -> datetime:
        moment = self.given.now()
        if moment.tzinfo is None:
            raise ConfigError(
                "The clock of this store gives times without a time zone.",
                hint="Let its now() give an aware datetime, such as datetime.now(UTC).",
                field="clock",
            )
        return moment.astimezone(UTC)


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
