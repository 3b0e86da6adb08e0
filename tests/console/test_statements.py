"""How many statements a page runs: few, and the same for many rows as for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tertulia import Source, Usage
from tertulia.storage.sqlite.transaction import SqliteTransaction
from tests.console.served_console import ServedConsole, served_console

# A session, its transcript, what is stuck, what it cost: at most so many. Sums of usage read the
# recent calls and the running totals of all others: two statements.
MOST = {"sessions": 5, "transcript": 5, "deliveries": 5, "usage": 5, "people": 5, "nodes": 4}
ANA = Source("telegram", "42", user_id="42", user_name="Ana")


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements of reading transactions; the gateway itself runs others, too."""
    names: list[str] = []

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: SqliteTransaction, statement: str, *arguments: Any) -> Any:
            names.append(statement)
            return original(self, statement, *arguments)

        return run

    for method in ("one", "all"):
        monkeypatch.setattr(SqliteTransaction, method, counted(getattr(SqliteTransaction, method)))
    return names


def is_of_gateway(name: str) -> bool:
    """Return whether the loops of the gateway run a statement, not a page."""
    return name.endswith(("_is_due", "_is_due_for", "_claim", "_expire", "_wake")) or (
        name.startswith(("schedule", "node_", "connection_put", "flush", "inbox_claim"))
    )


def fill(console: ServedConsole, count: int) -> str:
    """Add exchanges, people and dead deliveries; return the session of the first person."""
    with console.gateway.store() as store:
        for number in range(count):
            source = Source("telegram", f"{number}", user_id=f"{number}", user_name="Somebody")
            with store.turn(source, "hello", message_id=f"{count} {number}") as turn:
                turn.add_assistant("hi", usage=Usage(input=5, output=5, model="m", cost_usd=0.1))
            store.outbox.put("Hello", "origin", origin=source, session_id=turn.session.id)
            for delivery in store.outbox.claim(platforms=["telegram"]):
                store.outbox.failed(delivery, "403: blocked", outcome="dead")
        with store.turn(ANA, "hello", message_id=f"ana {count}") as turn:
            turn.add_assistant("hi")
    return turn.session.id


def test_pages_run_few_statements_and_no_more_with_more_rows(
    tmp_path: Path, statements: list[str]
) -> None:
    counts: list[dict[str, int]] = []
    with served_console(tmp_path / "talk.db") as console, console.client() as client:
        for rows in (1, 25):
            session = fill(console, rows)
            counts.append({})
            for name in MOST:
                path = f"sessions/{session}" if name == "transcript" else name
                client.get(f"/console/{path}")
                statements.clear()
                assert client.get(f"/console/{path}").status_code == 200
                counts[-1][name] = sum(not is_of_gateway(each) for each in statements)
    assert counts[0] == counts[1]
    assert {name: most for name, most in MOST.items() if counts[1][name] > most} == {}
