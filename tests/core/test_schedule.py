"""When a task runs: what people write, both clock changes, downtime, and clocks that jump."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core import schedule
from tertulia.core.schedule import Cron, Every, Once, decide, local_to_utc, next_after, parse_rule
from tertulia.errors import ConfigError

# Changes at 1, 2 and 3 o'clock, at midnight, by half an hour, southern, none.
ZONES = [
    "Europe/Madrid",
    "Europe/London",
    "America/New_York",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Asia/Kathmandu",
    "UTC",
]
NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def following(rule: schedule.Rule, moment: datetime, count: int) -> list[str]:
    occurrences = []
    for _ in range(count):
        after = next_after(rule, moment)
        assert after is not None
        assert after > moment
        occurrences.append(f"{after:%m-%d %H:%M}")
        moment = after
    return occurrences


class TestParse:
    @pytest.mark.parametrize(
        ("words", "rule"),
        [
            ("every 2h", Every(7200, NOW)),
            ("Every 1h30m", Every(5400, NOW)),
            ("every 1 hour and 30 minutes", Every(5400, NOW)),
            ("every day", Every(86_400, NOW)),
            ("in 20 min", Once(utc("2026-03-04 12:20"))),
            ("at 2026-11-20 09:00", Once(utc("2026-11-20 08:00"))),
            ("at 2026-11-20 09:00 UTC", Once(utc("2026-11-20 09:00"))),
            ("at 2026-11-20T09:00:00-03:00", Once(utc("2026-11-20 12:00"))),
            ("at 13:30", Once(utc("2026-03-04 12:30"))),
            ("at 9:00", Once(utc("2026-03-05 08:00"))),
            ("  cron  0 9 * *  mon-fri ", Cron("0 9 * * MON-FRI", "Europe/Madrid")),
        ],
    )
    def test_rules_are_parsed(self, words: str, rule: schedule.Rule) -> None:
        assert parse_rule(words, now=NOW, zone="Europe/Madrid") == rule

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ("", "Write for example"),
            ("tomorrow", "Write for example"),
            ("every", "Write for example"),
            ("every 2", "duration"),
            ("every 0h", "duration"),
            ("every -2h", "duration"),
            ("every 2 hands", "duration"),
            ("every 59s", "at least one minute"),
            ("every 99999w", "at most ten years"),
            ("at 2020-01-01 09:00", "has passed"),
            ("at 25:00", "no such time"),
            ("at 2026-02-30 09:00", "no such time"),
            ("at 9999-12-31 23:59", "no such time"),
            ("at noon", "no such time"),
            ("cron * * *", "five fields"),
            ("cron 0 0 9 * * MON", "five fields"),
            ("cron 0 25 * * *", "minute, hour, day"),
            ("cron 0 9 31 2 *", "minute, hour, day"),
            ("cron 0 9 * FEB MON#6", "minute, hour, day"),
        ],
    )
    def test_invalid_rules_are_refused_with_a_hint(self, words: str, told: str) -> None:
        with pytest.raises(ConfigError, match=told):
            parse_rule(words, now=NOW, zone="America/Santiago")

    def test_unknown_zone_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="no time zone"):
            parse_rule("every 2h", now=NOW, zone="Mars/Olympus")

    @given(st.text(max_size=40), st.sampled_from(["", "every ", "at ", "in ", "cron "]))
    def test_any_text_is_parsed_or_refused(self, words: str, kind: str) -> None:
        try:
            rule = parse_rule(kind + words, now=NOW, zone="UTC")
        except ConfigError:
            return
        first = next_after(rule, NOW)
        assert first is not None
        assert first > NOW

    @pytest.mark.parametrize("words", ["every 1d2h3m", "every 90m", "at 2026-11-20 09:00 UTC"])
    def test_description_parses_to_the_same_rule(self, words: str) -> None:
        rule = parse_rule(words, now=NOW, zone="UTC")
        assert parse_rule(schedule.describe_rule(rule), now=NOW, zone="UTC") == rule


class TestClockChanges:
    def test_madrid_goes_forward_at_two(self) -> None:
        rule = Cron("30 2 * * *", "Europe/Madrid")
        # On the 29th there is no half past two: the clocks show three at one o'clock UTC.
        assert following(rule, utc("2026-03-27 12:00"), 3) == [
            "03-28 01:30", "03-29 01:00", "03-30 00:30",
        ]  # fmt: skip

    def test_madrid_goes_back_at_three(self) -> None:
        rule = Cron("30 2 * * *", "Europe/Madrid")
        assert following(rule, utc("2026-10-24 12:00"), 2) == ["10-25 00:30", "10-26 01:30"]

    def test_repeated_hour_runs_once(self) -> None:
        rule = Cron("30 2 * * *", "Europe/Madrid")
        assert following(rule, utc("2026-10-25 01:10"), 1) == ["10-26 01:30"]

    def test_hourly_rule_runs_every_hour_that_passes(self) -> None:
        rule = Cron("0 * * * *", "Europe/Madrid")
        assert following(rule, utc("2026-10-24 23:30"), 4) == [
            "10-25 00:00", "10-25 01:00", "10-25 02:00", "10-25 03:00",
        ]  # fmt: skip
        assert following(rule, utc("2026-03-29 00:30"), 2) == ["03-29 01:00", "03-29 02:00"]

    def test_interval_has_the_same_length_on_every_day(self) -> None:
        rule = Every(86_400, utc("2026-03-28 10:00"))
        assert following(rule, utc("2026-03-28 10:00"), 2) == ["03-29 10:00", "03-30 10:00"]

    @pytest.mark.parametrize(
        ("words", "moment"),
        [
            ("at 2026-03-29 02:30", "2026-03-29 01:00"),
            ("at 2026-10-25 02:30", "2026-10-25 00:30"),
        ],
    )
    def test_skipped_and_repeated_times(self, words: str, moment: str) -> None:
        assert parse_rule(words, now=NOW, zone="Europe/Madrid") == Once(utc(moment))

    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(ZONES),
        st.integers(0, 23),
        st.integers(0, 59),
        st.integers(0, 364 * 24 * 60),
    )
    def test_time_of_day_comes_once_on_every_day(
        self, name: str, hour: int, minute: int, start: int
    ) -> None:
        """Against the plain rule, day by day: each local date has one occurrence."""
        zone = ZoneInfo(name)
        rule = Cron(f"{minute} {hour} * * *", name)
        moment = utc("2026-01-01 00:00") + timedelta(minutes=start)
        day = moment.astimezone(zone).date() - timedelta(days=2)
        expected = [_on(day + timedelta(days=n), hour, minute, zone) for n in range(12)]
        expected_times = [time for time in expected if time > moment][:7]
        assert following(rule, moment, 7) == [f"{time:%m-%d %H:%M}" for time in expected_times]

    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(ZONES),
        st.sampled_from(["*/15 * * * *", "0 * * * *", "*/20 1-3 * * *", "30 * * * SUN"]),
        st.integers(0, 364 * 24 * 60),
    )
    def test_star_runs_at_every_matching_minute(self, name: str, fields: str, start: int) -> None:
        """Against a walk over every minute that passes, as the clocks on the wall show it."""
        zone = ZoneInfo(name)
        moment = utc("2026-01-01 00:00") + timedelta(minutes=start)
        expected_times, at = [], moment
        for _ in range(3 * 24 * 60):
            at += timedelta(minutes=1)
            if _fits(fields, at.astimezone(zone)):
                expected_times.append(f"{at:%m-%d %H:%M}")
        count = min(12, len(expected_times))
        assert following(Cron(fields, name), moment, count) == expected_times[:count]


def _on(day: date, hour: int, minute: int, zone: ZoneInfo) -> datetime:
    """The first minute of a day at which the wall clock shows that time, or is past it."""
    local = datetime(day.year, day.month, day.day, hour, minute)
    at = local.replace(tzinfo=UTC) - timedelta(hours=15)
    while at.astimezone(zone).replace(tzinfo=None) < local:
        at += timedelta(minutes=15)
    at -= timedelta(minutes=15)
    while at.astimezone(zone).replace(tzinfo=None) < local:
        at += timedelta(minutes=1)
    return at


def _fits(fields: str, local: datetime) -> bool:
    return {
        "*/15 * * * *": local.minute % 15 == 0,
        "0 * * * *": local.minute == 0,
        "*/20 1-3 * * *": local.minute % 20 == 0 and 1 <= local.hour <= 3,
        "30 * * * SUN": local.minute == 30 and local.weekday() == 6,
    }[fields]


class TestLocalToUtc:
    @settings(max_examples=100)
    @given(st.sampled_from(ZONES), st.integers(0, 365 * 96))
    def test_local_time_is_shown_or_was_just_skipped(self, name: str, quarter: int) -> None:
        zone = ZoneInfo(name)
        naive = datetime(2026, 1, 1) + timedelta(minutes=15 * quarter)
        time = local_to_utc(naive, zone)
        shown_time = time.astimezone(zone).replace(tzinfo=None)
        earlier = (time - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
        assert earlier < naive <= shown_time


class TestDowntime:
    """A task at nine every day; the machine was away for a week."""

    rule = Cron("0 9 * * *", "UTC")
    planned = utc("2026-03-02 09:00")
    back = utc("2026-03-09 08:00")

    def test_once_runs_once_for_all_missed(self) -> None:
        due = decide(self.rule, self.planned, self.back, "once")
        assert due.runs == (utc("2026-03-08 09:00"),)
        assert (due.since, due.skipped) == (self.planned, None)
        assert due.next == utc("2026-03-09 09:00")

    def test_skip_runs_none_and_reports_it(self) -> None:
        due = decide(self.rule, self.planned, self.back, "skip")
        assert due.runs == ()
        assert due.skipped == utc("2026-03-08 09:00")
        assert due.next == utc("2026-03-09 09:00")

    def test_all_runs_each_in_order(self) -> None:
        due = decide(self.rule, self.planned, self.back, "all")
        assert due.runs == tuple(utc(f"2026-03-0{day} 09:00") for day in range(2, 9))
        assert due.next == utc("2026-03-09 09:00")

    def test_all_is_limited_to_the_newest(self) -> None:
        rule = Every(60, self.planned - timedelta(seconds=60))
        due = decide(rule, self.planned, self.back, "all")
        assert len(due.runs) == schedule.MAX_RUNS
        assert due.runs[-1] == self.back
        assert due.runs == tuple(sorted(due.runs))

    @pytest.mark.parametrize("misfire", schedule.MISFIRES)
    def test_occurrence_within_the_grace_time_runs_with_every_policy(
        self, misfire: schedule.Misfire
    ) -> None:
        due = decide(self.rule, self.planned, self.planned + timedelta(minutes=4), misfire)
        assert (due.runs, due.skipped) == ((self.planned,), None)

    def test_skip_runs_occurrences_within_the_grace_time(self) -> None:
        due = decide(self.rule, self.planned, utc("2026-03-09 09:01"), "skip")
        assert due.runs == (utc("2026-03-09 09:00"),)
        assert due.skipped == utc("2026-03-08 09:00")

    def test_missed_single_run(self) -> None:
        rule = Once(self.planned)
        assert decide(rule, self.planned, self.back, "once").runs == (self.planned,)
        skipped = decide(rule, self.planned, self.back, "skip")
        assert (skipped.runs, skipped.skipped, skipped.next) == ((), self.planned, None)


class TestClockJumps:
    def test_clock_jump_forward_misses_occurrences(self) -> None:
        rule = Every(3600, utc("2026-03-01 00:00"))
        planned = utc("2026-03-01 01:00")
        due = decide(rule, planned, planned + timedelta(days=1), "once")
        assert (due.runs, due.next) == ((utc("2026-03-02 01:00"),), utc("2026-03-02 02:00"))

    def test_clock_jump_back_does_not_change_the_next_occurrence(self) -> None:
        rule = Every(3600, utc("2026-03-02 00:00"))
        assert next_after(rule, utc("2026-03-01 00:00")) == utc("2026-03-02 01:00")

    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(
            [Every(5400, NOW), Cron("*/7 3 * * *", "Europe/Madrid"), Cron("0 0 1 * *", "UTC")]
        ),
        st.lists(st.integers(0, 60 * 24 * 40), min_size=1, max_size=6),
        st.sampled_from(schedule.MISFIRES),
    )
    def test_nothing_runs_twice_and_next_is_in_the_future(
        self, rule: schedule.Rule, steps: list[int], misfire: schedule.Misfire
    ) -> None:
        planned, now = next_after(rule, NOW), NOW
        ran: list[datetime] = []
        for minutes in steps:
            now += timedelta(minutes=minutes)
            assert planned is not None
            if planned > now:
                continue
            due = decide(rule, planned, now, misfire)
            assert list(due.runs) == sorted(set(due.runs))
            assert all(planned <= time <= now for time in due.runs)
            assert not set(ran) & set(due.runs)
            ran += due.runs
            planned = due.next
            assert planned is not None
            assert planned > now
