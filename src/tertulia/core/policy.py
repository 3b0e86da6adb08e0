"""When a session ends by itself.

Both rules are of one form: a session has expired exactly when its last activity lies before a
moment that depends on now alone (`ResetPolicy.cutoffs`). That is what lets a store find the
expired sessions through an index on activity, and what makes a clock that steps back harmless:
activity in the future lies before no such moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, Protocol

import msgspec

from tertulia.errors import ConfigError

Mode = Literal["none", "idle", "daily", "both"]
MODES: tuple[Mode, ...] = ("none", "idle", "daily", "both")

_A_CENTURY = 100 * 366 * 24 * 60  # minutes


class SessionTimes(Protocol):
    """What a policy asks about a session."""

    @property
    def updated_at(self) -> datetime: ...
    @property
    def ended_at(self) -> datetime | None: ...


def _is_span(minutes: object) -> bool:
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    return is_number and 0 < minutes <= _A_CENTURY  # type: ignore[operator]


class ResetPolicy(msgspec.Struct, frozen=True):
    """Ends a session after `idle_minutes` of silence, daily at `at_hour`, both, or never."""

    mode: Mode = "both"
    at_hour: int = 4
    idle_minutes: int = 1440
    notify: bool = True

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ConfigError(
                f"mode is {self.mode!r}.", hint=f"Allowed: {', '.join(MODES)}.", field="mode"
            )
        if isinstance(self.at_hour, bool) or self.at_hour not in range(24):
            raise ConfigError(
                f"at_hour is {self.at_hour!r}.",
                hint="Allowed: a whole hour from 0 to 23.",
                field="at_hour",
            )
        if not _is_span(self.idle_minutes):
            raise ConfigError(
                f"idle_minutes is {self.idle_minutes!r}.",
                hint='Allowed: a number of minutes above 0. To never end a session: mode="none".',
                field="idle_minutes",
            )

    def decide(
        self, session: SessionTimes, now: datetime, *, zone: tzinfo | None = None
    ) -> str | None:
        """Why the session is over at `now`, or None. Without a zone, that of `now` counts."""
        if session.ended_at is not None:
            return None
        for reason, cutoff in self.cutoffs(now, zone=zone).items():
            if session.updated_at < cutoff:
                return reason
        return None

    def cutoffs(self, now: datetime, *, zone: tzinfo | None = None) -> dict[str, datetime]:
        """For each rule in force the moment before which the last activity must lie to expire."""
        found: dict[str, datetime] = {}
        if self.mode in ("idle", "both"):
            found["idle"] = now - timedelta(minutes=self.idle_minutes)
        if self.mode in ("daily", "both"):
            found["daily"] = latest_occurrence(self.at_hour, now, zone or now.tzinfo or UTC)
        return found

    def explain(self, session: SessionTimes, now: datetime, *, zone: tzinfo | None = None) -> str:
        """The decision in words, with the moments it rests on."""
        where = zone or now.tzinfo or UTC
        quiet = f"last activity {_clock(session.updated_at, where)}"
        if session.ended_at is not None:
            return f"ended at {_clock(session.ended_at, where)}; policies do not look at it again"
        rules = self._rules(session, now, where)
        if not rules:
            return f"{quiet}; the policy is 'none': it never ends by itself"
        reason = self.decide(session, now, zone=where)
        verdict = f"it is over ({reason})" if reason else "it goes on"
        return f"{quiet}; {'; '.join(rules)}; so {verdict}"

    def _rules(self, session: SessionTimes, now: datetime, zone: tzinfo) -> list[str]:
        rules = []
        if self.mode in ("idle", "both"):
            end = session.updated_at + timedelta(minutes=self.idle_minutes)
            span = "1 minute" if self.idle_minutes == 1 else f"{self.idle_minutes} minutes"
            rules.append(f"idle after {span}, that is {_clock(end, zone)}")
        if self.mode in ("daily", "both"):
            last = latest_occurrence(self.at_hour, now, zone)
            rules.append(f"daily at {self.at_hour}:00, last at {_clock(last, zone)}")
        return rules


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of each conversation: its platform's, else its chat type's, else the default."""

    default: ResetPolicy = ResetPolicy()
    platforms: Mapping[str, ResetPolicy] = {}
    chat_types: Mapping[str, ResetPolicy] = {}

    def __post_init__(self) -> None:
        given: list[tuple[str, object]] = [("default", self.default)]
        for field, policies in (("platforms", self.platforms), ("chat_types", self.chat_types)):
            given += [(f"{field}[{name!r}]", policy) for name, policy in policies.items()]
        for field, policy in given:
            if not isinstance(policy, ResetPolicy):
                raise ConfigError(
                    f"The policy {field} is {policy!r}.",
                    hint='Give ResetPolicy("idle", idle_minutes=120) or another one.',
                    field=field,
                )

    def for_chat(self, platform: str, chat_type: str) -> ResetPolicy:
        return self.platforms.get(platform) or self.chat_types.get(chat_type) or self.default

    def all(self) -> tuple[ResetPolicy, ...]:
        return (self.default, *self.platforms.values(), *self.chat_types.values())


def latest_occurrence(at_hour: int, now: datetime, zone: tzinfo) -> datetime:
    """The newest `at_hour` o'clock that is not after `now`, one per calendar day of the zone.

    Where the clock jumps over the hour, the moment of the jump counts; where it shows the hour
    twice, the first time counts (fold=0 gives both), so no day has two.
    """
    today = now.astimezone(zone).toordinal()
    # A day's occurrence can lie after `now` today and, where a zone skipped a whole day, yesterday.
    for days in (1, 0, -1, -2):
        moment = _occurrence(at_hour, today + days, zone)
        if moment <= now:
            return moment
    raise AssertionError("three calendar days hold an occurrence")


@lru_cache(maxsize=256)
def _occurrence(at_hour: int, day: int, zone: tzinfo) -> datetime:
    """Asked for every message, and the same all day long."""
    return datetime.combine(date.fromordinal(day), time(at_hour), tzinfo=zone).astimezone(UTC)


def _clock(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
