"""The polling queries of a gateway cost the same however many occurrences there were."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia.storage import statements

SQL = statements.load("sqlite")
POLLED = [name for name in SQL if name.startswith(("occurrence", "schedules_due", "schedules_of"))]


@pytest.mark.parametrize("name", POLLED)
def test_no_statement_scans_a_table(tmp_path: Path, name: str) -> None:
    tertulia.open(tmp_path / "talk.db").close()
    connection = apsw.Connection(str(tmp_path / "talk.db"))
    params = dict.fromkeys(re.findall(r"(?<![:\w]):(\w+)", SQL[name]), 1)
    plan = [row[3] for row in connection.execute(f"explain query plan {SQL[name]}", params)]
    connection.close()
    # A scan is allowed over a partial index that holds only current rows.
    small = ("occurrences_waiting", "occurrences_sending", "schedules_due")
    scans = [step for step in plan if step.startswith(("SCAN occurrences", "SCAN schedules"))]
    assert [step for step in scans if not any(index in step for index in small)] == [], plan
