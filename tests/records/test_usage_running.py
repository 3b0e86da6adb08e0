"""Running totals of usage: every sum is that of the ledger, wherever its calls are stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tertulia
from tertulia import Settings, Source, Store, Usage
from tertulia.core.usage import STATUSES
from tertulia.records import indexer
from tertulia.records.usage import DAY_GROUPINGS, GROUPINGS
from tertulia.records.usage_groups import Dimensions, Key, Period, read_groups
from tertulia.records.usage_running import _FEW_CALLS, QUARTER_HOUR, day_of, day_starts
from tertulia.storage.base import Params, Row, Transaction
from tertulia.storage.rows import to_micros
from tertulia.testing import FakeClock
from tertulia.testing.fixtures import run_in_threads, wait_until
from tests.records.store_inspection import execute, without_index
from tests.servers.empty_stores import NewPlace

ZONE = "Asia/Kathmandu"  # 5:45 ahead: its days begin in the middle of an hour
BEGIN = datetime(2026, 3, 4, 16, 0, tzinfo=UTC)
SOURCES = (
    Source("telegram", "1", user_id="1"),
    Source("telegram", "2", user_id="2"),
    Source("signal", "3", user_id="3"),
    Source("slack", "C1", chat_type="channel"),  # nobody is named
)


class Call(NamedTuple):
    """A call that was entered some minutes after the beginning."""

    minutes: int
    source: Source
    usage: Usage

    @property
    def at(self) -> datetime:
        return BEGIN + timedelta(minutes=self.minutes)

    def name(self, by: str) -> str:
        if by == "day":
            return f"{self.at.astimezone(ZoneInfo(ZONE)):%Y-%m-%d}"
        if by == "model":
            return self.usage.model or "unknown"
        if by == "platform":
            return self.source.platform
        user = self.source.user_id
        return "shared" if user is None else f"{self.source.platform}:{user}"


usages = st.builds(
    Usage,
    input=st.integers(0, 1000),
    output=st.integers(0, 9),
    model=st.sampled_from(["m", "n", None]),
    cost_usd=st.sampled_from([None, 0.25, 1.0]),
)
# Not in the order of time: a call may be entered late.
calls = st.builds(Call, st.integers(0, 4000), st.sampled_from(SOURCES), usages)
limits = st.none() | st.integers(-20, 4020)


def add_up(entered: Iterable[Call]) -> tuple[int, int, float | None, str]:
    chosen = list(entered)
    costs = [call.usage.cost_usd for call in chosen if call.usage.cost_usd is not None]
    statuses = ["unknown" if call.usage.cost_usd is None else "actual" for call in chosen]
    return (
        sum(call.usage.input for call in chosen),
        sum(call.usage.output for call in chosen),
        sum(costs) if costs else None,
        min(statuses, key=STATUSES.index, default="actual"),
    )


def expect(entered: Iterable[Call], key: Callable[[Call], Any]) -> dict[Any, Any]:
    ordered = sorted(entered, key=key)
    return {group: add_up(chosen) for group, chosen in itertools.groupby(ordered, key)}


def shown(usage: Usage) -> tuple[int, int, float | None, str | None]:
    return usage.input, usage.output, usage.cost_usd, usage.cost_status


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(BEGIN)


def open_store(where: str, clock: FakeClock) -> Store:
    return tertulia.open(where, settings=Settings(zone=ZONE, durability="fast"), clock=clock)


@pytest.fixture
def store(where: str, clock: FakeClock) -> Iterator[Store]:
    with without_index(open_store(where, clock)) as store:
        yield store


def enter(store: Store, clock: FakeClock, call: Call) -> None:
    clock.forward(seconds=(call.at - clock.now()).total_seconds())
    store.usage.add(store.sessions.open(call.source).id, call.usage)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.tuples(st.lists(calls, max_size=6), st.booleans()), max_size=4),
    since=limits,
    until=limits,
)
def test_every_sum_is_that_of_the_ledger(
    new_place: NewPlace,
    batches: list[tuple[list[Call], bool]],
    since: int | None,
    until: int | None,
) -> None:
    """Some calls are new, others are in the sums of their quarters, or in the running totals."""
    clock = FakeClock(BEGIN)
    with new_place() as place, without_index(open_store(place, clock)) as store:
        for batch, is_settled in batches:
            for call in batch:
                enter(store, clock, call)
            if is_settled:
                store.settle()
        period = {
            name: BEGIN + timedelta(minutes=minutes)
            for name, minutes in (("since", since), ("until", until))
            if minutes is not None
        }
        entered = [
            call
            for call in itertools.chain.from_iterable(batch for batch, _ in batches)
            if (since is None or call.minutes >= since) and (until is None or call.minutes < until)
        ]
        for by in GROUPINGS:
            if by != "session":
                sums = store.usage.sum(by, **period)
                assert {name: shown(usage) for name, usage in sums.items()} == expect(
                    entered,
                    lambda call, by=by: call.name(by),  # type: ignore[misc]
                )
                assert list(sums) == sorted(sums)
        for person in (None, "telegram:1", "signal:3"):
            own = [call for call in entered if person in (None, call.name("person"))]
            assert store.usage.total(**period, person=person).calls == len(own)
            for by_day in DAY_GROUPINGS:
                days = store.usage.by_day(by_day, **period, person=person)
                assert {(day.day, day.group): shown(day.usage) for day in days} == expect(
                    own,
                    lambda call, by=by_day: (call.name("day"), call.name(by)),  # type: ignore[misc]
                )
                assert sum(day.calls for day in days) == len(own)
                report = store.usage.report(GROUPINGS, **period, by_day=by_day, person=person)
                assert report.days == days
                for by, sums in report.sums.items():
                    if by == "session":
                        assert sum(usage.input for usage in sums.values()) == add_up(own)[0]
                    else:
                        assert {name: shown(usage) for name, usage in sums.items()} == expect(
                            own,
                            lambda call, by=by: call.name(by),  # type: ignore[misc]
                        )
        assert store.check() == []


def count_rows(store: Store, table: str) -> int:
    ((count,),) = execute(store, f"select count(*) from {table}")
    return int(count)


def enter_many(store: Store, clock: FakeClock) -> None:
    """Enter more calls than the indexer leaves as they are."""
    for _ in range(_FEW_CALLS + 1):
        enter(store, clock, Call(0, SOURCES[0], Usage(1, model="m")))


def test_indexer_rolls_up_what_is_past(where: str, clock: FakeClock) -> None:
    with open_store(where, clock) as store:
        enter_many(store, clock)
        wait_until(lambda: count_rows(store, "usage_sums") == 1, "the calls are added up")
        clock.forward(hours=1)
        enter(store, clock, Call(61, SOURCES[0], Usage(2, model="m")))
        wait_until(lambda: count_rows(store, "usage_sums") == 0, "the first calls are rolled up")
        assert count_rows(store, "usage_running") == 5, "all, model, platform, person, detail"
        assert count_rows(store, "usage_new") == 1, "a single call is not worth a commit"
        assert store.usage.sum("model")["m"].input == _FEW_CALLS + 3
        assert store.check() == []


def test_indexer_adds_up_new_calls_before_it_waits_for_a_pause(
    where: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that live for one call each would leave more and more of them."""
    monkeypatch.setattr(indexer, "_QUIET_SECONDS", 3600.0)
    monkeypatch.setattr(indexer, "_MAX_LAG_SECONDS", 3600.0)
    with without_index(open_store(where, clock)) as store:
        enter_many(store, clock)
        with open_store(where, clock) as short:
            enter(short, clock, Call(0, SOURCES[0], Usage(1, model="m")))
            wait_until(lambda: count_rows(store, "usage_new") == 0, "the calls are added up")


