"""Processes: the stored state of background programs, so that none is lost with a gateway.

starting → running → exited    its program ended by itself
                   → killed    it was ended on request
                   → lost      it is gone, and how it ended is unknown

A change of a program's state and the report of it to its conversation are one transaction. So each
change is reported once, whichever node notices it, and even if a gateway is lost at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from tertulia.core.arguments import checks_arguments
from tertulia.core.message import ASSISTANT, DELIVERY, draft, from_json, to_json
from tertulia.core.source import Source
from tertulia.core.text.storable import storable
from tertulia.errors import IllegalMove, NotFound
from tertulia.records import session_rows
from tertulia.records.queues import outbox
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import Entry, append_messages
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

ProcessState = Literal["starting", "running", "exited", "killed", "lost", "forgotten"]
"""The state of a program; `forgotten`: its conversation was deleted, so it has to be ended."""

ALIVE: Final[tuple[ProcessState, ...]] = ("starting", "running")
_MICRO: Final = timedelta(microseconds=1)


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A background program, as the store had it at one moment.

    A pid alone identifies nothing: another program may have it by now. The mark beside it records
    when that program began. `keeper` is the supervisor process, which has the program's terminal
    and writes its output to files. `told` is how many bytes of the output were reported to its
    conversation, `told_at` when something was last reported.
    """

    id: str
    key: str
    session_id: str | None
    origin: Source | None
    node: str
    folder: str
    command: str
    cwd: str
    environment: str = "here"
    is_pty: bool
    state: ProcessState
    keeper_pid: int = 0
    keeper_mark: str = ""
    pid: int = 0
    mark: str = ""
    exit_code: int | None = None
    began_at: datetime
    ended_at: datetime | None = None
    check_interval: timedelta | None = None
    told: int = 0
    told_at: datetime

    @property
    def is_alive(self) -> bool:
        return self.state in ALIVE


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The pids and start marks of a running program and of its supervisor."""

    keeper_pid: int
    keeper_mark: str
    pid: int
    mark: str


@checks_arguments
class Processes:
    """The background programs of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def begin(self, process: Process, *, at_most: int = 64) -> Process:
        """Store a program that is about to be started.

        Raise `IllegalMove` if `at_most` programs are running on its node already.
        """
        params = {
            "id": process.id,
            "key": storable(process.key),
            "session_id": process.session_id,
            "origin": to_json(process.origin.to_dict() if process.origin else {}),
            "node": storable(process.node),
            "folder": process.folder,
            "command": storable(process.command),
            "cwd": process.cwd,
            "environment": process.environment,
            "is_pty": int(process.is_pty),
            "check_interval": _micros(process.check_interval),
            "now": to_micros(self._context.clock.now()),
        }

        def work(tx: Transaction) -> Process:
            tx.lock(f"processes of {process.node}")
            row = tx.one("processes_count_running", {"node": params["node"]})
            if row is not None and row[0] >= at_most:
                raise IllegalMove(
                    f"{row[0]} programs are running, and no more than {at_most} are allowed.",
                    hint="Wait until a program ends, or end one: process, action kill.",
                )
            tx.run("process_insert", params)
            return _require(tx, process.id)

        return self._db.write(work)

    def began(self, process_id: str, identity: Identity) -> Process:
        """Store that a program runs now, with its pids; raise `NotFound` for an unknown id."""
        params = {"id": process_id, **msgspec.structs.asdict(identity)}

        def work(tx: Transaction) -> Process:
            tx.run("process_set_running", params)
            return _require(tx, process_id)

        return self._db.write(work)

    def end(
        self,
        process: Process,
        state: ProcessState,
        *,
        exit_code: int | None = None,
        news: str | None = None,
    ) -> bool:
        """Store that a program has ended, and report `news` to its conversation.

        Return False, and do nothing, if its end is stored already.
        """
        now = self._context.clock.now()
        params = {
            "id": process.id,
            "state": state,
            "exit_code": exit_code,
            "now": to_micros(now),
        }

        def work(tx: Transaction) -> bool:
            if tx.changed("process_end", params) == 0:
                return False
            self._report(tx, process, news, f"process:{process.id}:end")
            return True

        return self._write(process, work, news)

    def report(self, process: Process, news: str | None, *, told: int) -> bool:
        """Report `news` of a program to its conversation.

        `told` is how many bytes of the output are reported to it, this report included.
        Return False, and do nothing, if another node has reported meanwhile.
        """
        before = to_micros(process.told_at)
        now = to_micros(self._context.clock.now())
        if now == before:
            # The time is part of the delivery's key: two reports in one tick of the clock would
            # count as one.
            now += 1
        params = {"id": process.id, "told": told, "now": now, "before": before}

        def work(tx: Transaction) -> bool:
            if tx.changed("process_set_reported", params) == 0:
                return False
            self._report(tx, process, news, f"process:{process.id}:{now}")
            return True

        return self._write(process, work, news)

    def get(self, process_id: str) -> Process | None:
        """Return the program with that id, or None."""
        return self._db.read(lambda tx: _get(tx, process_id))

    def require(self, process_id: str) -> Process:
        """Return the program with that id; raise `NotFound` if there is none."""
        return self._db.read(lambda tx: _require(tx, process_id))

    def find(self, *, key: str | None = None) -> list[Process]:
        """Return the programs of a conversation, or all without a key, in the order they began."""
        if key is None:
            return self._db.read(lambda tx: list(map(_to_process, tx.all("processes_all"))))
        return self._db.read(
            lambda tx: list(map(_to_process, tx.all("processes_of_key", {"key": key})))
        )

    def of_node(self, node: str) -> list[Process]:
        """Return the programs of one node, including those whose conversation was deleted."""
        return self._db.read(
            lambda tx: list(map(_to_process, tx.all("processes_of_node", {"node": node})))
        )

    def delete(self, process_id: str) -> None:
        """Delete a program from the store; an unknown id changes nothing."""
        self._db.write(lambda tx: tx.run("process_delete", {"id": process_id}))

    def _write(
        self, process: Process, work: Callable[[Transaction], bool], news: str | None
    ) -> bool:
        # Takes the lane of the conversation, then that of the chat: the same order as a turn, so
        # the two cannot deadlock.
        is_changed = self._db.write(work, lane=session_rows.lane_of(process.key))
        if is_changed and news is not None:
            self._db.notify(outbox.CHANNEL)
            self._context.notify_indexer()
        return is_changed

    def _report(self, tx: Transaction, process: Process, news: str | None, delivery: str) -> None:
        """Append the news to the conversation, and deliver it to where the program was started.

        A program without an origin has no chat to deliver to: its news is only in the transcript.
        """
        if news is None:
            return
        news = storable(news)
        now = to_micros(self._context.clock.now())
        current = session_rows.get_current(tx, process.key)
        session_id = None if current is None else current.id
        if session_id is not None:
            message = draft({"role": ASSISTANT, "content": news})
            append_messages(tx, session_id, [Entry(message, DELIVERY)], now, is_activity=False)
        if process.origin is None:
            return
        parts = outbox.build_deliveries(
            self._context, news, "origin", process.origin, session_id=session_id, delivery=delivery
        )
        outbox.put_in(tx, parts, now)


