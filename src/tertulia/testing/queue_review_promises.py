"""Promises of reviewing the queues: newest first, by problem, bounded, and settled by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.core.usage import Usage
from tertulia.errors import ConfigError, IllegalMove, NotFound
from tertulia.records.queues.outbox import Delivery
from tertulia.store import Store
from tertulia.testing.fixtures import dm


def put_dead(store: Store, count: int, problem: str, platform: str = "telegram") -> list[int]:
    """Put deliveries in and let each fail for good; return their numbers."""
    numbers = []
    for number in range(count):
        store.outbox.put(f"{problem} {number}", f"{platform}:{number}")
        for delivery in store.outbox.claim():
            store.outbox.failed(delivery, problem, outcome="dead")
            numbers.append(delivery.id)
    return numbers


def numbers_of(page: Any) -> list[int]:
    return [item.id for item in page.items]


class QueueReviewPromises:
    """Promises of the review of queues."""

    def test_deliveries_are_listed_newest_first(self, store: Store) -> None:
        numbers = [store.outbox.put(str(n), f"telegram:{n}").id for n in range(5)]
        first = store.queues.deliveries(limit=3)
        rest = store.queues.deliveries(limit=3, cursor=first.next)
        assert numbers_of(first) + numbers_of(rest) == numbers[::-1]
        assert rest.next is None
        (claimed,) = store.outbox.claim(1)
        assert claimed.id not in numbers_of(store.queues.deliveries(state="waiting"))
        assert store.queues.require_delivery(claimed.id).state == "sending"

    def test_problems_are_grouped_and_counted_up_to_a_limit(self, store: Store) -> None:
        put_dead(store, 3, "blocked")
        newest = put_dead(store, 2, "no such chat")
        put_dead(store, 1, "blocked", "slack")
        store.inbox.put(dm("anna"), "hello")
        (item,) = store.inbox.claim()
        store.inbox.failed(item, "the model is gone", for_good=True)
        overview = store.queues.overview()
        counts = {(each.queue, each.state): each.count for each in overview.counts}
        assert counts["outbox", "dead"] == 6
        assert counts["inbox", "dead"] == 1
        groups = [(g.queue, g.platform, g.problem, g.count) for g in overview.groups]
        assert groups == [
            ("outbox", "slack", "blocked", 1),
            ("outbox", "telegram", "no such chat", 2),
            ("outbox", "telegram", "blocked", 3),
            ("inbox", "telegram", "the model is gone", 1),
        ]
        assert overview.groups[1].newest_id == newest[-1]
        bounded = {(c.queue, c.state): c for c in store.queues.overview(limit=2).counts}
        assert (bounded["outbox", "dead"].count, bounded["outbox", "dead"].is_more) == (2, True)

    def test_what_is_open_is_listed_by_state_newest_first(self, store: Store) -> None:
        dead = put_dead(store, 3, "blocked")
        waiting = [store.outbox.put(str(n), f"telegram:{n}").id for n in range(3)]
        (sending,) = store.outbox.claim(1)
        waiting.remove(sending.id)
        sent = store.outbox.put("sent", "slack:1")
        for delivery in store.outbox.claim(platforms=["slack"]):
            store.outbox.done(delivery)
        listed = store.queues.open_deliveries()
        assert [each.id for each in listed] == [*dead[::-1], *waiting[::-1], sending.id]
        assert [each.id for each in store.queues.open_deliveries(limit=1)] == [
            dead[-1], waiting[-1], sending.id,
        ]  # fmt: skip
        assert sent.id not in [each.id for each in listed]
        store.inbox.put(dm("anna"), "hello")
        (item,) = store.inbox.claim()
        store.inbox.failed(item, "the model is gone", for_good=True)
        late = store.inbox.put(dm("anna"), "hello?")
        assert [each.id for each in store.queues.open_messages()] == [item.id, late.id]

    def test_a_group_is_chosen_by_platform_and_problem(self, store: Store) -> None:
        blocked = put_dead(store, 3, "blocked" * 100)
        put_dead(store, 2, "no such chat")
        group = next(g for g in store.queues.overview().groups if g.count == 3)
        page = store.queues.deliveries(
            state="dead", platform=group.platform, problem=group.problem, limit=2
        )
        rest = store.queues.deliveries(
            state="dead", platform=group.platform, problem=group.problem, cursor=page.next
        )
        assert numbers_of(page) + numbers_of(rest) == blocked[::-1]
        assert len(store.queues.deliveries(state="dead", platform="telegram").items) == 5
        wrong: Any
        for wrong in ({"platform": "telegram"}, {"state": "dead", "problem": "x"}):
            with pytest.raises(ConfigError):
                store.queues.deliveries(**wrong)

    @pytest.mark.parametrize(
        ("outcome", "state"), [("sent", "sent"), ("retry", "waiting"), ("dead", "dead")]
    )
    def test_a_delivery_is_settled_by_hand(self, store: Store, outcome: Any, state: str) -> None:
        (number,) = put_dead(store, 1, "blocked")
        settled = store.queues.settle_delivery(number, outcome, by="token:me")
        assert settled.state == state
        if outcome != "sent":
            assert settled.problem == "settled by hand (token:me)"
        if outcome == "retry":
            assert [each.id for each in store.outbox.claim()] == [number]
            with pytest.raises(IllegalMove):
                store.queues.settle_delivery(number, outcome)
        with pytest.raises(NotFound):
            store.queues.settle_delivery(10**6, outcome)

    def test_many_are_settled_while_two_change(self, store: Store, other: Store) -> None:
        numbers = put_dead(store, 12, "blocked")
        put_dead(store, 1, "no such chat")
        settle = store.outbox.failed

        def settle_after_others(delivery: Delivery, *args: Any, **options: Any) -> Delivery:
            if delivery.id == numbers[-1]:  # the first one that is settled
                for number in numbers[:2]:
                    other.queues.settle_delivery(number, "sent")
            return settle(delivery, *args, **options)

        store.outbox.failed = settle_after_others  # type: ignore[method-assign]
        report = store.queues.settle_deliveries("retry", platform="telegram", problem="blocked")
        assert (report.settled, report.is_more) == (10, False)
        assert sorted(report.changed) == numbers[:2]
        assert len(store.queues.deliveries(state="waiting").items) == 10
        assert len(store.queues.deliveries(state="dead").items) == 1

    def test_chosen_ones_are_settled(self, store: Store) -> None:
        first, second, third = put_dead(store, 3, "blocked")
        report = store.queues.settle_deliveries("sent", ids=[first, third, 10**6])
        assert (report.settled, report.changed) == (2, (10**6,))
        assert numbers_of(store.queues.deliveries(state="dead")) == [second]

    def test_a_dead_message_is_answered_once_more(self, store: Store) -> None:
        first = store.inbox.put(dm("anna"), "hello")
        (item,) = store.inbox.claim()
        store.inbox.failed(item, "the model is gone", for_good=True)
        store.inbox.put(dm("anna"), "are you there?")
        store.queues.settle_message(first.id, "retry", by="token:me")
        (next_item,) = store.inbox.claim()  # one of a conversation at a time
        store.inbox.done(next_item)
        (again,) = store.inbox.claim()
        assert {again.text, next_item.text} == {"hello", "are you there?"}
        with pytest.raises(IllegalMove):
            store.queues.settle_message(first.id, "retry")

    def test_messages_are_settled_without_an_answer(self, store: Store) -> None:
        dead = store.inbox.put(dm("anna"), "hello")
        (item,) = store.inbox.claim()
        store.inbox.failed(item, "the model is gone", for_good=True)
        waiting = store.inbox.put(dm("ben"), "hello")
        assert numbers_of(store.queues.messages()) == [waiting.id, dead.id]
        group = store.queues.messages(state="dead", problem="the model is gone")
        assert numbers_of(group) == [dead.id]
        assert store.queues.settle_messages("done").settled == 1
        store.queues.settle_message(waiting.id, "done")
        assert {each.state for each in store.queues.messages().items} == {"done"}
        assert store.inbox.claim() == []

    def test_the_way_of_a_message_is_told(self, store: Store) -> None:
        anna = dm("anna")
        first = store.inbox.put(anna, "hello", message_id="1")
        second = store.inbox.put(anna, "and you?", message_id="2")
        assert store.traces.get(second.id).ahead == 1
        assert store.traces.get(first.id).turn is None
        (item,) = store.inbox.claim()
        used = Usage(input=100, output=10, model="m", cost_usd=0.5)
        with store.turn(anna, "hello", message_id="1") as turn:
            session_id = turn.session.id
            turn.add_assistant("hi", usage=used)
            turn.deliver("hi")
        store.inbox.done(item)
        store.outbox.put("elsewhere", "telegram:ben")
        trace = store.traces.get(first.id)
        assert trace.turn is not None
        assert (trace.turn.session_id, trace.turn.state) == (session_id, "answered")
        assert trace.turn.closed_at is not None
        assert [(call.usage.input, call.usage.cost_usd) for call in trace.calls] == [(100, 0.5)]
        assert [delivery.body["text"] for delivery in trace.deliveries] == ["hi"]
        assert store.traces.get(second.id).calls == ()
        with pytest.raises(NotFound):
            store.traces.get(10**6)

    def test_a_gathered_message_is_told_with_the_one_before_it(self, store: Store) -> None:
        anna = dm("anna")
        first = store.inbox.put(anna, "hello", message_id="1", gather_seconds=5)
        second = store.inbox.put(anna, "again", message_id="2", gather_seconds=5)
        with store.turn(anna, "hello\nagain", message_id="1") as turn:
            turn.add_assistant("hi")
        trace = store.traces.get(second.id)
        assert trace.answered_with is not None
        assert trace.answered_with.id == first.id
        assert trace.turn is not None
