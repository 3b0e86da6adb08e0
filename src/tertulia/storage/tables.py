"""Every row of a store, table by table: the one list of what an archive or a move must carry.

A table is read page by page in the order of its key, so that memory stays flat, and written as it
was read, numbers and all. What is left out is left out by name, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tertulia.storage.base import Row, Transaction

# Rows of these are small; those of messages hold up to some ten thousand characters each.
_PAGE = 500
_PAGE_OF_MESSAGES = 200
_PAGE_OF_BLOBS = 1  # one may be a film
LOWEST: Mapping[type, int | str] = {int: -(2**63), str: ""}

# Tables of which nothing is carried.
NOT_COPIED = {
    "migrations": "the schema of a store is made by the program that made the store",
    "unindexed": "the search index is made anew",
    "words": "the search index is made anew",
    "cards": "the search index is made anew",
    "tickets": "who waits for a turn waits in a running program",
}


class Table(NamedTuple):
    """A table with the columns that are carried.

    `left` are the columns that begin anew with their defaults: marks of the search index, and
    leases, which belong to a running program. `added` are columns that came after the first
    release, with what they are for rows that were copied before. No key that is a single text is
    ever empty, so every row comes after the lowest key there is.
    """

    name: str
    key: Mapping[str, type]
    columns: tuple[str, ...]
    left: tuple[str, ...] = ()
    page: int = _PAGE
    added: Mapping[str, Any] = {}

    def pages(self, tx: Transaction) -> Iterator[list[Row]]:
        """All its rows, some at a time."""
        at = [self.columns.index(name) for name in self.key]
        after = {name: LOWEST[kind] for name, kind in self.key.items()}
        while found := self.page_after(tx, after):
            yield found
            after = dict(zip(self.key, (found[-1][place] for place in at), strict=True))

    def page_after(self, tx: Transaction, key: Mapping[str, Any]) -> list[Row]:
        """The rows that come next after a key."""
        return tx.all(f"copy_{self.name}_page", {**key, "limit": self.page})

    def put(self, tx: Transaction, rows: Iterable[Row]) -> None:
        """Write rows as they were read."""
        tx.many(f"copy_{self.name}_put", rows)

    def is_empty(self, tx: Transaction) -> bool:
        return next(self.pages(tx), None) is None


def _table(
    name: str, key: Mapping[str, type], columns: str, left: str = "", page: int = _PAGE
) -> Table:
    return Table(name, key, tuple(columns.split()), tuple(left.split()), page)


# `installation` first: it exists in a new store too, and its rows are replaced.
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
        "key shared_key made_at",
    ),
    _table(
        "codes",
        {"hash": str},
        "hash purpose platform account subject made_at until",
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
        left="indexed_seq is_card_indexed lease_until",
    ),
    _table(
        "messages",
        {"place": int},
        "place turn role kind author at body away",
        page=_PAGE_OF_MESSAGES,
    ),
    _table(
        "blobs",
        {"hash": str},
        "hash size data",
        page=_PAGE_OF_BLOBS,
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
        "after_log after_seq",
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
        "gathered_into",
        left="lease_until",
    ),
    _table(
        "outbox",
        {"id": int},
        "id delivery session_id target platform account chat_id thread_id body state attempts "
        "not_before created_at sent_at problem is_next",
        left="lease_until",
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
        "flushes",
        {"session": int},
        "session attempts",
        left="lease_until",
    ),
    _table(
        "schedules",
        {"id": int},
        "id owner key origin task rule misfire target session state next_at created_at",
    ),
    _table(
        "occurrences",
        {"id": int},
        "id schedule planned_at since_at is_manual state attempts not_before ended_at session_id "
        "delivery result problem",
        left="lease_until",
    ),
)


def is_empty(tx: Transaction) -> bool:
    """Whether nobody ever used this store."""
    return all(table.is_empty(tx) for table in TABLES if table is not INSTALLATION)


def settle(tx: Transaction) -> None:
    """After all rows were put: numbers go on after the highest, and everything is to be indexed."""
    tx.one("copy_numbers_go_on")
    tx.run("unindexed_fill")
