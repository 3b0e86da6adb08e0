"""When a task runs: what people write, both clock changes, downtime, and clocks that jump."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tertulia.core import schedule
from tertulia.core.schedule import Cron, Every, Once, decide, local_to_utc, next_after, parse
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
    found = []
    for _ in range(count):
        after = next_after(rule, moment)
        assert after is not None
        assert after > moment
        found.append(f"{after:%m-%d %H:%M}")
        moment = after
    return found


class TestWords:
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
    def test_are_read(self, words: str, rule: schedule.Rule) -> None:
        assert parse(words, now=NOW, zone="Europe/Madrid") == rule

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
    def test_that_are_none_are_refused_with_a_way_out(self, words: str, told: str) -> None:
        with pytest.raises(ConfigError, match=told):
            parse(words, now=NOW, zone="America/Santiago")

    def test_a_zone_that_does_not_exist_is_told(self) -> None:
        with pytest.raises(ConfigError, match="no time zone"):
            parse("every 2h", now=NOW, zone="Mars/Olympus")

    @given(st.text(max_size=40), st.sampled_from(["", "every ", "at ", "in ", "cron "]))
    def test_whatever_is_written_is_read_or_refused(self, words: str, kind: str) -> None:
        try:
            rule = parse(kind + words, now=NOW, zone="UTC")
        except ConfigError:
            return
        first = next_after(rule, NOW)
        assert first is not None
        assert first > NOW

    @pytest.mark.parametrize("words", ["every 1d2h3m", "every 90m", "at 2026-11-20 09:00 UTC"])
    def test_a_description_is_read_back_as_the_same(self, words: str) -> None:
        rule = parse(words, now=NOW, zone="UTC")
        assert parse(schedule.describe(rule), now=NOW, zone="UTC") == rule


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

    def test_asked_in_the_hour_that_comes_again_it_does_not_run_again(self) -> None:
        rule = Cron("30 2 * * *", "Europe/Madrid")
        assert following(rule, utc("2026-10-25 01:10"), 1) == ["10-26 01:30"]

    def test_every_hour_is_every_hour_that_passes(self) -> None:
        rule = Cron("0 * * * *", "Europe/Madrid")
        assert following(rule, utc("2026-10-24 23:30"), 4) == [
            "10-25 00:00", "10-25 01:00", "10-25 02:00", "10-25 03:00",
        ]  # fmt: skip
        assert following(rule, utc("2026-03-29 00:30"), 2) == ["03-29 01:00", "03-29 02:00"]

    def test_an_interval_has_the_same_length_on_every_day(self) -> None:
        rule = Every(86_400, utc("2026-03-28 10:00"))
        assert following(rule, utc("2026-03-28 10:00"), 2) == ["03-29 10:00", "03-30 10:00"]

    @pytest.mark.parametrize(
        ("words", "moment"),
        [
            ("at 2026-03-29 02:30", "2026-03-29 01:00"),
            ("at 2026-10-25 02:30", "2026-10-25 00:30"),
        ],
    )
    def test_a_time_that_is_left_out_or_comes_twice(self, words: str, moment: str) -> None:
        assert parse(words, now=NOW, zone="Europe/Madrid") == Once(utc(moment))

    @settings(max_examples=60, deadline=None)
    @given(
        st.sampled_from(ZONES),
        st.integers(0, 23),
        st.integers(0, 59),
        st.integers(0, 364 * 24 * 60),
    )
    def test_a_time_of_day_comes_once_on_every_day(
        self, name: str, hour: int, minute: int, start: int
    ) -> None:
        """Against the plain rule, day by day: each local date has one occurrence."""
        zone = ZoneInfo(name)
        rule = Cron(f"{minute} {hour} * * *", name)
        moment = utc("2026-01-01 00:00") + timedelta(minutes=start)
        day = moment.astimezone(zone).date() - timedelta(days=2)
        expected = [_on(day + timedelta(days=n), hour, minute, zone) for n in range(12)]
        wanted = [one for one in expected if one > moment][:7]
        assert following(rule, moment, 7) == [f"{one:%m-%d %H:%M}" for one in wanted]

    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(ZONES),
        st.sampled_from(["*/15 * * * *", "0 * * * *", "*/20 1-3 * * *", "30 * * * SUN"]),
        st.integers(0, 364 * 24 * 60),
    )
    def test_a_star_runs_at_every_minute_that_fits(
        self, name: str, fields: str, start: int
    ) -> None:
        """Against a walk over every minute that passes, as the clocks on the wall show it."""
        zone = ZoneInfo(name)
        moment = utc("2026-01-01 00:00") + timedelta(minutes=start)
        wanted, at = [], moment
        for _ in range(3 * 24 * 60):
            at += timedelta(minutes=1)
            if _fits(fields, at.astimezone(zone)):
                wanted.append(f"{at:%m-%d %H:%M}")
        count = min(12, len(wanted))
        assert following(Cron(fields, name), moment, count) == wanted[:count]


def _on(day: date, hour: int, minute: int, zone: ZoneInfo) -> datetime:
    """The first minute of a day at which the wall clock shows that time, or is past it."""
    wanted = datetime(day.year, day.month, day.day, hour, minute)
    at = wanted.replace(tzinfo=UTC) - timedelta(hours=15)
    while at.astimezone(zone).replace(tzinfo=None) < wanted:
        at += timedelta(minutes=15)
    at -= timedelta(minutes=15)
    while at.astimezone(zone).replace(tzinfo=None) < wanted:
        at += timedelta(minutes=1)
    return at


def _fits(fields: str, local: datetime) -> bool:
    return {
        "*/15 * * * *": local.minute % 15 == 0,
        "0 * * * *": local.minute == 0,
        "*/20 1-3 * * *": local.minute % 20 == 0 and 1 <= local.hour <= 3,
        "30 * * * SUN": local.minute == 30 and local.weekday() == 6,
    }[fields]


class TestLocalMoments:
    @settings(max_examples=100)
    @given(st.sampled_from(ZONES), st.integers(0, 365 * 96))
    def test_the_wall_clock_shows_it_or_has_just_jumped_over_it(
        self, name: str, quarter: int
    ) -> None:
        zone = ZoneInfo(name)
        naive = datetime(2026, 1, 1) + timedelta(minutes=15 * quarter)
        found = local_to_utc(naive, zone)
        shown = found.astimezone(zone).replace(tzinfo=None)
        earlier = (found - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None)
        assert earlier < naive <= shown


class TestDowntime:
    """A task at nine every day; the machine was away for a week."""

    rule = Cron("0 9 * * *", "UTC")
    planned = utc("2026-03-02 09:00")
    back = utc("2026-03-09 08:00")

    def test_once_runs_once_for_all(self) -> None:
        due = decide(self.rule, self.planned, self.back, "once")
        assert due.runs == (utc("2026-03-08 09:00"),)
        assert (due.since, due.skipped) == (self.planned, None)
        assert due.next == utc("2026-03-09 09:00")

    def test_skip_runs_none_and_says_so(self) -> None:
        due = decide(self.rule, self.planned, self.back, "skip")
        assert due.runs == ()
        assert due.skipped == utc("2026-03-08 09:00")
        assert due.next == utc("2026-03-09 09:00")

    def test_all_runs_each_in_order(self) -> None:
        due = decide(self.rule, self.planned, self.back, "all")
        assert due.runs == tuple(utc(f"2026-03-0{day} 09:00") for day in range(2, 9))
        assert due.next == utc("2026-03-09 09:00")

    def test_all_has_a_bound_and_keeps_the_newest(self) -> None:
        rule = Every(60, self.planned - timedelta(seconds=60))
        due = decide(rule, self.planned, self.back, "all")
        assert len(due.runs) == schedule.MAX_RUNS
        assert due.runs[-1] == self.back
        assert due.runs == tuple(sorted(due.runs))

    @pytest.mark.parametrize("misfire", schedule.MISFIRES)
    def test_who_is_a_little_late_runs_it_under_every_policy(
        self, misfire: schedule.Misfire
    ) -> None:
        due = decide(self.rule, self.planned, self.planned + timedelta(minutes=4), misfire)
        assert (due.runs, due.skipped) == ((self.planned,), None)

    def test_skip_still_runs_what_is_in_time(self) -> None:
        due = decide(self.rule, self.planned, utc("2026-03-09 09:01"), "skip")
        assert due.runs == (utc("2026-03-09 09:00"),)
        assert due.skipped == utc("2026-03-08 09:00")

    def test_a_task_for_one_moment_that_was_missed(self) -> None:
        rule = Once(self.planned)
        assert decide(rule, self.planned, self.back, "once").runs == (self.planned,)
        skipped = decide(rule, self.planned, self.back, "skip")
        assert (skipped.runs, skipped.skipped, skipped.next) == ((), self.planned, None)


class TestClocksThatJump:
    def test_a_day_forward_misses_what_it_jumped_over(self) -> None:
        rule = Every(3600, utc("2026-03-01 00:00"))
        planned = utc("2026-03-01 01:00")
        due = decide(rule, planned, planned + timedelta(days=1), "once")
        assert (due.runs, due.next) == ((utc("2026-03-02 01:00"),), utc("2026-03-02 02:00"))

    def test_a_day_back_and_what_comes_next_stays_what_it_was(self) -> None:
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
    def test_however_time_goes_on_nothing_runs_twice_and_what_is_next_lies_ahead(
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
            assert all(planned <= one <= now for one in due.runs)
            assert not set(ran) & set(due.runs)
            ran += due.runs
            planned = due.next
            assert planned is not None
            assert planned > now
