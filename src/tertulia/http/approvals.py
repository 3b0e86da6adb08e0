"""Approvals: list the calls of tools that wait for a person, and answer for them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tertulia.core.approval import Scope
from tertulia.http.auth import API
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.approval_rows import Approval


class ApprovalList(msgspec.Struct, frozen=True):
    items: tuple[Approval, ...]


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for a call. `scope` belongs to approve, `reason` to deny."""

    answer: Literal["approve", "deny"]
    scope: Scope = "once"
    reason: Annotated[str, Meta(max_length=500)] | None = None


async def list_approvals(call: ApiCall) -> ApprovalList:
    person = None if call.caller.is_owner else call.caller.person(API)
    return ApprovalList(tuple(await call.api.store.approvals.find(person=person)))


async def answer_approval(call: ApiCall) -> Approval:
    approvals, body, code = call.api.store.approvals, call.body, call.path["code"]
    person, is_owner = call.caller.person(API), call.caller.is_owner
    approval: Approval
    if body.answer == "approve":
        approval = await approvals.approve(code, by=person, scope=body.scope, is_owner=is_owner)
    else:
        approval = await approvals.deny(code, by=person, reason=body.reason, is_owner=is_owner)
    return approval


TABLE = (
    Operation(
        method="GET", path="/approvals", act=list_approvals, answer=ApprovalList,
        summary="List the calls of tools that wait for an approval: an owner sees all.",
    ),
    Operation(
        method="POST", path="/approvals/{code}", act=answer_approval, body=ApprovalAnswer,
        answer=Approval, summary="Approve or deny a call; the first answer counts.",
    ),
)  # fmt: skip
