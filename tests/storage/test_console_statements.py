"""What a page of the console reads goes through an index, and nothing is sorted for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia.storage import statements

SQL = statements.load("sqlite")
NAMES = (
    "browser_get",
    "browsers_page",
    "browsers_page_of",
    "browsers_expire",
    "events_page",
    "revisions_page",
    "sessions_after",
    "code_is_pending",
    "trace_turn",
    "trace_ahead",
    "trace_calls",
    "trace_deliveries",
    "usage_recent",
    "occurrences_failed",
    "inbox_count_settled",
    "queues_overview",
    "queues_count_problems",
    "outbox_newest_open",
    "inbox_newest_open",
    "turn_newest",
    "people_events_page",
    "people_of_ids",
    "people_page",
    "person_get",
    "sessions_of_ids",
    "people_events_of_person",
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    path: Path = tmp_path_factory.mktemp("console") / "talk.db"
    tertulia.open(path).close()
    connection = apsw.Connection(str(path))
    yield connection
    connection.close()


@pytest.mark.parametrize("name", NAMES)
def test_statement_uses_an_index(database: apsw.Connection, name: str) -> None:
    sql = SQL[name]
    params = dict.fromkeys(re.findall(r"(?<![:\w]):(\w+)", sql), 1)
    plan = [str(row[3]) for row in database.execute(f"explain query plan {sql}", params)]
    # A subquery and rows of a primary key that are read to a limit are no scans of a table. The new
    # calls are few, and `usage` is a view.
    derived = r"\(subquery|\w+_ones|ended|waiting|calls|usage_new|usage$|CONSTANT"
    scans = [step for step in plan if re.match(rf"SCAN (?!{derived})\w+$", step)]
    assert scans == []
    # The calls of one turn are few, and come from two tables.
    sorts = [step for step in plan if "TEMP B-TREE FOR ORDER BY" in step]
    assert sorts == [] or name == "trace_calls"
