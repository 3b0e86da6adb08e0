"""Processes: the background programs that agents have started.

The owner sees all of them; a member sees those of their own conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from tertulia.errors import IllegalMove
from tertulia.http.parameters import Position
from tertulia.http.routing import SESSION_PATH, ApiCall, Operation
from tertulia.records.processes import Process, ProcessState

if TYPE_CHECKING:
    from tertulia.processes.registry import ProcessRegistry  # needs Unix

_LOG_PAGE: Final = 10_000  # characters of a log in one response


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a process."""

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


class ProcessList(msgspec.Struct, frozen=True):
    items: tuple[ProcessInfo, ...]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Select the newest output, or the output before or after a position."""

    before: Position | None = None
    after: Position | None = None
    limit: Annotated[int, Meta(ge=1, le=_LOG_PAGE)] = _LOG_PAGE


class ProcessLog(msgspec.Struct, frozen=True, kw_only=True):
    """Output from position `start` to `end`; `oldest` and `total` bound what can be read."""

    text: str
    start: int
    end: int
    oldest: int
    total: int


async def list_processes(call: ApiCall) -> ProcessList:
    return _process_list(await call.api.store.processes.find())


async def list_session_processes(call: ApiCall) -> ProcessList:
    session = await call.session()
    return _process_list(await call.api.store.processes.find(key=session.key))


async def get_process(call: ApiCall) -> ProcessInfo:
    return _process_info(await call.api.store.processes.require(call.path["id"]))


async def read_log(call: ApiCall) -> ProcessLog:
    query: LogQuery = call.query
    status = await asyncio.to_thread(
        _require_registry(call).log, call.path["id"],
        before=query.before, after=query.after, limit=query.limit,
    )  # fmt: skip
    output = status.output
    return ProcessLog(
        text=output.text,
        start=output.start,
        end=output.end,
        oldest=output.oldest,
        total=output.total,
    )


async def kill_process(call: ApiCall) -> ProcessInfo:
    registry = _require_registry(call)
    return _process_info(await asyncio.to_thread(registry.kill, call.path["id"]))


def _require_registry(call: ApiCall) -> ProcessRegistry:
    registry = call.api.gateway.pipeline.processes
    if registry is None:
        raise IllegalMove(
            "This gateway does not run processes.", hint="Set: enabled = true under [processes]"
        )
    return registry


def _process_list(processes: Iterable[Process]) -> ProcessList:
    return ProcessList(tuple(map(_process_info, processes)))


def _process_info(process: Process) -> ProcessInfo:
    return ProcessInfo(
        id=process.id,
        state=process.state,
        exit_code=process.exit_code,
        command=process.command,
        folder=process.cwd,
        key=process.key,
        session_id=process.session_id,
        machine=process.node,
        environment=process.environment,
        pid=process.pid,
        began_at=process.began_at,
        ended_at=process.ended_at,
    )


_PROCESS_PATH = "/processes/{id}"

TABLE = (
    Operation(
        method="GET", path="/processes", summary="List the processes of every conversation.",
        act=list_processes, role="owner", answer=ProcessList,
    ),
    Operation(
        method="GET", path=_PROCESS_PATH, summary="Get one process.",
        act=get_process, role="owner", answer=ProcessInfo,
    ),
    Operation(
        method="GET", path=_PROCESS_PATH + "/log", summary="Read the output of a process.",
        act=read_log, role="owner", query=LogQuery, answer=ProcessLog,
    ),
    Operation(
        method="POST", path=_PROCESS_PATH + "/kill", act=kill_process, role="owner",
        summary="Kill a process and everything it has started.", answer=ProcessInfo,
    ),
    Operation(
        method="GET", path=SESSION_PATH + "/processes", act=list_session_processes,
        summary="List the processes of the conversation that a session belongs to.",
        answer=ProcessList,
    ),
)  # fmt: skip
