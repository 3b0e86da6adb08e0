"""Reset policies: when a session ends by itself.

Both rules have the same form: a session has expired exactly when its last activity is before a
cutoff that depends on the current time alone (`ResetPolicy.cutoffs`). So a store finds the expired
sessions through an index on activity, and a clock that steps back does no harm: activity in the
future is before no cutoff.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, Protocol

import msgspec

from tertulia.core import validate
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import ConfigError

Mode = Literal["none", "idle", "daily", "both"]
MODES: tuple[Mode, ...] = ("none", "idle", "daily", "both")

_A_CENTURY = 100 * 366 * 24 * 60  # minutes


class SessionTimes(Protocol):
    """The times of a session that a policy reads."""

    @property
    def updated_at(self) -> datetime: ...
    @property
    def ended_at(self) -> datetime | None: ...


def _is_duration(minutes: object) -> bool:
    is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    return is_number and 0 < minutes <= _A_CENTURY  # type: ignore[operator]


class ResetPolicy(msgspec.Struct, frozen=True):
    """A rule that ends a session after `idle_minutes` of silence, daily at `at_hour`, or both.

    mode           which rule holds; with none a session never ends by itself
    at_hour        the hour of the daily end, 0 to 23, in the time zone of the person
    idle_minutes   how long a person may be silent
    notify         whether the person is told when a new session begins
    """

    mode: Mode = "both"
    at_hour: int = 4
    idle_minutes: int = 1440
    notify: bool = True

    def __post_init__(self) -> None:
        validate.choice("mode", self.mode, MODES)
        if type(self.at_hour) is not int or self.at_hour not in range(24):
            raise ConfigError(
                f"at_hour is {short_repr(self.at_hour)}.",
                hint="Allowed: a whole hour from 0 to 23.",
                field="at_hour",
            )
        if not _is_duration(self.idle_minutes):
            raise ConfigError(
                f"idle_minutes is {short_repr(self.idle_minutes)}.",
                hint='Allowed: a number of minutes above 0. To never end a session: mode="none".',
                field="idle_minutes",
            )
        validate.instance("notify", self.notify, bool, "True or False")

    def decide(
        self, session: SessionTimes, now: datetime, *, zone: tzinfo | None = None
    ) -> str | None:
        """Return the reason why the session has expired at `now`, or None if it has not.

        The zone defaults to that of `now`.
        """
        if session.ended_at is not None:
            return None
        for reason, cutoff in self.cutoffs(now, zone=zone).items():
            if session.updated_at < cutoff:
                return reason
        return None

    def cutoffs(self, now: datetime, *, zone: tzinfo | None = None) -> dict[str, datetime]:
        """Return the cutoff of each rule in force; a session with older activity has expired."""
        cutoffs: dict[str, datetime] = {}
        if self.mode in ("idle", "both"):
            cutoffs["idle"] = now - timedelta(minutes=self.idle_minutes)
        if self.mode in ("daily", "both"):
            cutoffs["daily"] = latest_occurrence(self.at_hour, now, zone or now.tzinfo or UTC)
        return cutoffs

    def next_end(
        self, session: SessionTimes, *, zone: tzinfo | None = None
    ) -> tuple[datetime, str] | None:
        """Return when the session will expire and the reason, if nobody writes; None for never.

        `decide` gives that reason from then on, and None before. The zone defaults to that of the
        last activity.
        """
        if session.ended_at is not None or self.mode == "none":
            return None
        zone = zone or session.updated_at.tzinfo or UTC
        ends: list[tuple[datetime, str]] = []
        if self.mode in ("idle", "both"):
            # It has expired when its activity is before the cutoff, and times have microseconds.
            idle = timedelta(minutes=self.idle_minutes, microseconds=1)
            ends.append((session.updated_at + idle, "idle"))
        if self.mode in ("daily", "both"):
            ends.append((next_occurrence(self.at_hour, session.updated_at, zone), "daily"))
        return min(ends)

    def explain(self, session: SessionTimes, now: datetime, *, zone: tzinfo | None = None) -> str:
        """Describe the decision and the times it depends on."""
        zone = zone or now.tzinfo or UTC
        activity = f"last activity {_format_time(session.updated_at, zone)}"
        if session.ended_at is not None:
            ended = _format_time(session.ended_at, zone)
            return f"ended at {ended}; policies do not look at it again"
        rules = self._describe_rules(session, now, zone)
        if not rules:
            return f"{activity}; the policy is 'none': it never ends by itself"
        reason = self.decide(session, now, zone=zone)
        verdict = f"it is over ({reason})" if reason else "it goes on"
        return f"{activity}; {'; '.join(rules)}; so {verdict}"

    def _describe_rules(self, session: SessionTimes, now: datetime, zone: tzinfo) -> list[str]:
        rules = []
        if self.mode in ("idle", "both"):
            end = session.updated_at + timedelta(minutes=self.idle_minutes)
            span = "1 minute" if self.idle_minutes == 1 else f"{self.idle_minutes} minutes"
            rules.append(f"idle after {span}, that is {_format_time(end, zone)}")
        if self.mode in ("daily", "both"):
            last = latest_occurrence(self.at_hour, now, zone)
            rules.append(f"daily at {self.at_hour}:00, last at {_format_time(last, zone)}")
        return rules


class PolicyForecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a policy ends a session if nobody writes, and the rule it follows.

    `setting` is where the rule stands: default, platforms.NAME or chat_types.NAME. `ends_at` is
    None if it never ends by itself.
    """

    policy: ResetPolicy
    setting: str
    zone: str
    ends_at: datetime | None
    reason: str | None


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of each conversation: its platform's, else its chat type's, else the default.

    default      the policy of every other conversation
    platforms    the policy of a platform, such as telegram
    chat_types   the policy of a chat type: dm, group, channel or thread
    """

    default: ResetPolicy = ResetPolicy()
    platforms: Mapping[str, ResetPolicy] = {}
    chat_types: Mapping[str, ResetPolicy] = {}

    def __post_init__(self) -> None:
        fields: list[tuple[str, object]] = [("default", self.default)]
        for field, policies in (("platforms", self.platforms), ("chat_types", self.chat_types)):
            example = "a dict, for example {'telegram': ResetPolicy('none')}"
            validate.instance(field, policies, Mapping, example)
            fields += [
                (f"{field}[{short_repr(name)}]", policy) for name, policy in policies.items()
            ]
        for field, policy in fields:
            if not isinstance(policy, ResetPolicy):
                raise ConfigError(
                    f"The policy {field} is {short_repr(policy)}.",
                    hint='Give a ResetPolicy, for example ResetPolicy("idle", idle_minutes=120).',
                    field=field,
                )

    def for_chat(self, platform: str, chat_type: str) -> ResetPolicy:
        """Return the policy that applies to a chat."""
        return self.platforms.get(platform) or self.chat_types.get(chat_type) or self.default

    def setting_for(self, platform: str, chat_type: str) -> str:
        """Return which setting decides for a chat: where `for_chat` has found its policy."""
        if self.platforms.get(platform):
            return f"platforms.{platform}"
        return f"chat_types.{chat_type}" if self.chat_types.get(chat_type) else "default"

    def forecast(
        self, platform: str, chat_type: str, session: SessionTimes, *, zone: tzinfo
    ) -> PolicyForecast:
        """Return when a session of a chat will expire, if nobody writes, and by which rule."""
        policy = self.for_chat(platform, chat_type)
        ends_at, reason = policy.next_end(session, zone=zone) or (None, None)
        return PolicyForecast(
            policy=policy,
            setting=self.setting_for(platform, chat_type),
            zone=str(zone),
            ends_at=ends_at,
            reason=reason,
        )

    def all(self) -> tuple[ResetPolicy, ...]:
        """Return every configured policy."""
        return (self.default, *self.platforms.values(), *self.chat_types.values())


def latest_occurrence(at_hour: int, now: datetime, zone: tzinfo) -> datetime:
    """Return the newest `at_hour` o'clock not after `now`, one per calendar day of the zone.

    If the clock jumps over the hour, the time of the jump counts; if it shows the hour twice, the
    first time counts (fold=0 gives both), so no day has two.
    """
    today = now.astimezone(zone).toordinal()
    # Today's occurrence can be after `now`; if a zone skipped a whole day, so can yesterday's.
    for days in (1, 0, -1, -2):
        occurrence = _occurrence(at_hour, today + days, zone)
        if occurrence <= now:
            return occurrence
    raise AssertionError("one of these days has an occurrence")


def next_occurrence(at_hour: int, after: datetime, zone: tzinfo) -> datetime:
    """Return the first `at_hour` o'clock after a time, one per calendar day of the zone."""
    today = after.astimezone(zone).toordinal()
    # If a zone skipped a whole day, its occurrence is that of the day after.
    for days in (-1, 0, 1, 2, 3):
        occurrence = _occurrence(at_hour, today + days, zone)
        if occurrence > after:
            return occurrence
    raise AssertionError("one of these days has an occurrence")


@lru_cache(maxsize=256)
def _occurrence(at_hour: int, day: int, zone: tzinfo) -> datetime:
    """Return the occurrence of one day; cached, because every message needs the same one."""
    return datetime.combine(date.fromordinal(day), time(at_hour), tzinfo=zone).astimezone(UTC)


def _format_time(time: datetime, zone: tzinfo) -> str:
    return time.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
