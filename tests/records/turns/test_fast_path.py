"""The fast path does what the general path does, or nothing.

A state machine drives two stores with the same operations, one with the fast path and one without
it, and compares after each step what came back and every row that was stored. A turn that is left
open has a handle of its own, as in a process that died.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

import tertulia
from tertulia import (
    Error,
    Policies,
    ResetPolicy,
    Settings,
    Source,
    Store,
    StoreUnavailable,
    Usage,
)
from tertulia.records import session_rows
from tertulia.records.queues import outbox
from tertulia.records.turns import fast_path
from tertulia.records.turns.control import TurnControl
from tertulia.records.turns.enter import EnterTurn
from tertulia.records.turns.local_turns import LocalTurns
from tertulia.storage.base import StatementLost, Step
from tertulia.testing import FakeClock
from tests.records.store_inspection import ANA, BEN, call, execute, read_all, without_index
from tests.servers.empty_stores import NewPlace
from tests.servers.postgres import Server

TEAM = Source("telegram", "-100", chat_type="group", user_id="42", user_name="Ana")
HALL = Source("slack", "C1", chat_type="channel")  # nobody is named: all share a session
SOURCES = (ANA, BEN, TEAM, HALL)
IDLE_AND_DAILY = Policies(default=ResetPolicy(mode="both", at_hour=4, idle_minutes=120))
LARGE = "filler " * 5_000  # stored apart from its message

# Every table that a turn writes to, without the columns that differ by chance or by time.
ROWS = {
    "sessions": "ref, id, key, platform, person, origin, updated_at, ended_at, end_reason,"
    " parent_id, parent_kind, input, output, cost, certainty, cost_source, model, last_prompt,"
    " version, last_seq, turns, revision, epoch, lease_until > 0, open_turn",
    "messages": "place, turn, role, kind, author, at, body, away",
    "message_blobs": "place, hash",
    "turns": "session, number, state, arrival, began_at, closed_at, first_seq, answer_seq",
    "events": "session, number, at, kind, detail",
    "usage_new": "session_id, turn, at, platform, person, model, input, output, cost, certainty",
    "outbox": "delivery, session_id, target, platform, account, chat_id, thread_id, body, state,"
    " attempts, not_before, is_next",
    "inbox": "arrival, key, source, body, state, attempts, not_before, is_next, problem",
    "unindexed": "session",
    "people": "person, name, zone",
    "links": "key, shared_key",
}
QUERIES = [f"select {columns} from {table}" for table, columns in ROWS.items()]

STEPS = ("tool", "more", "deliver", "elsewhere", "usage")
ENDS = ("answer", "priced", "delivered", "large", "silent", "failed", "left open")
DISTURBANCES = (
    "minutes 1", "minutes 90", "minutes 1500", "leases run out", "reset", "undo", "link", "unlink",
    "zone", "no zone", "somebody waits", "nobody waits", "process", "no process",
)  # fmt: skip
RESTART_SEQUENCES = """select setval(format('%I', sequencename)::regclass, start_value, false)
    from pg_sequences where last_value is not null"""
sources = st.sampled_from((ANA, ANA, ANA, *SOURCES))
seldom = st.sampled_from((False, False, True))


class Broken(Exception):
    """The exception of an agent that fails."""


class World:
    """A store and the turns that were left open in it."""

    def __init__(self, where: str, clock: FakeClock, *, is_fast: bool) -> None:
        self.where = where
        self.clock = clock
        self.is_fast = is_fast
        self.has_processes = False
        self.store = self.open()
        self.left: list[tuple[Store, TurnControl]] = []

    def open(self) -> Store:
        options = Settings(
            zone="UTC",
            durability="fast",
            policies=IDLE_AND_DAILY,
            has_active_processes=lambda key: self.has_processes,
        )
        store = without_index(tertulia.open(self.where, settings=options, clock=self.clock))
        store._records.local_turns = LocalTurns()
        return store

    def run(self, operation: Callable[[World], Any], seed: float) -> Any:
        """Return what an operation returns or raises; ids drawn by chance depend on the seed."""
        chance = SimpleNamespace(urandom=random.Random(seed).randbytes)
        with ExitStack() as stack:
            for module in (session_rows, outbox):
                stack.enter_context(mock.patch.object(module, "os", chance))
            if not self.is_fast:
                for name in ("entry_params", "answer_params"):
                    stack.enter_context(mock.patch.object(fast_path, name, return_value=None))
            try:
                return operation(self)
            except (Error, Broken) as problem:
                return type(problem).__name__

    def rows(self) -> dict[str, list[Any]]:
        tables = zip(ROWS, read_all(self.store, QUERIES), strict=True)
        return {table: sorted(rows, key=str) for table, rows in tables}

    def close(self) -> None:
        for store, _ in self.left:
            store.close()
        self.store.close()


def run_turn(world: World, turn: TurnControl, steps: list[str], end: str) -> Any:
    with turn:
        if turn.duplicate:
            return turn.answer, turn.is_interrupted
        notice = turn.notice and turn.notice.reason
        for number, step in enumerate(steps):
            if step == "tool":
                turn.add_assistant(None, tool_calls=[call(f"c{number}")], usage=Usage(3, 1))
                turn.add_tool_result(f"c{number}", "blue")
            elif step == "more":
                turn.add_assistant("wait", more=True)
            elif step == "usage":
                turn.add_usage(Usage(7, 1, model="n", cost_usd=0.5))
            else:
                turn.deliver("soon", to="origin" if step == "deliver" else "telegram:43")
        if end == "failed":
            turn.add_assistant(None, tool_calls=[call("open")])
            raise Broken
        if end in ("answer", "large"):
            turn.add_assistant("hi" if end == "answer" else LARGE)
        elif end == "priced":
            turn.add_assistant("hi", usage=Usage(10, 5, model="m", cost_usd=0.25))
        elif end == "delivered":
            turn.add_assistant("hi", usage=Usage(1, 2), deliver="origin")
    return turn.session.id, turn.session.version, notice


class Comparison(RuleBasedStateMachine):
    """Two stores that are driven by the same operations."""

    places: ClassVar[Callable[[], tuple[str, str]]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.seeds = random.Random(11)
        self.messages = 0
        one, other = type(self).places()
        self.worlds = (
            World(one, self.clock, is_fast=True),
            World(other, self.clock, is_fast=False),
        )

    def both(self, operation: Callable[[World], Any]) -> None:
        seed = self.seeds.random()
        one, other = (world.run(operation, seed) for world in self.worlds)
        assert one == other
        fast, general = (world.rows() for world in self.worlds)
        for table in ROWS:
            assert fast[table] == general[table], table

    def teardown(self) -> None:
        try:
            for world in self.worlds:
                assert world.store.check() == []
        finally:
            for world in self.worlds:
                world.close()

    @rule(
        source=sources,
        message_id=st.sampled_from(("new", "new", "new", "new", "old", None)),
        text=st.sampled_from(("hello", "hello", "hello", LARGE, None)),
        steps=st.lists(st.sampled_from(STEPS), max_size=1),
        end=st.sampled_from(("answer", "priced", "delivered", *ENDS)),
    )
    def turn(
        self, source: Source, message_id: str | None, text: str | None, steps: list[str], end: str
    ) -> None:
        number = self.number(message_id)

        def operation(world: World) -> Any:
            store = world.open() if end == "left open" else world.store
            turn = store.turn_control(source, text, message_id=number, wait=0)
            if end != "left open":
                return run_turn(world, turn, steps, end)
            world.left.append((store, turn))
            turn.enter()
            return turn.duplicate or turn.session.id

        self.both(operation)

    def number(self, message_id: str | None) -> int | None:
        """Return the next message id, the last one again, or None."""
        self.messages += message_id == "new"
        return None if message_id is None else self.messages

    @initialize()
    def first_turns(self) -> None:
        for source in SOURCES:
            self.plain_turns(source, 2)  # the second one takes the fast path

    @rule(source=sources, count=st.integers(1, 3))
    def plain_turns(self, source: Source, count: int) -> None:
        for _ in range(count):
            number = self.number("new")

            def operation(world: World, number: int | None = number) -> Any:
                turn = world.store.turn_control(source, "hello", message_id=number, wait=0)
                return run_turn(world, turn, [], "delivered")

            self.both(operation)

    @rule(source=sources, message_id=st.sampled_from(("new", "new", "old")))
    def accept(self, source: Source, message_id: str) -> None:
        number = self.number(message_id)
        self.both(lambda world: world.store.inbox.put(source, "hi", message_id=number).is_new)

    @rule(end=st.sampled_from(("answer", "delivered", "priced", "failed")), is_lost=seldom)
    def answer_accepted(self, end: str, is_lost: bool) -> None:
        def operation(world: World) -> Any:
            items = world.store.inbox.claim(limit=1)
            for item in items:
                if is_lost:
                    world.store.inbox.failed(item, "lost", retry_after=0)
                turn = world.store.turn_control(
                    item.source, item.text, message_id=item.message_id, wait=0, inbox_item=item
                )
                return run_turn(world, turn, [], end), turn.has_settled_item
            return None

        self.both(operation)

    @rule(source=sources)
    def turn_goes_on_after_its_answer(self, source: Source) -> None:
        def operation(world: World) -> Any:
            with world.store.turn_control(source, "hello", wait=0) as turn:
                turn.add_assistant("first")
                turn.add_usage(Usage(1, 1))
                turn.add_assistant("second", usage=Usage(2, 2))
            return turn.answer

        self.both(operation)

    @rule(source=sources, name=st.sampled_from(DISTURBANCES))
    def disturb(self, source: Source, name: str) -> None:
        if name.startswith("minutes"):
            self.clock.forward(minutes=int(name.split()[1]))
        else:
            self.both(lambda world: disturb(world, source, name))


def disturb(world: World, source: Source, name: str) -> None:
    """Change what the conditions of the fast path depend on."""
    store = world.store
    key = store.sessions.key(source)
    match name:
        case "leases run out":
            execute(store, "update sessions set lease_until = 1 where lease_until > 0")
        case "reset":
            store.sessions.reset(key)
        case "undo":
            store.transcript(store.sessions.open(source).id).undo(1)
        case "link":
            execute(store, "delete from links")
            columns = "insert into links (key, shared_key, made_at) values (?, ?, 1)"
            execute(store, columns, key, store.sessions.key(BEN))
        case "unlink":
            execute(store, "delete from links")
        case "zone":
            store.people.set_zone("telegram:42", "Pacific/Auckland")
        case "no zone":
            store.people.set_zone("telegram:42", None)
        case "somebody waits":
            execute(store, "insert into tickets (key, until) values (?, ?)", key, 2**60)
        case "nobody waits":
            execute(store, "delete from tickets")
        case "process":
            world.has_processes = True
        case "no process":
            world.has_processes = False


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the statements of the fast path that have changed something."""
    counts = {"enter": 0, "answer": 0}
    enter, write = EnterTurn.opened, fast_path.answer_params

    def opened(self: Any, row: Any) -> Any:
        counts["enter"] += 1
        return enter(self, row)

    def answer_params(step: Any) -> Any:
        params = write(step)
        counts["answer"] += params is not None
        return params

    with (
        mock.patch.object(EnterTurn, "opened", opened),
        mock.patch.object(fast_path, "answer_params", answer_params),
    ):
        yield counts


