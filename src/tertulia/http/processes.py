"""Processes: the programs in the background that agents have started.

The owner sees all of them; a member those of a conversation of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from tertulia.errors import IllegalMove
from tertulia.http.routing import (
    ApiCall,
    Operation,
)
from tertulia.http.sessions import Place
from tertulia.records.processes import Process, ProcessState

if TYPE_CHECKING:
    from tertulia.processes.registry import ProcessRegistry, ProcessStatus  # which needs a Unix

_PAGE: Final = 10_000  # characters of a log at once


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program as it stands."""

    id: str
    state: ProcessState
    exit_code: int | None
    command: str
    folder: str
    key: str
    session_id: str | None
    machine: str
    environment: str
    pid: int
    began_at: datetime
    ended_at: datetime | None


class Programs(msgspec.Struct, frozen=True):
    items: tuple[Program, ...]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The newest output, or that before or after a position."""

    before: Place | None = None
    after: Place | None = None
    limit: Annotated[int, Meta(ge=1, le=_PAGE)] = _PAGE


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """Some output, from `start` to `end`; `oldest` and `total` bound what can be read."""

    text: str
    start: int
    end: int
    oldest: int
    total: int


async def list_processes(call: ApiCall) -> Programs:
    return _programs(await call.api.store.processes.find())


async def list_session_processes(call: ApiCall) -> Programs:
    session = await call.eyes.session(call.path["id"])
    return _programs(await call.api.store.processes.find(key=session.key))


async def get_process(call: ApiCall) -> Program:
    return _program(await call.api.store.processes.require(call.path["id"]))


async def read_log(call: ApiCall) -> Log:
    given: LogQuery = call.query
    seen: ProcessStatus = await asyncio.to_thread(
        _registry(call).log, call.path["id"],
        before=given.before, after=given.after, limit=given.limit,
    )  # fmt: skip
    piece = seen.output
    return Log(
        text=piece.text, start=piece.start, end=piece.end, oldest=piece.oldest, total=piece.total
    )


async def kill_process(call: ApiCall) -> Program:
    return _program(await asyncio.to_thread(_registry(call).kill, call.path["id"]))


def _registry(call: ApiCall) -> ProcessRegistry:
    found: ProcessRegistry | None = call.api.gateway.pipeline.processes
    if found is None:
        raise IllegalMove(
            "This gateway runs no programs.", hint="Set: enabled = true under [processes]"
        )
    return found


def _programs(found: Iterable[Process]) -> Programs:
    return Programs(tuple(map(_program, found)))


def _program(one: Process) -> Program:
    return Program(
        id=one.id,
        state=one.state,
        exit_code=one.exit_code,
        command=one.command,
        folder=one.cwd,
        key=one.key,
        session_id=one.session_id,
        machine=one.node,
        environment=one.environment,
        pid=one.pid,
        began_at=one.began_at,
        ended_at=one.ended_at,
    )


_ONE = "/processes/{id}"

TABLE = (
    Operation(
        method="GET", path="/processes", summary="The programs of every conversation.",
        act=list_processes, role="owner", answer=Programs,
    ),
    Operation(
        method="GET", path=_ONE, summary="One program.",
        act=get_process, role="owner", answer=Program,
    ),
    Operation(
        method="GET", path=_ONE + "/log", summary="What a program has written.",
        act=read_log, role="owner", query=LogQuery, answer=Log,
    ),
    Operation(
        method="POST", path=_ONE + "/kill", act=kill_process, role="owner", answer=Program,
        summary="End a program, with everything it has started.",
    ),
    Operation(
        method="GET", path="/sessions/{id}/processes", act=list_session_processes,
        summary="The programs of the conversation that a session belongs to.", answer=Programs,
    ),
)  # fmt: skip
