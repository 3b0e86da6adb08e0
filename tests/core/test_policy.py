"""When a session ends by itself: every mode, to the second, across clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import ConfigError, Policies, ResetPolicy
from tertulia.core.policy import Mode, latest_occurrence

MADRID = ZoneInfo("Europe/Madrid")
# Changes at 2 and at 3 o'clock, at midnight, by half an hour, southern, a day left out, none.
ZONES = [
    "Europe/Madrid",
    "America/New_York",
    "America/Asuncion",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "UTC",
]


class SessionStub(NamedTuple):
    updated_at: datetime
    ended_at: datetime | None = None


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class TestIdle:
    policy = ResetPolicy("idle", idle_minutes=30)
    quiet = SessionStub(utc("2026-05-01 12:00:00"))

    @pytest.mark.parametrize(
        ("now", "reason"),
        [
            ("2026-05-01 12:00:00", None),
            ("2026-05-01 12:29:59", None),
            ("2026-05-01 12:30:00", None),
            ("2026-05-01 12:30:01", "idle"),
            ("2027-05-01 12:00:00", "idle"),
        ],
    )
    def test_expires_after_idle_minutes(self, now: str, reason: str | None) -> None:
        assert self.policy.decide(self.quiet, utc(now)) == reason

    def test_clock_that_steps_back_ends_nothing(self) -> None:
        assert self.policy.decide(self.quiet, utc("2020-01-01 00:00:00")) is None


class TestDaily:
    policy = ResetPolicy("daily", at_hour=4)

    @pytest.mark.parametrize(
        ("activity", "now", "reason"),
        [
            ("2026-05-01 03:59:59", "2026-05-01 04:00:00", "daily"),
            ("2026-05-01 03:59:59", "2026-05-01 03:59:59", None),
            ("2026-05-01 04:00:00", "2026-05-01 04:00:01", None),
            ("2026-05-01 04:00:00", "2026-05-02 03:59:59", None),
            ("2026-05-01 04:00:00", "2026-05-02 04:00:00", "daily"),
            ("2026-04-30 23:00:00", "2026-05-01 03:00:00", None),
            ("2026-04-29 23:00:00", "2026-05-01 03:00:00", "daily"),
        ],
    )
    def test_expires_if_activity_is_before_the_latest_occurrence(
        self, activity: str, now: str, reason: str | None
    ) -> None:
        assert self.policy.decide(SessionStub(utc(activity)), utc(now)) == reason

    def test_hour_is_in_the_zone(self) -> None:
        evening = SessionStub(utc("2026-07-01 20:00:00"))
        assert self.policy.decide(evening, utc("2026-07-02 01:59:59"), zone=MADRID) is None
        assert self.policy.decide(evening, utc("2026-07-02 02:00:00"), zone=MADRID) == "daily"

    def test_zone_defaults_to_that_of_now(self) -> None:
        evening = SessionStub(utc("2026-07-01 20:00:00"))
        assert self.policy.decide(evening, utc("2026-07-02 02:00:00").astimezone(MADRID)) == "daily"
        assert self.policy.decide(evening, utc("2026-07-02 02:00:00")) is None

    def test_repeated_hour_counts_once(self) -> None:
        # In Madrid on 2026-10-25 it is 2:00 twice: at 00:00 and at 01:00 UTC.
        policy = ResetPolicy("daily", at_hour=2)
        between = SessionStub(utc("2026-10-25 00:30:00"))
        assert policy.decide(between, utc("2026-10-25 01:30:00"), zone=MADRID) is None
        before = SessionStub(utc("2026-10-24 23:59:59"))
        assert policy.decide(before, utc("2026-10-25 00:00:00"), zone=MADRID) == "daily"

    def test_skipped_hour_counts_at_the_clock_change(self) -> None:
        # In Madrid on 2026-03-29 the clock goes from 2:00 to 3:00, at 01:00 UTC.
        policy = ResetPolicy("daily", at_hour=2)
        before = SessionStub(utc("2026-03-29 00:59:59"))
        assert policy.decide(before, utc("2026-03-29 00:59:59"), zone=MADRID) is None
        assert policy.decide(before, utc("2026-03-29 01:00:00"), zone=MADRID) == "daily"


class TestBothAndNone:
    def test_both_ends_by_either_rule(self) -> None:
        policy = ResetPolicy("both", at_hour=4, idle_minutes=60)
        assert (
            policy.decide(SessionStub(utc("2026-05-01 10:00")), utc("2026-05-01 11:00:01"))
            == "idle"
        )
        quick = ResetPolicy("both", at_hour=4, idle_minutes=600)
        assert (
            quick.decide(SessionStub(utc("2026-05-01 03:59")), utc("2026-05-01 04:00")) == "daily"
        )

    def test_none_never_ends(self) -> None:
        policy = ResetPolicy("none")
        assert policy.decide(SessionStub(utc("1970-01-01")), utc("2100-01-01")) is None

    def test_ended_session_does_not_end_again(self) -> None:
        ended = SessionStub(utc("2026-01-01"), ended_at=utc("2026-01-02"))
        assert ResetPolicy().decide(ended, utc("2027-01-01")) is None


class TestOverrides:
    slow = ResetPolicy("none")
    group = ResetPolicy("idle", idle_minutes=5)
    default = ResetPolicy("daily")
    policies = Policies(default=default, platforms={"discord": slow}, chat_types={"group": group})

    @pytest.mark.parametrize(
        ("platform", "chat_type", "wanted"),
        [
            ("discord", "group", slow),
            ("discord", "dm", slow),
            ("telegram", "group", group),
            ("telegram", "dm", default),
        ],
    )
    def test_platform_then_chat_type_then_default(
        self, platform: str, chat_type: str, wanted: ResetPolicy
    ) -> None:
        assert self.policies.for_chat(platform, chat_type) is wanted


class TestExplain:
    def test_names_the_times_and_the_decision(self) -> None:
        words = ResetPolicy("both", idle_minutes=30).explain(
            SessionStub(utc("2026-07-01 20:00")), utc("2026-07-01 21:00"), zone=MADRID
        )
        assert "last activity 2026-07-01 22:00:00 CEST" in words
        assert "idle after 30 minutes, that is 2026-07-01 22:30:00 CEST" in words
        assert words.endswith("so it is over (idle)")

    def test_one_minute_is_singular(self) -> None:
        moment = utc("2026-07-01 20:00")
        assert "idle after 1 minute, " in ResetPolicy("idle", idle_minutes=1).explain(
            SessionStub(moment), moment, zone=MADRID
        )

    def test_none_says_that_it_never_ends(self) -> None:
        words = ResetPolicy("none").explain(SessionStub(utc("2026-07-01")), utc("2026-07-02"))
        assert "never ends by itself" in words


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("mode", "weekly"),
            ("at_hour", 24),
            ("at_hour", -1),
            ("at_hour", True),
            ("idle_minutes", 0),
            ("idle_minutes", -5),
        ],
    )
    def test_invalid_policy_is_refused_with_allowed_values(self, name: str, value: object) -> None:
        with pytest.raises(ConfigError) as caught:
            ResetPolicy(**{name: value})  # type: ignore[arg-type]
        assert caught.value.field == name
        assert "Allowed" in str(caught.value)


moments = st.datetimes(datetime(2005, 1, 1), datetime(2030, 12, 31)).map(
    lambda moment: moment.replace(tzinfo=UTC)
)
zones = st.sampled_from(ZONES).map(ZoneInfo)
hours = st.integers(0, 23)


@given(hours, moments, zones)
def test_latest_occurrence_is_the_newest_not_in_the_future(
    hour: int, now: datetime, zone: ZoneInfo
) -> None:
    occurrence = latest_occurrence(hour, now, zone)
    assert occurrence <= now
    # No later one before now: every minute until now is no other occurrence.
    assert latest_occurrence(hour, occurrence, zone) == occurrence
    # A day holds one; the longest day (clock set back) has 25 hours, a skipped day adds 24.
    assert now - occurrence <= timedelta(hours=49)
    if zone.key != "Pacific/Apia":
        assert now - occurrence <= timedelta(hours=25)


@given(hours, zones, moments)
def test_each_calendar_day_has_one_occurrence(hour: int, zone: ZoneInfo, start: datetime) -> None:
    seen = {latest_occurrence(hour, start + timedelta(hours=h), zone) for h in range(24 * 9)}
    days = (start + timedelta(days=9)).astimezone(zone).date() - start.astimezone(zone).date()
    assert abs(len(seen) - 1 - days.days) <= 1


@given(moments, moments, hours, st.integers(1, 10_000), zones)
def test_decision_is_pure_and_only_changes_from_none_to_a_reason(
    activity: datetime, now: datetime, hour: int, idle: int, zone: ZoneInfo
) -> None:
    policy = ResetPolicy("both", at_hour=hour, idle_minutes=idle)
    quiet = SessionStub(activity)
    first = policy.decide(quiet, now, zone=zone)
    assert policy.decide(quiet, now, zone=zone) == first
    if first is not None:
        assert policy.decide(quiet, now + timedelta(days=400), zone=zone) is not None
    if activity >= now:
        assert first is None


@given(moments, hours, st.integers(1, 10_000), zones, st.sampled_from(["idle", "daily", "both"]))
def test_next_end_is_the_first_moment_at_which_it_ends(
    activity: datetime, hour: int, idle: int, zone: ZoneInfo, mode: Mode
) -> None:
    policy, quiet = ResetPolicy(mode, at_hour=hour, idle_minutes=idle), SessionStub(activity)
    end = policy.next_end(quiet, zone=zone)
    assert end is not None
    ends_at, reason = end
    assert policy.decide(quiet, ends_at, zone=zone) == reason
    assert policy.decide(quiet, ends_at - timedelta(microseconds=1), zone=zone) is None


def test_forecast_names_the_setting_and_the_time() -> None:
    policies = Policies(
        default=ResetPolicy("idle", idle_minutes=60),
        platforms={"local": ResetPolicy("none")},
        chat_types={"group": ResetPolicy("daily", at_hour=4)},
    )
    quiet = SessionStub(utc("2026-03-01 12:00"))
    dm = policies.forecast("telegram", "dm", quiet, zone=UTC)
    assert (dm.setting, dm.reason, dm.zone) == ("default", "idle", "UTC")
    assert dm.ends_at == utc("2026-03-01 13:00") + timedelta(microseconds=1)
    group = policies.forecast("telegram", "group", quiet, zone=MADRID)
    assert (group.setting, group.ends_at) == ("chat_types.group", utc("2026-03-02 03:00"))
    terminal = policies.forecast("local", "group", quiet, zone=UTC)
    assert (terminal.setting, terminal.ends_at) == ("platforms.local", None)
    ended = SessionStub(quiet.updated_at, quiet.updated_at)
    assert policies.forecast("telegram", "dm", ended, zone=UTC).ends_at is None


@pytest.mark.parametrize("policies", [None, 5, [ResetPolicy()]])
def test_policies_by_name_must_be_a_mapping(policies: Any) -> None:
    with pytest.raises(ConfigError, match=r"^platforms is "):
        Policies(platforms=policies)


@pytest.mark.parametrize("fields", [{"at_hour": 4.0}, {"notify": "yes"}])
def test_policy_fields_have_one_type(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ResetPolicy(**fields)
