"""Whatever is handed in: an error of ours comes out that says what to do, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import tertulia
from tertulia import Budget, Error, Policies, ResetPolicy, Settings, Source, Store, Usage

ANA = Source("telegram", "42", user_id="42")
HELLO = {"role": "user", "content": "hello"}

Mistake = Callable[[Any, str], object]  # on a store, with the id of a session


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with tertulia.open(where, settings=Settings(zone="UTC")) as store:
        yield store


MISTAKES: dict[str, Mistake] = {
    "open": lambda store, it: store.sessions.open("telegram"),
    "open nothing": lambda store, it: store.sessions.open(None),
    "end": lambda store, it: store.sessions.end(it, 5),
    "rename": lambda store, it: store.sessions.rename(it, 5),
    "fork at a word": lambda store, it: store.sessions.fork(it, at="1"),
    "fork at a half": lambda store, it: store.sessions.fork(it, at=1.5),
    "find so many": lambda store, it: store.sessions.find(limit="5"),
    "find half of one": lambda store, it: store.sessions.find(limit=2.5),
    "find since": lambda store, it: store.sessions.find(active_minutes="x"),
    "find by words": lambda store, it: store.sessions.find(text=5),
    "find by key": lambda store, it: store.sessions.find(key=5),
    "find by person": lambda store, it: store.sessions.find(person=5),
    "expired": lambda store, it: store.sessions.expired(limit="x"),
    "for_person": lambda store, it: store.for_person("telegram:42"),
    "person_of": lambda store, it: store.people.person_of(None),
    "offer_link": lambda store, it: store.people.offer_link(None),
    "accept_link": lambda store, it: store.people.accept_link(ANA, None),
    "extend by nothing": lambda store, it: store.transcript(it).extend(None),
    "extend by a text": lambda store, it: store.transcript(it).extend("hello"),
    "extend at a price": lambda store, it: store.transcript(it).extend([HELLO], usage=5),
    "rewrite": lambda store, it: store.transcript(it).rewrite(None),
    "undo a word": lambda store, it: store.transcript(it).undo("1"),
    "undo a half": lambda store, it: store.transcript(it).undo(1.5),
    "keep_recent": lambda store, it: store.transcript(it).keep_recent("x"),
    "compact": lambda store, it: store.transcript(it).compact(keep_turns="x"),
    "usage of nothing": lambda store, it: store.usage.add(it, None),
    "usage as a dict": lambda store, it: store.usage.add(it, {"input": 1}),
    "sum since": lambda store, it: store.usage.sum(since="2026-01-01"),
    "search nothing": lambda store, it: store.search(None),
    "search so many": lambda store, it: store.search("hello", limit="x"),
    "search for": lambda store, it: store.search("hello", person=5),
    "turn of": lambda store, it: store.turn("telegram", "hello"),
    "turn for": lambda store, it: store.turn(ANA, "hello", wait=None),
    "turn for no number": lambda store, it: store.turn(ANA, "hello", wait=float("nan")),
    "turn with a picture": lambda store, it: store.turn(ANA, "hello", media="cat.png"),
    "turn with no media": lambda store, it: store.turn(ANA, "hello", media=None),
    "inbox of": lambda store, it: store.inbox.put(None, "hello"),
    "inbox with": lambda store, it: store.inbox.put(ANA, "hello", media=5),
    "inbox gathers": lambda store, it: store.inbox.put(ANA, "hello", gather_seconds="x"),
    "inbox so many": lambda store, it: store.inbox.claim("x"),
    "inbox leased": lambda store, it: store.inbox.claim(lease_seconds="x"),
    "inbox waits": lambda store, it: store.inbox.wait("x"),
    "inbox done": lambda store, it: store.inbox.done(None),
    "inbox failed": lambda store, it: store.inbox.failed(None, "why"),
    "outbox of nothing": lambda store, it: store.outbox.put(None, "local"),
    "outbox to nowhere": lambda store, it: store.outbox.put("hello", None),
    "outbox by a number": lambda store, it: store.outbox.put("hello", "telegram:1", delivery=5),
    "outbox done": lambda store, it: store.outbox.done(None),
    "expunge": lambda store, it: store.expunge(ended_before="2026-01-01"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_invalid_argument_raises_an_error_with_a_hint(store: Store, name: str) -> None:
    session = store.sessions.open(ANA)
    store.transcript(session.id).append(HELLO)
    before = store.sessions.get(session.id)
    with pytest.raises(Error) as told:
        MISTAKES[name](store, session.id)
    assert told.value.hint
    assert store.sessions.get(session.id) == before
    assert store.transcript(session.id).load() == [HELLO]
    assert store.sessions.count() == 1
    assert (store.inbox.find().items, store.outbox.find().items) == ((), ())


WITHIN: dict[str, Callable[[Any], object]] = {
    "a number": lambda turn: turn.add_assistant(5),
    "calls as a text": lambda turn: turn.add_assistant("hi", tool_calls="abc"),
    "a call as a number": lambda turn: turn.add_assistant("hi", tool_calls=[5]),
    "a price": lambda turn: turn.add_assistant("hi", usage=5),
    "no usage": lambda turn: turn.add_usage(None),
    "a delivery of nothing": lambda turn: turn.deliver(None),
    "a delivery to nobody": lambda turn: turn.deliver("hi", to=None),
}


@pytest.mark.parametrize("name", WITHIN)
def test_invalid_argument_leaves_the_turn_unchanged(store: Store, name: str) -> None:
    with store.turn(ANA, "hello") as turn:
        with pytest.raises(Error) as told:
            WITHIN[name](turn)
        assert told.value.hint
        turn.add_assistant("hi")
    assert [m["content"] for m in store.transcript(turn.session.id).load()] == ["hello", "hi"]
    assert store.outbox.find().items == ()


@pytest.mark.parametrize("sign", ["\ud800", "\0"], ids=["half a sign", "zero"])
def test_text_that_no_database_stores_is_not_found_or_refused(store: Store, sign: str) -> None:
    for asked in (store.sessions.get, store.sessions.current, store.sessions.reset):
        try:
            assert asked(sign) is None
        except Error as told:
            assert (told.code, bool(told.hint)) == ("config", True)  # noqa: PT017


VALUES: dict[str, Callable[[], object]] = {
    "policies": lambda: Settings(policies="none"),  # type: ignore[arg-type]
    "homes": lambda: Settings(homes={"telegram": "42"}),  # type: ignore[dict-item]
    "homes as a text": lambda: Settings(homes="42"),  # type: ignore[arg-type]
    "platforms": lambda: Settings(platforms="telegram"),  # type: ignore[arg-type]
    "guard": lambda: Settings(has_active_processes=3),  # type: ignore[arg-type]
    "lease": lambda: Settings(lease_seconds="a"),  # type: ignore[arg-type]
    "zone": lambda: Settings(zone=5),  # type: ignore[arg-type]
    "agent": lambda: Settings(agent=5),  # type: ignore[arg-type]
    "minutes": lambda: ResetPolicy(idle_minutes=None),  # type: ignore[arg-type]
    "default": lambda: Policies(default="idle"),  # type: ignore[arg-type]
    "of a platform": lambda: Policies(platforms={"slack": "none"}),  # type: ignore[dict-item]
    "budgets": lambda: Settings(budgets=[5]),  # type: ignore[arg-type]
    "one budget": lambda: Settings(budgets=Budget(per="person", tokens=5)),  # type: ignore[arg-type]
    "budget of a word": lambda: Budget(per="person", tokens="x"),  # type: ignore[arg-type]
    "budget below nothing": lambda: Budget(per="person", tokens=-1),
    "budget of no number": lambda: Budget(per="person", usd=float("nan")),
    "source": lambda: Source.from_dict({}),
    "cost": lambda: Usage(cost_usd="x"),  # type: ignore[arg-type]
    "prompt": lambda: Usage(last_prompt=-1),
    "model": lambda: Usage(model=5),  # type: ignore[arg-type]
    "place": lambda: tertulia.open(None),  # type: ignore[arg-type]
    "no file": lambda: tertulia.open("sqlite:///"),
}


@pytest.mark.parametrize("name", VALUES)
def test_invalid_value_is_refused_when_it_is_made(name: str) -> None:
    with pytest.raises(tertulia.ConfigError) as told:
        VALUES[name]()
    assert told.value.hint


def test_valid_arguments_are_accepted(store: Store) -> None:
    session = store.sessions.open(ANA)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    store.usage.add(session.id, Usage(1, last_prompt=0, cost_usd=1))
    assert store.usage.sum(since=since)
    store.transcript(session.id).extend(iter([HELLO]))
    with store.turn(ANA, media=iter(["cat.png"]), wait=0) as turn:  # type: ignore[arg-type]
        turn.add_assistant([{"type": "text", "text": "a cat"}])  # type: ignore[arg-type]
    assert len(store.transcript(session.id).load()) == 3
