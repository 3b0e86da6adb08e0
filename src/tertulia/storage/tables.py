"""The tables of a store: the one list of the rows that an archive or a move must copy.

A table is read page by page in the order of its key, so that memory use stays constant, and written
as it was read, including its generated numbers. Tables that are not copied are listed by name, each
with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from tertulia.storage.base import Row, Transaction

# Rows in a page. Most rows are small; a message has up to some ten thousand characters.
_PAGE = 500
_MESSAGES_PAGE = 200
_BLOBS_PAGE = 1  # a blob may be a film
_LOWEST: Mapping[type, int | str] = {int: -(2**63), str: ""}

# The values of the columns that identify a row, by name.
Key = Mapping[str, Any]

# Tables that are not copied.
NOT_COPIED = {
    "migrations": "the program that creates the new store creates its schema",
    "unindexed": "the search index is rebuilt",
    "words": "the search index is rebuilt",
    "cards": "the search index is rebuilt",
    "tickets": "the queue for a turn belongs to running processes",
    "usage_new": "a part of the ledger, `usage`, which is copied",
    "usage_kept": "the other part of the ledger",
    "usage_sums": "the ledger is added up again",
    "usage_groups": "the ledger is added up again",
    "usage_running": "the ledger is added up again",
    "usage_newest": "the ledger is added up again",
    "connections": "the state of running processes",
    "browsers": "people sign in again",
    "nodes": "the state of running processes",
    "bot_messages": "a count of the last minute",
}


class Table(NamedTuple):
    """A table with the columns that are copied.

    `left` are the columns that start with their defaults in the copy: watermarks of the search
    index, and leases and tokens, which belong to a running process. `added` are columns that came
    after the first release, with their values for rows that were archived before. A key that is a
    single text is never empty, so every row comes after the lowest key.
    """

    name: str
    key: Mapping[str, type]
    columns: tuple[str, ...]
    left: tuple[str, ...] = ()
    page: int = _PAGE
    added: Mapping[str, Any] = {}

    @property
    def lowest_key(self) -> Key:
        """A key before the first row."""
        return {name: _LOWEST[kind] for name, kind in self.key.items()}

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return {name: row[self.columns.index(name)] for name in self.key}

    def pages(self, tx: Transaction) -> Iterator[list[Row]]:
        """Yield all rows in pages."""
        after = self.lowest_key
        while rows := self.page_after(tx, after):
            yield rows
            after = self.key_of(rows[-1])

    def page_after(self, tx: Transaction, key: Key) -> list[Row]:
        """Return the page of rows that follow a key."""
        return tx.all(f"copy_{self.name}_page", {**key, "limit": self.page})

    def put(self, tx: Transaction, rows: Iterable[Row]) -> None:
        """Insert rows as they were read."""
        tx.many(f"copy_{self.name}_put", rows)

    def delete(self, tx: Transaction, rows: Iterable[Row]) -> None:
        """Delete rows by their keys."""
        tx.many(f"move_{self.name}_drop", map(self.key_of, rows))

    def is_empty(self, tx: Transaction) -> bool:
        """Return whether the table has no rows."""
        return next(self.pages(tx), None) is None


def _table(
    name: str,
    key: Mapping[str, type],
    columns: str,
    left: str = "",
    page: int = _PAGE,
    added: Mapping[str, Any] = MappingProxyType({}),
) -> Table:
    return Table(name, key, tuple(columns.split()), tuple(left.split()), page, added)


# `installation` comes first: a new store has rows in it too, and they are replaced.
INSTALLATION = _table("installation", {"name": str}, "name value")

TABLES: tuple[Table, ...] = (
    INSTALLATION,
    _table(
        "people",
        {"person": str},
        "person platform account user_id user_id_alt name zone created_at role",
    ),
    _table(
        "links",
        {"key": str},
        "key shared_key made_at source shared_source shared_person",
        added=dict.fromkeys(("source", "shared_source", "shared_person")),
    ),
    _table(
        "codes",
        {"hash": str},
        "hash purpose platform account subject made_at until source claimed_by claimed_key",
        added=dict.fromkeys(("source", "claimed_by", "claimed_key")),
    ),
    _table(
        "wrong_codes",
        {"place": str, "at": int},
        "place at",
    ),
    _table(
        "sessions",
        {"ref": int},
        "ref id key agent platform chat_type person owner origin display_name title "
        "created_at updated_at ended_at end_reason parent_id parent_kind input output "
        "cache_read cache_write reasoning last_prompt cost certainty cost_source model "
        "provider metadata version last_seq turns revision epoch open_turn",
        left="indexed_seq is_card_indexed lease_until lease_length lease_holder",
    ),
    _table(
        "messages",
        {"place": int},
        "place turn role kind author at body away",
        page=_MESSAGES_PAGE,
    ),
    _table(
        "blobs",
        {"hash": str},
        "hash size data at",
        page=_BLOBS_PAGE,
        added={"at": None},
    ),
    _table(
        "pending_media",
        {"hash": str},
        "hash at",
    ),
    _table(
        "message_blobs",
        {"place": int, "hash": str},
        "place hash",
    ),
    _table(
        "revisions",
        {"session": int, "number": int},
        "session number ranges made_by made_from start_seq closed_seq at summary_seq "
        "after_log after_seq actor",
        added={"actor": None},
    ),
    _table(
        "borrowings",
        {"log": int, "session": int},
        "log session",
    ),
    _table(
        "turns",
        {"session": int, "number": int},
        "session number state arrival began_at closed_at first_seq answer_seq",
        left="token",
    ),
    _table(
        "events",
        {"session": int, "number": int},
        "session number at kind detail",
    ),
    _table(
        "usage",
        {"id": int},
        "id session_id turn at platform person model provider base_url input output "
        "cache_read cache_write reasoning cost certainty cost_source",
    ),
    _table(
        "spending",
        {"day": int, "platform": str, "person": str},
        "day platform person tokens cost",
    ),
    _table(
        "inbox",
        {"id": int},
        "id arrival key source body state attempts not_before received_at problem is_next "
        "gathered_into paused_at person",
        left="lease_until lease_length node worker",
        added={"paused_at": 0, "person": ""},
    ),
    _table(
        "deleted_messages",
        {"hash": str},
        "hash at",
    ),
    _table(
        "outbox",
        {"id": int},
        "id delivery session_id target platform account chat_id thread_id body state attempts "
        "not_before created_at sent_at problem is_next message_id first_sent_at waived paused_at",
        left="lease_until lease_length node",
        added={"message_id": None, "first_sent_at": None, "waived": 0, "paused_at": 0},
    ),
    _table(
        "chat_chains",
        {"digest": str, "session": int, "seq": int},
        "digest session seq at",
    ),
    _table(
        "listeners",
        {"platform": str, "account": str},
        "platform account cursor",
        left="node epoch until",
    ),
    _table(
        "person_ids",
        {"platform": str, "account": str, "user_id": str},
        "platform account user_id known_id at",
    ),
    _table(
        "newcomers",
        {"name": str},
        "name session taken digest last_seq is_complete at",
    ),
    _table(
        "processes",
        {"id": str},
        "id key session_id origin node folder command cwd environment is_pty state "
        "keeper_pid keeper_mark pid mark exit_code began_at ended_at check_interval told told_at",
    ),
    _table(
        "approvals",
        {"code": str},
        "code batch session turn session_id key call_id tool arguments digest requester origin "
        "message_id target asked_in is_once_only state scope reason answered_by asked_at "
        "expires_at answered_at",
    ),
    _table(
        "approval_grants",
        {"id": int},
        "id person session_id tool command granted_at granted_by",
    ),
    _table(
        "mcp_pins",
        {"server": str},
        "server accepted seen accepted_at seen_at",
    ),
    _table(
        "flushes",
        {"session": int},
        "session attempts",
        left="lease_until lease_length",
    ),
    _table(
        "memories",
        {"id": int},
        "id owner agent text author state session_id created_at shown_from",
    ),
    _table(
        "memories_off",
        {"owner": str, "agent": str},
        "owner agent",
    ),
    _table(
        "agent_choices",
        {"chat": str},
        "chat agent chosen_by chosen_at",
    ),
    _table(
        "session_agents",
        {"session": int},
        "session model prompt",
    ),
    _table(
        "prompt_texts",
        {"hash": str},
        "hash text",
    ),
    _table(
        "people_events",
        {"id": int},
        "id person at kind actor detail",
    ),
    _table(
        "schedules",
        {"id": int},
        "id owner key origin task rule misfire target session state next_at created_at decided_at",
        added={"decided_at": 0},
    ),
    _table(
        "occurrences",
        {"id": int},
        "id schedule planned_at since_at is_manual state attempts not_before ended_at session_id "
        "delivery result problem paused_at",
        left="lease_until lease_length",
        added={"paused_at": 0},
    ),
)


def is_empty(tx: Transaction) -> bool:
    """Return whether the store was never used."""
    return all(table.is_empty(tx) for table in TABLES if table is not INSTALLATION)


def count_rows(tx: Transaction) -> int:
    """Return about how many rows a copy has; small tables are not counted."""
    (count,) = tx.one("copy_count") or (0,)
    return int(count)


def close_for_good(tx: Transaction) -> None:
    """Rename the table of the sessions in a store that was moved.

    A process that still has the store open finds no table to write to, so no write is lost there.
    """
    tx.run("move_rename_sessions")


def finish_copy(tx: Transaction) -> None:
    """Finish a copy: let generated numbers go on after the highest, and make what is not copied.

    The running totals are made from the sums by quarter of an hour; afterwards these are empty, as
    they are when all quarters have passed.
    """
    tx.one("copy_continue_numbers")
    for statement in (
        *("usage_sums_delete", "usage_newest_delete", "usage_running_delete"),
        *("usage_groups_delete", "usage_sums_fill", "usage_groups_fill", "usage_running_fill"),
        *("usage_newest_fill", "usage_sums_delete"),
    ):
        tx.run(statement)
    tx.run("unindexed_put_all")
