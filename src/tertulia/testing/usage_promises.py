"""Promises of usage: it is counted once, never lost, and an unknown cost is never zero."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tertulia.core.budget import Budget
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, NotFound
from tertulia.records.usage import DAY_GROUPINGS, GROUPINGS
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import Handles, dm, run_in_threads, user_message

# A model name that is in no price list.
UNPRICED = "no-such-model-7"


def spent(dollars: float | None, **details: Any) -> Usage:
    return Usage(input=100, output=10, model=UNPRICED, cost_usd=dollars, **details)


class UsagePromises:
    """Promises of the usage ledger and the totals of a session."""

    def test_totals_grow_with_every_call(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.usage.add(
            session.id,
            Usage(1, 2, 3, 4, 1, model="m", provider="p", cost_usd=0.1, last_prompt=70),
        )
        other.usage.add(session.id, Usage(10, 20, 30, 40, 5, model="n", cost_usd=0.2))
        updated = store.sessions.require(session.id)
        counts = ("input", "output", "cache_read", "cache_write", "reasoning", "total")
        assert [getattr(updated.usage, name) for name in counts] == [11, 22, 33, 44, 6, 110]
        assert (updated.cost_usd, updated.cost_status) == (0.3, "actual")
        assert (updated.model, updated.provider, updated.last_prompt_tokens) == ("n", "p", 70)
        store.usage.add(session.id, Usage(input=1, model="m", last_prompt=0))
        assert store.sessions.require(session.id).last_prompt_tokens == 0

    def test_days_are_divided_by_group_and_nothing_is_lost(
        self, store: Store, clock: FakeClock
    ) -> None:
        anna, ben = (store.sessions.open(dm(name)).id for name in ("anna", "ben"))
        begin = clock.now()
        for session_id, model in ((anna, "m"), (anna, "n"), (ben, "m"), (anna, "m")):
            store.usage.add(session_id, Usage(input=100, model=model, cost_usd=1))
            clock.forward(hours=8)
        for by in DAY_GROUPINGS:
            days = store.usage.by_day(by, begin)
            assert sum(day.calls for day in days) == 4
            assert sum(day.usage.cost_usd or 0 for day in days) == 4
            assert [day.day for day in days] == sorted(day.day for day in days)
        groups = {(day.group, day.calls) for day in store.usage.by_day("person", begin)}
        assert {group for group, _ in groups} == {"telegram:anna", "telegram:ben"}
        own = store.usage.by_day("model", begin, person="telegram:ben")
        assert [(day.group, day.calls) for day in own] == [("m", 1)]
        total = store.usage.total(begin, person="telegram:anna")
        assert (total.calls, total.usage.input) == (3, 300)
        assert store.usage.total(clock.now()).calls == 0
        with pytest.raises(ConfigError):
            store.usage.by_day("day")  # type: ignore[arg-type]

    def test_budgets_tell_what_is_used_of_them(self, handles: Handles) -> None:
        budgets = (
            Budget(per="everyone", usd=10),
            Budget(per="platform", only="slack", tokens=100),
            Budget(per="person", usd=1),
        )
        store = handles.open(budgets=budgets)
        store.usage.add(store.sessions.open(dm("anna")).id, spent(9))
        everyone, slack = store.usage.budgets()
        assert (everyone.cost_usd, everyone.share) == (9, 0.9)
        assert (slack.tokens, slack.share) == (0, 0)

    def test_nodes_and_leases_are_told(self, store: Store, other: Store) -> None:
        store.nodes.report("a", version="1", turns=2)
        other.nodes.report("b", version="1", turns=0)
        store.nodes.report("a", version="1", turns=1)
        lease = store.listeners.claim("telegram", "", "a")
        assert lease is not None
        assert [(node.name, node.turns, node.is_fresh) for node in other.nodes.find()] == [
            ("a", 1, True), ("b", 0, True),
        ]  # fmt: skip
        (account_lease,) = other.nodes.leases()
        assert (account_lease.node, account_lease.epoch, account_lease.is_held) == (
            "a",
            lease.epoch,
            True,
        )
        store.listeners.release(lease)
        assert not other.nodes.leases()[0].is_held
        store.nodes.forget("a")
        assert [node.name for node in store.nodes.find()] == ["b"]

    def test_messages_and_their_usage_are_one_transaction(self, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        transcript = store.transcript(session.id)
        transcript.extend([user_message("a"), user_message("b")], spent(0.5))
        transcript.extend([], spent(0.25))
        updated = store.sessions.require(session.id)
        assert (updated.usage.input, updated.cost_usd) == (200, 0.75)
        assert store.usage.sum("session")[session.id].cost_usd == 0.75
        with pytest.raises(NotFound):
            store.transcript("20260101_000000_00000000").extend([user_message("a")], spent(1))
        with pytest.raises(NotFound):
            store.usage.add("20260101_000000_00000000", spent(1))
        assert [usage.input for usage in store.usage.sum("session").values()] == [200]

    @pytest.mark.parametrize(
        ("calls", "cost", "status"),
        [
            ([], None, "unknown"),
            ([spent(None)], None, "unknown"),
            ([spent(0)], 0.0, "actual"),
            ([spent(None), spent(0.5)], 0.5, "unknown"),
            ([spent(0.5), spent(None)], 0.5, "unknown"),
            ([spent(0.5), spent(0.1, cost_status="estimated")], 0.6, "estimated"),
            ([spent(0.5), spent(None, cost_status="included")], 0.5, "actual"),
            ([spent(None, cost_status="included")], None, "included"),
            ([spent(0.1)] * 30, 3.0, "actual"),
            ([spent(0.000000001)] * 3, 0.000000003, "actual"),
        ],
    )
    def test_unknown_cost_is_not_zero(
        self, store: Store, calls: list[Usage], cost: float | None, status: str
    ) -> None:
        session = store.sessions.open(dm("anna"))
        for usage in calls:
            store.usage.add(session.id, usage)
        updated = store.sessions.require(session.id)
        assert (updated.cost_usd, updated.cost_status) == (cost, status)
        for by in GROUPINGS:
            sums = store.usage.sum(by)
            assert [(usage.cost_usd, usage.cost_status) for usage in sums.values()] == (
                [(cost, status)] if calls else []
            )

    def test_sums_by_every_grouping(self, handles: Handles, store: Store) -> None:
        anna, ben = store.sessions.open(dm("anna")), store.sessions.open(dm("ben", "signal"))
        group = store.sessions.open(Source("telegram", "g", chat_type="group"))
        store.usage.add(anna.id, Usage(input=1, model="m", cost_usd=1))
        store.usage.add(group.id, Usage(input=2, model="m", cost_usd=2))
        handles.clock.forward(days=1)
        store.usage.add(anna.id, Usage(input=4, model="n", cost_usd=4))
        store.usage.add(ben.id, Usage(input=8, cost_usd=8))

        def sums(by: Any) -> dict[str, int]:
            return {name: usage.input for name, usage in store.usage.sum(by).items()}

        assert sums("day") == {"2026-03-04": 3, "2026-03-05": 12}
        assert sums("model") == {"m": 3, "n": 4, "unknown": 8}
        assert sums("platform") == {"telegram": 7, "signal": 8}
        assert sums("person") == {"telegram:anna": 5, "signal:ben": 8, "shared": 2}
        assert sums("session") == {anna.id: 5, group.id: 2, ben.id: 8}
        assert store.usage.sum()["2026-03-05"].cost_usd == 12
        with pytest.raises(ConfigError):
            sums("colour")

    def test_days_are_those_of_the_zone(self, handles: Handles) -> None:
        store = handles.open(zone="Asia/Kathmandu")  # 5:45 ahead
        session = store.sessions.open(dm("anna"))
        for _ in range(8):
            store.usage.add(session.id, Usage(input=1, cost_usd=1))
            handles.clock.forward(hours=3)
        assert {day: usage.input for day, usage in store.usage.sum().items()} == {
            "2026-03-04": 3,
            "2026-03-05": 5,
        }

    def test_sums_within_a_period(self, handles: Handles, store: Store) -> None:
        session = store.sessions.open(dm("anna"))
        begin = handles.clock.now()
        for number in range(4):
            store.usage.add(session.id, Usage(input=10**number, cost_usd=1))
            handles.clock.forward(hours=1)

        def total(since: datetime | None, until: datetime | None) -> int:
            sums = store.usage.sum("day", since, until)
            return sum(usage.input for usage in sums.values())

        hour = timedelta(hours=1)
        assert total(None, None) == 1111
        assert total(begin + hour, None) == 1110
        assert total(None, begin + hour) == 1
        assert total(begin + hour, begin + 3 * hour) == 110
        with pytest.raises(ConfigError):
            total(begin.replace(tzinfo=None), None)

    def test_the_ledger_outlives_clear_and_delete(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))
        store.transcript(session.id).extend([user_message("a")], spent(0.5))
        store.transcript(session.id).clear()
        assert store.sessions.require(session.id).cost_usd == 0.5
        store.sessions.delete(session.id)
        assert other.usage.sum("session")[session.id].cost_usd == 0.5
        assert other.usage.sum("person")["telegram:anna"].input == 100

    def test_two_handles_lose_no_usage(self, store: Store, other: Store) -> None:
        session = store.sessions.open(dm("anna"))

        def spend(handle: Store) -> None:
            for _ in range(25):
                handle.usage.add(session.id, Usage(input=1, output=2, cost_usd=0.01))
                handle.transcript(session.id).extend(
                    [user_message("a")], Usage(input=1, cost_usd=0.01)
                )

        run_in_threads(*(partial(spend, handle) for handle in (store, other) * 3))
        updated = store.sessions.require(session.id)
        assert (updated.usage.input, updated.usage.output, updated.cost_usd) == (300, 300, 3.0)
        assert store.usage.sum("session")[session.id].input == 300
        assert store.transcript(session.id).count() == 150