def compare(places: Callable[[], tuple[str, str]], runs: int) -> dict[str, int]:
    machine = type("Machine", (Comparison,), {"places": staticmethod(places)})
    with counted() as counts:
        run_state_machine_as_test(
            machine, settings=settings(max_examples=runs, stateful_step_count=30)
        )
    return counts


def runs_of(per_thousand: int) -> int:
    """Return 2,000 runs in the slow suite, and a share of its examples elsewhere."""
    examples = settings().max_examples
    return 2_000 if examples >= 5_000 else max(2, examples * per_thousand // 1_000)


# After each of these, a plain turn takes the general path.
DECIDED = ("minutes 1500", "reset", "link", "zone", "somebody waits", "left open", "interrupted")


@pytest.mark.parametrize("name", DECIDED)
def test_what_has_to_be_decided_takes_the_general_path(new_place: NewPlace, name: str) -> None:
    with new_place() as fast, new_place() as general:
        _take_the_general_path(name, fast, general)


def _take_the_general_path(name: str, *places: str) -> None:
    machine_type = type("Machine", (Comparison,), {"places": lambda: places})
    machine: Comparison = machine_type()
    machine.plain_turns(ANA, 1)
    machine.plain_turns(BEN, 1)
    with counted() as counts:
        machine.plain_turns(ANA, 2)
        assert counts["enter"] == 2
        if name == "left open":
            machine.turn(ANA, "new", "hello", [], "left open")
        elif name == "interrupted":
            machine.turn(ANA, "new", "hello", [], "left open")
            machine.disturb(ANA, "leases run out")
        else:
            machine.disturb(ANA, name)
        counts["enter"] = 0
        machine.plain_turns(ANA, 1)
        assert counts["enter"] == 0
    machine.teardown()


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("statement", ["turn_enter", "turn_answer_queued_with_usage"])
def test_statement_that_the_server_runs_late_changes_nothing(
    postgres: Server, monkeypatch: pytest.MonkeyPatch, statement: str, is_stored: bool
) -> None:
    """The connection breaks, the general path finds what was stored, then the server goes on."""
    address = postgres.database(postgres.template)
    world = World(address, FakeClock(), is_fast=True)
    db = world.store.context.db
    attempt = db.attempt
    lost: list[Callable[[], Any]] = []

    def lose(steps: Sequence[Step], *, lanes: Sequence[str]) -> Any:
        if steps[0][0] != statement:
            return attempt(steps, lanes=lanes)
        if is_stored:
            assert attempt(steps, lanes=lanes) != [[]]
        lost.append(lambda: attempt(steps, lanes=lanes))
        raise StatementLost(StoreUnavailable("lost"))

    for number in range(3):
        if number == 1:
            monkeypatch.setattr(db, "attempt", lose)
        turn = world.store.turn_control(ANA, f"hello {number}", message_id=number, wait=0)
        run_turn(world, turn, [], "delivered")
        assert not turn.duplicate
    assert len(lost) == 2
    rows = world.rows()
    assert [row[1] for row in rows["turns"]] == [1, 2, 3]
    assert len(rows["messages"]) == 6
    assert len(rows["usage_new"]) == len(rows["outbox"]) == 3
    assert [run() for run in lost] == [[[]], [[]]]
    assert world.rows() == rows
    assert world.store.check() == []
    world.close()
    postgres.drop(address)


@pytest.mark.parametrize("statement", ["turn_enter", "turn_answer_with_usage"])
def test_outcome_is_unknown_if_the_general_path_fails_too(
    postgres: Server, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    address = postgres.database(postgres.template)
    world = World(address, FakeClock(), is_fast=True)
    db = world.store.context.db
    run_turn(world, world.store.turn_control(ANA, "one", message_id=1), [], "priced")
    attempt, write = db.attempt, db.write
    is_down = False

    def lose(steps: Sequence[Step], *, lanes: Sequence[str]) -> Any:
        nonlocal is_down
        if steps[0][0] != statement:
            return attempt(steps, lanes=lanes)
        is_down = True
        raise StatementLost(StoreUnavailable("lost", outcome="unknown"))

    def refuse(work: Any, *, lane: str | None = None) -> Any:
        if is_down:
            raise StoreUnavailable("down")
        return write(work, lane=lane)

    monkeypatch.setattr(db, "attempt", lose)
    monkeypatch.setattr(db, "write", refuse)
    with pytest.raises(StoreUnavailable) as caught:
        run_turn(world, world.store.turn_control(ANA, "two", message_id=2), [], "priced")
    assert caught.value.outcome == "unknown"
    world.close()
    postgres.drop(address)


@pytest.mark.examples
def test_fast_path_equals_general_path_on_sqlite() -> None:
    folders: list[str] = []

    def places() -> tuple[str, str]:
        for folder in folders:
            shutil.rmtree(folder)
        folders[:] = [tempfile.mkdtemp(prefix="tertulia-paths-")]
        return str(Path(folders[0], "fast.db")), str(Path(folders[0], "general.db"))

    counts = compare(places, runs_of(250))
    shutil.rmtree(folders[0])
    assert counts["enter"] > 0


@pytest.mark.examples
def test_fast_path_equals_general_path_on_postgres(postgres: Server) -> None:
    addresses = postgres.database(postgres.template), postgres.database(postgres.template)
    connections = [psycopg.connect(address, autocommit=True) for address in addresses]
    # To delete a few rows takes a tenth of the time that it takes to truncate so many tables.
    tables = (*ROWS, "tickets", "blobs", "revisions", "borrowings")
    clear = "; ".join(f"delete from {table}" for table in tables).encode()

    def places() -> tuple[str, str]:
        for connection in connections:
            connection.execute(clear)
            connection.execute(RESTART_SEQUENCES)
        return addresses

    counts = compare(places, runs_of(75))
    for address, connection in zip(addresses, connections, strict=True):
        connection.close()
        postgres.drop(address)
    assert counts["enter"] > 0
    assert counts["answer"] > 0
