"""The store itself: opening, closing, zone, prompt, expunge. Its records have their own tests."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import ConfigError, NotAStore, Settings, Source, Store, StoreError
from tertulia import store as store_module
from tertulia.records.store_context import StoreContext
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42", user_name="Ana")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    settings = Settings(zone="UTC", durability="fast")
    with tertulia.open(tmp_path / "talk.db", settings=settings, clock=clock) as store:
        yield store


def test_closed_store_refuses_calls(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        store.sessions.open(ANA)
    with pytest.raises(StoreError):
        store.sessions.count()


@pytest.mark.parametrize(
    ("name", "message"), [("moved_to", "were moved to"), ("moving", "being moved to")]
)
def test_moved_store_is_not_opened(tmp_path: Path, name: str, message: str) -> None:
    path = tmp_path / "talk.db"
    with tertulia.open(path) as store:
        value = {"name": name, "value": "postgresql://elsewhere"}
        store.context.db.write(lambda tx: tx.run("installation_set", value))
    with pytest.raises(NotAStore, match=message):
        tertulia.open(path)


def test_zone_is_that_of_the_settings(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "a.db", settings=Settings(zone="Asia/Tokyo")) as store:
        assert str(store.context.zone) == "Asia/Tokyo"


def test_context_prompt_names_the_session_ended_before(store: Store, clock: FakeClock) -> None:
    with store.turn(ANA, "hola") as turn:
        turn.add_assistant("¡hola!")
    clock.forward(days=3)
    session = store.sessions.open(ANA)
    assert turn.session.id in store.context_prompt(session)
    fork = store.sessions.fork(turn.session.id)  # its view contains the messages of its parent
    assert turn.session.id not in store.context_prompt(fork)


def test_expunge_deletes_only_sessions_that_ended_before(store: Store, clock: FakeClock) -> None:
    old = store.sessions.open(ANA)
    store.sessions.reset(old.key)
    time = clock.forward(hours=1)
    recent = store.sessions.current(old.key)
    assert recent is not None
    store.sessions.reset(old.key)
    assert store.expunge(ended_before=time) == 1
    assert store.sessions.get(old.id) is None
    assert store.sessions.get(recent.id) is not None


def test_message_id_may_be_a_number_or_text(store: Store) -> None:
    with store.turn(ANA, "hola", message_id=7) as turn:
        turn.add_assistant("¡hola!")
    with store.turn(ANA, "hola", message_id="7") as again:
        assert (again.duplicate, again.answer) == (True, "¡hola!")


def test_answer_settles_the_inbox_item_of_the_turn(store: Store) -> None:
    store.inbox.put(ANA, "hola", message_id="7")
    (item,) = store.inbox.claim()
    with store.turn_control(ANA, "hola", message_id="7", inbox_item=item) as turn:
        turn.add_assistant("¡hola!")
        assert turn.has_settled_item
    assert [entry.state for entry in store.inbox.find().items] == ["done"]


def test_store_imports_at_most_15_modules() -> None:
    """The store is a facade: what it is built of is in `records/store_records.py`."""
    tree = ast.parse(Path(store_module.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [ast.unparse(node) for node in imports if "__future__" not in ast.unparse(node)]
    assert len(names) <= 15, names


@pytest.mark.parametrize(("name", "value"), [("settings", 5), ("settings", 0), ("clock", 5)])
def test_wrong_argument_of_open_is_named(tmp_path: Path, name: str, value: object) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name) as caught:
        tertulia.open(tmp_path / "talk.db", **arguments)
    assert caught.value.field == name
    assert not (tmp_path / "talk.db").exists()


def public_methods(store: Store) -> Iterator[tuple[str, Callable[..., Any]]]:
    records = [value for name, value in vars(store).items() if not name.startswith("_")]
    for record in (store, store.transcript("20261117_120000_00000000"), *records):
        for name, method in inspect.getmembers(record, inspect.ismethod):
            if not name.startswith("_") and type(record) is not StoreContext:
                yield f"{type(record).__name__}.{name}", method


def test_every_public_method_checks_its_arguments(store: Store) -> None:
    unchecked = set()
    for name, method in public_methods(store):
        for parameter in inspect.signature(method).parameters.values():
            try:
                method(**{parameter.name: object()})
            except ConfigError as error:
                is_checked = error.field == parameter.name
            except TypeError:  # another argument is missing, so this one was passed on
                is_checked = "Any" in parameter.annotation or parameter.annotation == "Progress"
            else:
                is_checked = False
            if not is_checked:
                unchecked.add(f"{name}({parameter})")
    assert unchecked == set()


def test_wrong_argument_is_the_same_error_on_both_databases(where: str) -> None:
    with tertulia.open(where) as store:
        calls: list[Callable[[], object]] = [
            lambda: store.sessions.get(5),  # type: ignore[arg-type]
            lambda: store.sessions.find(limit="many"),  # type: ignore[arg-type]
            lambda: store.turn(ANA, 5),  # type: ignore[arg-type]
            lambda: store.turn(ANA, "x", message_id=object()),  # type: ignore[arg-type]
            lambda: store.transcript([]).load(),  # type: ignore[arg-type]
            lambda: store.people.find(limit=-1),
            lambda: store.media.put("a\0b"),
        ]
        for call in calls:
            with pytest.raises(ConfigError) as caught:
                call()
            assert caught.value.hint
            assert not caught.value.retryable
