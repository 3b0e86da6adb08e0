"""Processes: what the store knows of background programs, so that none is lost with a gateway.

starting → running → exited    its program ended by itself
                   → killed    somebody ended it
                   → lost      it is gone, and nobody can say how it ended

What happens to a program and what its conversation is told of it are one transaction: it is told
once, whoever notices, and however often a gateway is lost at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from tertulia.core.message import ASSISTANT, DELIVERY, draft, from_json, to_json
from tertulia.core.source import Source
from tertulia.errors import IllegalMove, NotFound
from tertulia.records import session_rows
from tertulia.records.queues import outbox
from tertulia.records.store_context import StoreContext
from tertulia.records.transcript.log import append_messages
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, session_row, to_micros

ProcessState = Literal["starting", "running", "exited", "killed", "lost", "forgotten"]
"""How a program stands; `forgotten`: its conversation was deleted, and it is to be ended."""

ALIVE: Final[tuple[ProcessState, ...]] = ("starting", "running")
_MICRO: Final = timedelta(microseconds=1)


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A background program as it stood in the store at one moment.

    A pid alone says nothing: it may be another program's by now. The mark beside it says when that
    program began. The keeper holds the program's terminal and writes down its output.
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
    """Who a running program and its keeper are."""

    keeper_pid: int
    keeper_mark: str
    pid: int
    mark: str


class Processes:
    """The background programs of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def begin(self, process: Process, *, at_most: int = 64) -> Process:
        """Note a program that is about to be started; on one node there are so many at most."""
        params = {
            "id": process.id,
            "key": session_rows.storable(process.key),
            "session_id": process.session_id,
            "origin": to_json(process.origin.to_dict() if process.origin else {}),
            "node": session_rows.storable(process.node),
            "folder": process.folder,
            "command": session_rows.storable(process.command),
            "cwd": process.cwd,
            "environment": process.environment,
            "is_pty": int(process.is_pty),
            "check_interval": _micros(process.check_interval),
            "now": to_micros(self._context.clock.now()),
        }

        def work(tx: Transaction) -> Process:
            tx.hold(f"processes of {process.node}")
            counted = tx.one("processes_count_running", {"node": params["node"]})
            if counted is not None and counted[0] >= at_most:
                raise IllegalMove(
                    f"{counted[0]} programs are running, and no more than {at_most} may.",
                    hint="Wait for one to end, or end one: process, action kill.",
                )
            tx.run("process_insert", params)
            return _require(tx, process.id)

        return self._db.write(work)

    def began(self, process_id: str, identity: Identity) -> Process:
        """A program runs now."""
        params = {"id": process_id, **msgspec.structs.asdict(identity)}

        def work(tx: Transaction) -> Process:
            tx.run("process_began", params)
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
        """Note that a program has ended, and tell its conversation; False if somebody has."""
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
            self._tell(tx, process, news, f"process:{process.id}:end")
            return True

        return self._done(process, work, news)

    def tell(self, process: Process, news: str | None, *, told: int) -> bool:
        """Tell the conversation how a program stands; False if another node was first.

        `told` is how much of the output it has been told of from now on.
        """
        # Each telling has a moment of its own, or two in one tick of the clock would be one.
        now = max(to_micros(self._context.clock.now()), to_micros(process.told_at) + 1)
        before = to_micros(process.told_at)
        params = {"id": process.id, "told": told, "now": now, "before": before}

        def work(tx: Transaction) -> bool:
            if tx.changed("process_tell", params) == 0:
                return False
            self._tell(tx, process, news, f"process:{process.id}:{now}")
            return True

        return self._done(process, work, news)

    def get(self, process_id: str) -> Process | None:
        """The program of that id, or None."""
        return self._db.read(lambda tx: _get(tx, process_id))

    def require(self, process_id: str) -> Process:
        """The program of that id."""
        return self._db.read(lambda tx: _require(tx, process_id))

    def find(self, *, key: str | None = None) -> list[Process]:
        """The programs of a conversation, or all, in the order they began."""
        if key is None:
            return self._db.read(lambda tx: list(map(_process, tx.all("processes_all"))))
        return self._db.read(
            lambda tx: list(map(_process, tx.all("processes_of_key", {"key": key})))
        )

    def of_node(self, node: str) -> list[Process]:
        """All of one machine, those whose conversation was deleted too."""
        return self._db.read(
            lambda tx: list(map(_process, tx.all("processes_of_node", {"node": node})))
        )

    def delete(self, process_id: str) -> None:
        """Forget a program."""
        self._db.write(lambda tx: tx.run("process_delete", {"id": process_id}))

    def _done(
        self, process: Process, work: Callable[[Transaction], bool], news: str | None
    ) -> bool:
        # As a turn does: in the lane of the conversation, and of the chat within that.
        done = self._db.write(work, lane=session_rows.lane_of(process.key))
        if done and news is not None:
            self._db.notify(outbox.CHANNEL)
            self._context.notify()
        return done

    def _tell(self, tx: Transaction, process: Process, news: str | None, delivery: str) -> None:
        """Write it into the conversation, and send it to where the program was started.

        Some conversations have no place to send to: who writes there asks, and reads it then.
        """
        if news is None:
            return
        news = session_rows.storable(news) or ""
        now = to_micros(self._context.clock.now())
        current = tx.one("session_current", {"key": process.key})
        session_id = None
        if current is not None:
            session_id = session_row(current).id
            said = draft({"role": ASSISTANT, "content": news})
            append_messages(tx, session_id, [said], None, now, is_activity=False, kinds=[DELIVERY])
        if process.origin is None:
            return
        made = outbox.deliveries_to(
            self._context, news, "origin", process.origin, session_id=session_id, delivery=delivery
        )
        outbox.put_in(tx, made, now)


def _get(tx: Transaction, process_id: str) -> Process | None:
    row = tx.one("process_get", {"id": process_id})
    return None if row is None else _process(row)


def _require(tx: Transaction, process_id: str) -> Process:
    found = _get(tx, process_id)
    if found is None:
        raise NotFound(
            f"There is no process {process_id!r}.",
            hint="Those that are known: process, action list; or: tertulia ps.",
        )
    return found


def _process(row: Row) -> Process:
    (id_, key, session_id, origin, node, folder, command, cwd, environment, is_pty, state,
     keeper_pid, keeper_mark, pid, mark, exit_code, began_at, ended_at, check_interval, told,
     told_at) = row  # fmt: skip
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
        told=told,
        told_at=from_micros(told_at),
    )


def _micros(interval: timedelta | None) -> int | None:
    return None if interval is None else interval // _MICRO
