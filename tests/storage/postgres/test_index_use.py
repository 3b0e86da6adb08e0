"""Which rows are read: a turn reads its own, a list those that it shows."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

import tertulia
from tertulia import Settings, Source, Usage
from tertulia.storage import statements
from tests.records.store_inspection import without_index
from tests.servers.postgres import Server

PEOPLE = [Source("telegram", f"p{number}", user_id=f"p{number}") for number in range(150)]
TURNS = 4
SESSION_READS = """select sum(coalesce(idx_tup_read, 0)) from pg_stat_user_indexes
    where relname = 'sessions'"""
ROWS_OF_WHOLE_TABLE = """select seq_tup_read from pg_stat_user_tables where relname = 'inbox'"""
OTHER_CLIENTS = """select count(*) from pg_stat_activity where datname = current_database()
    and pid <> pg_backend_pid() and backend_type = 'client backend'"""
MANY_SESSIONS = """insert into sessions
    (id, key, agent, platform, chat_type, owner, origin, created_at, updated_at)
    select 's' || n, 'k' || n, '', 'p' || n % 3, 'dm', 'k' || n, '{}', n, n
    from generate_series(1, 5000) as n"""
LIST_PARAMS: dict[str, Any] = {
    "platform": "p1", "key": None, "person": None, "active_since": None, "before_at": 4_000,
    "before_ref": 4_000, "limit": 10, "quiet_since": 4_000, "after_at": 0, "after_ref": 0,
}  # fmt: skip


def test_turn_in_a_new_store_reads_no_session_of_others(postgres: Server) -> None:
    """The server has no statistics of its tables yet."""
    address = postgres.database(postgres.template)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("alter table sessions set (autovacuum_enabled = false)")
        with without_index(tertulia.open(address, settings=Settings(zone="UTC"))) as store:
            for number in range(TURNS):
                for person in PEOPLE:
                    with store.turn(person, "hello", message_id=number) as turn:
                        turn.add_assistant("hi")
        # The processes of the server report what they have read when they end.
        while connection.execute(OTHER_CLIENTS).fetchone() != (0,):
            pass
        row = connection.execute(SESSION_READS).fetchone()
    postgres.drop(address)
    assert row is not None
    # Entering and answering look up the session once each, and may meet a few of its old versions.
    assert row[0] < TURNS * len(PEOPLE) * 10


def test_answer_to_a_queued_message_reads_no_message_of_others(postgres: Server) -> None:
    """The statement is planned while there are few messages, and kept when there are many."""
    address = postgres.database(postgres.template)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("alter table inbox set (autovacuum_enabled = false)")
        with without_index(tertulia.open(address, settings=Settings(zone="UTC"))) as store:
            for number in range(TURNS):
                for person in PEOPLE:
                    store.inbox.put(person, "hello", message_id=number)
                    (item,) = store.inbox.claim(1)
                    with store.turn_control(
                        item.source, item.text, message_id=item.message_id, inbox_item=item
                    ) as turn:
                        turn.add_assistant("hi", usage=Usage(1, 1, model="m"))
        while connection.execute(OTHER_CLIENTS).fetchone() != (0,):
            pass
        row = connection.execute(ROWS_OF_WHOLE_TABLE).fetchone()
    postgres.drop(address)
    assert row is not None
    assert row[0] < TURNS * len(PEOPLE) * 10


@pytest.mark.parametrize(
    "statement", ["sessions_current_page_by_platform", "platforms_current", "sessions_inactive"]
)
def test_list_of_current_sessions_reads_them_in_the_order_of_activity(
    postgres: Server, statement: str
) -> None:
    address = postgres.database(postgres.template)
    sql = re.sub(r"(?<!:):(\w+)", r"%(\1)s", statements.load("postgres")[statement])
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(MANY_SESSIONS)
        connection.execute("analyze sessions")
        cursor = psycopg.ClientCursor(connection)
        plan = "\n".join(row[0] for row in cursor.execute(f"explain {sql}".encode(), LIST_PARAMS))
    postgres.drop(address)
    assert "sessions_active" in plan
    assert "Sort" not in plan
