"""The buttons of the console: each runs one operation of the HTTP API.

A button is a form whose fields are those of the operation. Its result is the page as it is then,
with a notice; where the operation can be taken back, the notice has a button that does so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from tertulia.console.page_definition import CONSOLE, PageCall
from tertulia.errors import NotFound

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Undo(msgspec.Struct, frozen=True):
    """The action that takes another one back, with its fields."""

    action: str
    fields: Mapping[str, str]
    label: str = "Undo"


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did. `note` names the sentence; `leads_to` is another page to go on with."""

    note: str
    text: str
    undo: Undo | None = None
    leads_to: str | None = None


Answer = Callable[[PageCall, Mapping[str, str], Any], ActionResult]


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """An operation behind a button. `path` are the fields that belong into its path.

    `prepare` may read what is needed to take the action back, before it runs.
    """

    operation: str
    text: str
    path: tuple[str, ...] = ()
    undo: Callable[[Mapping[str, str], Any, Any], Undo | None] | None = None
    prepare: Callable[[PageCall, Mapping[str, str]], Awaitable[Any]] | None = None
    leads_to: Callable[[Mapping[str, str], Any], str] | None = None
    sentence: Callable[[Mapping[str, str], Any], str] | None = None


async def _session_before(call: PageCall, fields: Mapping[str, str]) -> Any:
    return await call.run("get_session", path={"id": fields["id"]})


def _rename_back(fields: Mapping[str, str], before: Any, after: Any) -> Undo:
    return Undo("rename", {"id": fields["id"], "title": before.title or ""})


def _settled(fields: Mapping[str, str], after: Any) -> str:
    return {
        "sent": "Noted: it arrived.",
        "retry": "It is sent again.",
        "dead": "Given up.",
    }.get(fields.get("outcome", ""), "Settled.")


ACTIONS: dict[str, Action] = {
    "rename": Action(
        operation="rename_session", path=("id",), text="The title was changed.",
        prepare=_session_before, undo=_rename_back,
    ),
    "end": Action(
        operation="end_session", path=("id",), text="The session has ended.",
        undo=lambda fields, before, after: Undo("resume", {"id": fields["id"]}),
    ),
    "resume": Action(
        operation="resume_session", path=("id",), text="The session is the current one again.",
        undo=lambda fields, before, after: Undo("end", {"id": fields["id"]}),
    ),
    "fork": Action(
        operation="fork_session", path=("id",), text="A new session with the same messages began.",
        leads_to=lambda fields, after: f"{CONSOLE}/sessions/{after.id}",
    ),
    "erase": Action(
        operation="delete_session", path=("id",), text="The session was erased.",
        leads_to=lambda fields, after: f"{CONSOLE}/sessions?note=erase",
    ),
    "say": Action(operation="post_message", path=("chat",), text=""),
    "settle": Action(
        operation="settle_delivery", path=("id",), text="The delivery was settled.",
        sentence=_settled,
    ),
}  # fmt: skip

NOTICES: dict[str, ActionResult] = {
    name: ActionResult(note=name, text=action.text) for name, action in ACTIONS.items()
}


async def run_action(name: str, call: PageCall, fields: Mapping[str, str]) -> ActionResult:
    """Run the action of a button; raise what its operation raises."""
    action = ACTIONS.get(name)
    if action is None:
        raise NotFound(f"There is no action {name[:40]!r}.")
    missing = [field for field in action.path if not fields.get(field)]
    if missing:
        raise NotFound(f"The form has no {missing[0]}.", hint="Load the page again.")
    before = None if action.prepare is None else await action.prepare(call, fields)
    body = {key: value for key, value in fields.items() if key not in action.path}
    path = {key: fields[key] for key in action.path}
    after = await call.run(action.operation, path=path, body=body)
    return ActionResult(
        note=name,
        text=action.text if action.sentence is None else action.sentence(fields, after),
        undo=None if action.undo is None else action.undo(fields, before, after),
        leads_to=None if action.leads_to is None else action.leads_to(fields, after),
    )