def test_numbers_of_calls_go_on_when_there_is_no_new_call(store: Store, clock: FakeClock) -> None:
    for _ in range(3):
        enter(store, clock, Call(0, SOURCES[0], Usage(1, model="m")))
        enter(store, clock, Call(0, SOURCES[1], Usage(1, model="m")))
        store.settle()
        assert count_rows(store, "usage_new") == 0
    numbers = [number for (number,) in execute(store, "select id from usage order by id")]
    assert numbers == [1, 2, 3, 4, 5, 6]


def test_sums_of_the_past_read_neither_the_ledger_nor_its_sums(
    store: Store, clock: FakeClock
) -> None:
    for minutes in range(0, 6000, 50):
        enter(store, clock, Call(minutes, SOURCES[minutes % 3], Usage(1, model="m")))
    clock.forward(hours=1)
    sums = {by: store.usage.sum(by) for by in GROUPINGS if by != "session"}
    store.settle()
    assert count_rows(store, "usage_sums") == 0
    execute(store, "delete from usage_kept")
    assert {by: store.usage.sum(by) for by in GROUPINGS if by != "session"} == sums
    assert sum(day.calls for day in store.usage.by_day("person")) == 120


class CountedReads:
    """A transaction that counts its statements."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.names: list[str] = []

    def all(self, statement: str, params: Params) -> list[Row]:
        self.names.append(statement)
        return self._tx.all(statement, params)


def test_groupings_of_one_period_come_from_two_reads(store: Store, clock: FakeClock) -> None:
    enter(store, clock, Call(0, SOURCES[0], Usage(1, model="m")))
    clock.forward(hours=1)
    store.settle()
    enter(store, clock, Call(61, SOURCES[1], Usage(2, model="n")))
    period = Period.between(to_micros(BEGIN), to_micros(BEGIN + timedelta(days=30)))
    wanted: list[Dimensions] = [("day", "model"), ("person",), ("platform",), ("day",), ()]

    def read(tx: Transaction) -> tuple[list[str], dict[Dimensions, dict[Key, Row]]]:
        counted: Any = CountedReads(tx)
        groups = read_groups(counted, wanted, period, zone=ZoneInfo(ZONE))
        return counted.names, groups

    names, groups = store.context.db.read(read)
    assert names == ["usage_recent", "usage_running_at"]
    assert [sorted(groups[grouping]) for grouping in wanted[:3]] == [
        [("2026-03-04", "m"), ("2026-03-04", "n")],
        [("telegram:1",), ("telegram:2",)],
        [("telegram",)],
    ]


def test_sum_without_limits_reads_the_newest_totals_only(store: Store, clock: FakeClock) -> None:
    for hours in range(3):  # the second is late: it counts in the totals after it too
        when = FakeClock(clock.now() - timedelta(hours=5) * (hours == 1))
        enter(store, clock if hours != 1 else when, Call(0, SOURCES[0], Usage(1, model="m")))
        clock.forward(hours=2)
        store.settle()

    def read(tx: Transaction) -> tuple[list[str], dict[Dimensions, dict[Key, Row]]]:
        counted: Any = CountedReads(tx)
        period = Period.between(None, None)
        groups = read_groups(counted, [("person",)], period, zone=ZoneInfo(ZONE))
        return counted.names, groups

    names, groups = store.context.db.read(read)
    assert names == ["usage_recent", "usage_newest_of"]
    assert {key: row[0] for key, row in groups["person",].items()} == {("telegram:1",): 3}
    assert count_rows(store, "usage_newest") == 5, "all, model, platform, person, detail"
    assert store.check() == []


def test_nothing_is_lost_while_others_roll_up(where: str, clock: FakeClock) -> None:
    """Some enter calls of a past quarter, whose rows others take away at the same moment."""
    with without_index(open_store(where, clock)) as one, open_store(where, clock) as two:
        session = one.sessions.open(SOURCES[0]).id
        late = FakeClock(clock.now() - timedelta(hours=5))
        with without_index(open_store(where, late)) as writer:

            def write() -> None:
                for _ in range(20):
                    writer.usage.add(session, Usage(1, model="m"))
                    late.forward(minutes=1)

            def roll_up(store: Store) -> None:
                for _ in range(10):
                    store.settle()

            run_in_threads(write, write, partial(roll_up, one), partial(roll_up, two))
        one.settle()
        assert count_rows(one, "usage_sums") == 0
        assert [usage.input for usage in one.usage.sum("model").values()] == [40]
        assert one.check() == []


PEOPLE = "group_id in (select id from usage_groups where kind = 'person')"


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("true", "the sums of usage differ"),
        (PEOPLE, "the running totals of usage differ"),
        (PEOPLE, "the newest totals of usage differ"),
    ],
)
def test_check_reports_wrong_totals(
    store: Store, clock: FakeClock, condition: str, problem: str
) -> None:
    enter(store, clock, Call(0, SOURCES[0], Usage(1, model="m")))
    clock.forward(hours=1)
    store.settle()
    assert store.check() == []
    execute(store, f"update usage_running set calls = calls + 1 where {condition}")
    assert any(problem in fault for fault in store.check())


@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("UTC", "2026-03-01"),
        ("Asia/Kathmandu", "2026-03-01"),
        ("Europe/Madrid", "2026-03-26"),
        ("Europe/Madrid", "2026-10-22"),
        ("America/Sao_Paulo", "2018-11-01"),  # there was no midnight
        ("America/Sao_Paulo", "2018-02-15"),
        ("America/St_Johns", "2006-10-26"),  # set back one minute after midnight
        ("Australia/Lord_Howe", "2026-04-02"),  # by half an hour
        ("Pacific/Apia", "2011-12-27"),  # a day was left out
        ("Africa/Monrovia", "1972-01-04"),  # an offset of 44 minutes and 30 seconds
    ],
)
def test_days_begin_where_the_day_of_a_quarter_changes(zone: str, begin: str) -> None:
    place = ZoneInfo(zone)
    first = to_micros(datetime.fromisoformat(f"{begin}T07:00:00+00:00")) // QUARTER_HOUR
    end = first + 7 * 96
    quarters = range(first, end)
    expected = [
        quarter
        for quarter in quarters
        if quarter == first or day_of(quarter, place) != day_of(quarter - 1, place)
    ]
    assert day_starts(first, end, place) == expected
