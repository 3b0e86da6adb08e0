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
from tertulia.core.text.display_safe import display_line
from tertulia.core.text.format import session_name
from tertulia.errors import ConfigError, NotFound

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

    `prepare` may read what is needed to take the action back, before it runs; `body` makes the body
    of the operation from the fields and from what was read.
    """

    operation: str
    text: str
    path: tuple[str, ...] = ()
    undo: Callable[[Mapping[str, str], Any, Any], Undo | None] | None = None
    prepare: Callable[[PageCall, Mapping[str, str]], Awaitable[Any]] | None = None
    body: Callable[[Mapping[str, str], Any], dict[str, Any]] | None = None
    leads_to: Callable[[Mapping[str, str], Any], str] | None = None
    sentence: Callable[[Mapping[str, str], Any], str] | None = None


async def _session_before(call: PageCall, fields: Mapping[str, str]) -> Any:
    return await call.operate("get_session", path={"id": fields["id"]})


async def _message_before(call: PageCall, fields: Mapping[str, str]) -> Any:
    query = {"around": fields.get("seq"), "newest": 3}
    page = await call.operate("read_transcript", path={"id": fields["id"]}, query=query)
    for entry in page.items:
        if str(entry.seq) == fields.get("seq"):
            return entry
    raise NotFound("The message is not there any more.", hint="Load the page again.")


async def _person_before(call: PageCall, fields: Mapping[str, str]) -> Any:
    page = await call.operate("list_people", query={"ids": fields["person"]})
    return next(iter(page.items), None)


async def _check_title(call: PageCall, fields: Mapping[str, str]) -> Any:
    session = await _session_before(call, fields)
    if fields.get("title", "").strip() != display_line(session_name(session), 120).strip():
        raise ConfigError(
            "The title is not the one of this session.",
            hint="Type it as it stands at the top of the page.",
        )
    return session


def _rename_back(fields: Mapping[str, str], before: Any, after: Any) -> Undo:
    return Undo("rename", {"id": fields["id"], "title": before.title or ""})


def _restore_before(fields: Mapping[str, str], before: Any, after: Any) -> Undo:
    return Undo("restore", {"id": fields["id"], "number": str(after.before)})


def _role_back(fields: Mapping[str, str], before: Any, after: Any) -> Undo | None:
    return None if before is None else Undo("role", {"person": after.id, "role": before.role})


def _zone_back(fields: Mapping[str, str], before: Any, after: Any) -> Undo | None:
    return None if before is None else Undo("zone", {"person": after.id, "zone": before.zone or ""})


def _settled(fields: Mapping[str, str], after: Any) -> str:
    return {
        "sent": "Noted: it arrived.",
        "retry": "It is sent again.",
        "dead": "Given up.",
    }.get(fields.get("outcome", ""), "Settled.")


def _report(fields: Mapping[str, str], after: Any) -> str:
    """Say how many were settled, and how many had changed meanwhile."""
    text = f"{after.settled:,} settled"
    if after.changed:
        text += f", {len(after.changed):,} had changed meanwhile and stay as they are"
    return text + ("; there are more, do it again." if after.is_more else ".")


def _undone(fields: Mapping[str, str], after: Any) -> str:
    return (
        "The last exchange was taken back." if after.turns == 1 else f"{after.turns} were undone."
    )


def _files(text: str) -> list[Any]:
    """Return the files that the script of the chat has put into its form."""
    try:
        return msgspec.json.decode(text, type=list[Any]) if text else []
    except msgspec.DecodeError as problem:
        raise ConfigError("The files cannot be read.", hint="Attach them again.") from problem


_ID = ("id",)
ACTIONS: dict[str, Action] = {
    "rename": Action(
        operation="rename_session", path=_ID, text="The title was changed.",
        prepare=_session_before, undo=_rename_back,
        body=lambda fields, before: {"title": fields.get("title", "").strip() or None},
    ),
    "end": Action(
        operation="end_session", path=_ID, text="The session has ended.",
        undo=lambda fields, before, after: Undo("resume", {"id": fields["id"]}),
    ),
    "resume": Action(
        operation="resume_session", path=_ID, text="The session is the current one again.",
        undo=lambda fields, before, after: Undo("end", {"id": fields["id"]}),
    ),
    "fork": Action(
        operation="fork_session", path=_ID, text="A new session with the same messages began.",
        leads_to=lambda fields, after: f"{CONSOLE}/sessions/{after.id}?note=fork",
    ),
    "erase": Action(
        operation="delete_session", path=_ID, text="The session was erased.", prepare=_check_title,
        leads_to=lambda fields, after: f"{CONSOLE}/sessions?note=erase",
    ),
    "undo": Action(
        operation="undo_turns", path=_ID, text="The last exchange was taken back.",
        sentence=_undone, undo=_restore_before,
    ),
    "redo": Action(
        operation="redo_turns", path=_ID, text="It is back.", undo=_restore_before,
    ),
    "restore": Action(
        operation="restore_revision", path=_ID, text="The revision was restored.",
        undo=_restore_before,
    ),
    "edit": Action(
        operation="edit_message", path=_ID, text="The message was changed.", undo=_restore_before,
        prepare=_message_before,
        body=lambda fields, before: {
            "seq": before.seq, "message": {**before.body, "content": fields.get("text", "")},
        },
    ),
    "remove": Action(
        operation="remove_message", path=_ID, text="The message was removed.",
        undo=_restore_before,
    ),
    "compress": Action(
        operation="compact_transcript", path=_ID, text="The older messages were summed up.",
        undo=_restore_before,
    ),
    "stop": Action(operation="stop_turn", path=_ID, text="The answer is being stopped."),
    "retry": Action(operation="retry_turn", path=_ID, text="It is answered again."),
    "say": Action(
        operation="post_message", path=("chat",), text="",
        body=lambda fields, before: {
            "text": fields.get("text", ""), "message_id": fields.get("message_id") or None,
            "files": _files(fields.get("files", "")),
        },
    ),
    "settle": Action(
        operation="settle_delivery", path=_ID, text="The delivery was settled.",
        sentence=_settled,
    ),
    "settle_all": Action(
        operation="settle_deliveries", text="The deliveries were settled.", sentence=_report,
    ),
    "answer": Action(operation="settle_arrival", path=_ID, text="The message was settled."),
    "answer_all": Action(
        operation="settle_arrivals", text="The messages were settled.", sentence=_report,
    ),
    "approve": Action(
        operation="approve_pairing", text="They may write now.",
        undo=lambda fields, before, after: Undo("role", {"person": after.id, "role": "guest"}),
    ),
    "refuse": Action(operation="refuse_pairing", text="Refused. For a day they get no new code."),
    "role": Action(
        operation="set_role", path=("person",), text="The role was changed.",
        prepare=_person_before, undo=_role_back,
    ),
    "zone": Action(
        operation="set_zone", path=("person",), text="The time zone was changed.",
        prepare=_person_before, undo=_zone_back,
        body=lambda fields, before: {"zone": fields.get("zone", "").strip() or None},
    ),
    "run_schedule": Action(operation="run_schedule", path=_ID, text="It runs now."),
    "pause_schedule": Action(
        operation="pause_schedule", path=_ID, text="The schedule is paused.",
        undo=lambda fields, before, after: Undo("resume_schedule", {"id": fields["id"]}),
    ),
    "resume_schedule": Action(
        operation="resume_schedule", path=_ID, text="The schedule goes on.",
        undo=lambda fields, before, after: Undo("pause_schedule", {"id": fields["id"]}),
    ),
    "remove_schedule": Action(
        operation="remove_schedule", path=_ID, text="The schedule was removed."
    ),
    "plan": Action(operation="create_schedule", text="The task is planned."),
    "kill": Action(operation="kill_process", path=_ID, text="The process was killed."),
    "sign_out": Action(
        operation="sign_out_browser", path=_ID, text="That browser is signed out."
    ),
    "sign_out_all": Action(
        operation="sign_out_browsers", text="All browsers are signed out.",
        leads_to=lambda fields, after: f"{CONSOLE}/enter",
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
    body: dict[str, Any] = {
        key: value for key, value in fields.items() if key not in action.path and value != ""
    }
    if action.body is not None:
        body = action.body(fields, before)
    path = {key: fields[key] for key in action.path}
    after = await call.operate(action.operation, path=path, body=body)
    return ActionResult(
        note=name,
        text=action.text if action.sentence is None else action.sentence(fields, after),
        undo=None if action.undo is None else action.undo(fields, before, after),
        leads_to=None if action.leads_to is None else action.leads_to(fields, after),
    )
