"""Read the plan of a named statement from SQLite."""

from __future__ import annotations

from typing import Any

from tertulia import Store


def scanned_tables(store: Store, statement: str) -> list[str]:
    """Return the steps of a claim statement that read a whole table, not a partial index."""
    database: Any = store.context.db
    params = {"now": 1, "lease": 1, "limit": 1}
    plan = database.run_on_own_connection(
        lambda connection: connection.execute(
            f"explain query plan {database._sql[statement]}", params
        ).fetchall()
    )
    steps = [str(row[3]) for row in plan]
    assert steps
    partial_indexes = ("_due", "_sending", "_taken")
    return [
        step
        for step in steps
        if step.startswith("SCAN") and not any(name in step for name in partial_indexes)
    ]
