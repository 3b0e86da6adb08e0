"""Names, parameters and defaults that programs outside this repository rely on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import (
    HomeChannel,
    Policies,
    ResetPolicy,
    Session,
    Settings,
    Source,
    Store,
    ToolCall,
    Turn,
    Usage,
    aio,
)

REQUIRED = inspect.Parameter.empty

# What a call takes, in order; a keyword-only parameter has a star before its name.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "open": (tertulia.open, {"where": REQUIRED, "*settings": None, "*clock": None}),
    "session_key": (
        tertulia.session_key,
        {"source": REQUIRED, "*agent": "main", "*per_user": True},
    ),
    "store.turn": (
        Store.turn,
        {
            "source": REQUIRED,
            "text": None,
            "*message_id": None,
            "*media": (),
            "*wait": 30.0,
        },
    ),
    "store.search": (
        Store.search,
        {"query": REQUIRED, "*person": None, "*platform": None, "*limit": 20, "*cursor": None},
    ),
    "turn.history": (
        Turn.history,
        {"max_messages": 500, "max_tokens": None, "timestamps": "none", "format": "openai"},
    ),
    "turn.add_assistant": (
        Turn.add_assistant,
        {"text": REQUIRED, "*tool_calls": (), "*reasoning": None, "*usage": None},
    ),
    "turn.add_tool_result": (Turn.add_tool_result, {"call_id": REQUIRED, "content": REQUIRED}),
    "turn.add_usage": (Turn.add_usage, {"usage": REQUIRED}),
    "turn.deliver": (Turn.deliver, {"text": REQUIRED, "to": "origin"}),
}

RECORD_CALLS: dict[str, dict[str, dict[str, Any]]] = {
    "sessions": {
        "open": {"source": REQUIRED, "*force_new": False},
        "get": {"session_id": REQUIRED},
        "require": {"session_id": REQUIRED},
        "current": {"key": REQUIRED},
        "find": {
            "*active_minutes": None,
            "*platform": None,
            "*key": None,
            "*person": None,
            "*state": "all",
            "*text": None,
            "*limit": 50,
            "*cursor": None,
        },
        "reset": {"key": REQUIRED},
        "switch": {"key": REQUIRED, "session_id": REQUIRED},
        "fork": {"session_id": REQUIRED, "at": None},
        "end": {"session_id": REQUIRED, "reason": REQUIRED},
        "rename": {"session_id": REQUIRED, "title": REQUIRED},
        "delete": {"session_id": REQUIRED},
        "count": {},
        "explain": {"session_id": REQUIRED},
        "expired": {"limit": 100, "cursor": None},
    },
    "usage": {
        "add": {"session_id": REQUIRED, "usage": REQUIRED},
        "sum": {"by": "day", "since": None, "until": None},
    },
    "inbox": {"put": {}, "claim": {}, "done": {}, "failed": {}, "find": {}},
    "outbox": {"put": {}, "claim": {}, "done": {}, "failed": {}, "find": {}},
}

TRANSCRIPT_CALLS: dict[str, dict[str, Any]] = {
    "append": {"message": REQUIRED},
    "extend": {"messages": REQUIRED, "usage": None},
    "load": {},
    "rewrite": {"messages": REQUIRED},
    "clear": {},
    "undo": {"turns": 1},
    "redo": {},
    "keep_recent": {"n": REQUIRED},
    "history": {
        "max_messages": 500,
        "max_tokens": None,
        "timestamps": "none",
        "format": "openai",
    },
    "revisions": {},
    "at": {"n": REQUIRED},
}

TURN_NAMES = {
    "session",
    "notice",
    "duplicate",
    "answer",
    "context_prompt",
    "history",
    "add_assistant",
    "add_tool_result",
    "add_usage",
    "deliver",
}

SESSION_FIELDS = {
    "id", "key", "agent", "origin", "display_name", "title", "created_at", "updated_at",
    "ended_at", "end_reason", "parent_id", "usage", "last_prompt_tokens", "cost_usd",
    "cost_status", "metadata", "version", "notice",
}  # fmt: skip


def check_call(call: Callable[..., Any], promised: dict[str, Any]) -> None:
    """Assert that a call takes what was promised; it may take more, all of it optional."""
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(call).parameters.items()
        if name != "self"
    }
    for name, default in promised.items():
        parameter = parameters.pop(name.lstrip("*"))
        assert parameter.default == default, name
        if name.startswith("*"):
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if promised:
        for parameter in parameters.values():
            assert parameter.default is not REQUIRED or parameter.kind in optional, parameter


@pytest.mark.parametrize("name", CALLS)
def test_call_takes_what_is_promised(name: str) -> None:
    check_call(*CALLS[name])


@pytest.mark.parametrize("record", RECORD_CALLS)
def test_record_has_its_calls_sync_and_async(record: str, tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        for name, promised in RECORD_CALLS[record].items():
            check_call(getattr(getattr(store, record), name), promised)
    twin = {"sessions": aio.Sessions, "inbox": aio.Inbox, "outbox": aio.Outbox}.get(record)
    for name, promised in RECORD_CALLS[record].items() if twin else ():
        check_call(getattr(twin, name), promised)


@pytest.mark.parametrize("name", TRANSCRIPT_CALLS)
def test_transcript_has_its_calls(name: str, tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        session = store.sessions.open(Source.local())
        check_call(getattr(store.transcript(session.id), name), TRANSCRIPT_CALLS[name])
    check_call(getattr(aio.Transcript, name), TRANSCRIPT_CALLS[name])


def test_turn_has_its_names_inside_the_block(tmp_path: Path) -> None:
    with (
        tertulia.open(tmp_path / "talk.db") as store,
        store.turn(Source.local(), text="hello", message_id="1") as turn,
    ):
        assert {name for name in TURN_NAMES if not hasattr(turn, name)} == set()


def test_async_turn_has_the_same_names() -> None:
    assert {name for name in TURN_NAMES if not hasattr(aio.Turn, name)} == set()


def test_session_has_its_fields() -> None:
    assert set(Session.__struct_fields__) >= SESSION_FIELDS


def test_values_take_their_promised_fields() -> None:
    settings = Settings(
        policies=Policies(
            default=ResetPolicy(mode="both", at_hour=4, idle_minutes=1440, notify=True),
            platforms={"discord": ResetPolicy(mode="none")},
            chat_types={"group": ResetPolicy(mode="idle")},
        ),
        group_sessions_per_user=True,
        agent="main",
        zone="Europe/Madrid",
        homes={"telegram": HomeChannel(chat_id="42", name="Home")},
        platforms=("telegram",),
        redact_pii=False,
        durability="safe",
        lease_seconds=60,
        has_active_processes=lambda key: False,
    )
    assert settings == Settings(
        policies=settings.policies,
        zone="Europe/Madrid",
        homes=settings.homes,
        platforms=("telegram",),
        has_active_processes=settings.has_active_processes,
    )
    usage = Usage(
        1, 2, 3, 4, 5, model="m", provider="p", base_url="u", cost_usd=None, cost_status=None,
        cost_source=None, last_prompt=7,
    )  # fmt: skip
    assert usage.total == 1 + 2 + 3 + 4
    assert ToolCall("call_0", "weather", {"city": "Sevilla"}).id == "call_0"
    source = Source(
        "telegram", "-5", account="bot", chat_name="Den", chat_type="group", user_id="42",
        user_name="Ana", thread_id="7", chat_topic="talk", user_id_alt="u", chat_id_alt="c",
    )  # fmt: skip
    assert Source.from_dict(source.to_dict()) == source
    assert source.description == "group: Den, thread: 7"


def test_search_hits_and_pages_have_their_fields(tmp_path: Path) -> None:
    with tertulia.open(tmp_path / "talk.db") as store:
        with store.turn(Source.local(), text="a rare orchid") as turn:
            turn.add_assistant("indeed")
        store.settle()
        page = store.search("orchid")
        (hit,) = page.items
        assert page.next is None
        assert (hit.session_id, hit.role) == (turn.session.id, "user")
        assert {"seq", "snippet", "at", "score"} <= set(dir(hit))


def test_clock_is_any_object_with_now(tmp_path: Path) -> None:
    class Noon:
        def now(self) -> datetime:
            return datetime(2026, 5, 1, 12, tzinfo=UTC)

    with tertulia.open(tmp_path / "talk.db", clock=Noon()) as store:
        assert store.sessions.open(Source.local()).created_at == Noon().now()


def test_every_error_has_code_hint_and_retryable() -> None:
    error = tertulia.NotFound()
    assert isinstance(error, tertulia.Error)
    assert isinstance(error.code, str)
    assert isinstance(error.retryable, bool)
    assert error.hint is None or isinstance(error.hint, str)