def _get(tx: Transaction, process_id: str) -> Process | None:
    row = tx.one("process_get", {"id": process_id})
    return None if row is None else _to_process(row)


def _require(tx: Transaction, process_id: str) -> Process:
    process = _get(tx, process_id)
    if process is None:
        raise NotFound(
            f"There is no process {process_id!r}.",
            hint="To list them: process, action list; or: tertulia ps.",
        )
    return process


def _to_process(row: Row) -> Process:
    (id_, key, session_id, origin, node, folder, command, cwd, environment, is_pty, state,
     keeper_pid, keeper_mark, pid, mark, exit_code, began_at, ended_at, check_interval,
     told_length, told_at) = row  # fmt: skip
    source = from_json(origin)
    return Process(
        id=id_,
        key=key,
        session_id=session_id,
        origin=Source.from_dict(source) if source else None,
        node=node,
        folder=folder,
        command=command,
        cwd=cwd,
        environment=environment,
        is_pty=bool(is_pty),
        state=state,
        keeper_pid=keeper_pid,
        keeper_mark=keeper_mark,
        pid=pid,
        mark=mark,
        exit_code=exit_code,
        began_at=from_micros(began_at),
        ended_at=None if ended_at is None else from_micros(ended_at),
        check_interval=None if check_interval is None else check_interval * _MICRO,
        told=told_length,
        told_at=from_micros(told_at),
    )


def _micros(interval: timedelta | None) -> int | None:
    return None if interval is None else interval // _MICRO
