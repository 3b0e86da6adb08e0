"""What a gateway asks every second costs the same however long the history of runs is."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

import tertulia
from tertulia.storage import statements

SQL = statements.load("sqlite")
ASKED = [name for name in SQL if name.startswith(("occurrence", "schedules_due", "schedules_of"))]


@pytest.mark.parametrize("name", ASKED)
def test_no_statement_scans_a_table(tmp_path: Path, name: str) -> None:
    tertulia.open(tmp_path / "talk.db").close()
    connection = apsw.Connection(str(tmp_path / "talk.db"))
    given = dict.fromkeys(re.findall(r"(?<![:\w]):(\w+)", SQL[name]), 1)
    plan = [row[3] for row in connection.execute(f"explain query plan {SQL[name]}", given)]
    connection.close()
    # A scan is allowed over an index that holds only what is under way.
    small = ("occurrences_waiting", "occurrences_sending", "schedules_due")
    scans = [step for step in plan if step.startswith(("SCAN occurrences", "SCAN schedules"))]
    assert [step for step in scans if not any(index in step for index in small)] == [], plan
