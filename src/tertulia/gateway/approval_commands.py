"""The commands `/approve`, `/deny` and `/approvals`: answer for calls that wait, and list them."""

from __future__ import annotations

from tertulia.core.approval import SCOPES, Grant, escape_invisible
from tertulia.core.source import Source
from tertulia.core.text.prompt_safe import clean_for_prompt
from tertulia.errors import IllegalMove
from tertulia.gateway.command_arguments import parse_number
from tertulia.records.approval_rows import Approval
from tertulia.records.people import Role
from tertulia.records.queues.inbox import claim_person
from tertulia.store import Store

_MAX_REASON = 500
_MAX_LISTED = 20


def run_approve(store: Store, source: Source, role: Role, argument: str) -> str:
    """Run the command `/approve` with its argument; return the reply."""
    code, _, scope = argument.partition(" ")
    scope = scope.strip().lower() or "once"
    if not code or scope not in SCOPES:
        raise IllegalMove(
            "Say which call, and for how long.",
            hint="For example: /approve CODE once, or session, or always.",
        )
    approval = store.approvals.approve(
        code, by=claim_person(source), scope=scope, is_owner=role == "owner"
    )
    return f"Approved: {_name(approval)}{_more(store, approval)}"


def run_deny(store: Store, source: Source, role: Role, argument: str) -> str:
    """Run the command `/deny` with its argument; return the reply."""
    code, _, reason = argument.partition(" ")
    if not code:
        raise IllegalMove("Say which call.", hint="For example: /deny CODE it is the wrong file")
    approval = store.approvals.deny(
        code,
        by=claim_person(source),
        reason=escape_invisible(reason.strip())[:_MAX_REASON] or None,
        is_owner=role == "owner",
    )
    return f"Declined: {_name(approval)}{_more(store, approval)}"


def run_approvals(store: Store, source: Source, role: Role, argument: str) -> str:
    """Run the command `/approvals` with its argument; return the reply."""
    person = claim_person(source)
    action, _, number = argument.partition(" ")
    if action == "revoke":
        grant = parse_number(number.strip(), thing="an approval", listed_by="/approvals")
        store.approvals.revoke(grant, person=None if role == "owner" else person)
        return f"Approval {grant} is revoked."
    if argument:
        raise IllegalMove("I do not know that.", hint="Send /approvals, or /approvals revoke N.")
    waiting = store.approvals.find(person=None if role == "owner" else person)[:_MAX_LISTED]
    grants = store.approvals.grants(person)
    lines = [f"waits: {_name(item)}, until {item.expires_at:%H:%M} UTC" for item in waiting]
    lines += [_describe(grant) for grant in grants]
    if grants:
        lines.append("To take one back, send /approvals revoke N.")
    return "\n".join(lines) or "Nothing waits for an approval, and nothing is approved for longer."


def describe_declined(approvals: list[Approval]) -> str:
    """Return a sentence about calls that a command has declined; empty if there were none."""
    if not approvals:
        return ""
    return f" I did not run: {', '.join(map(_name, approvals))}."


def _name(approval: Approval) -> str:
    return f"{clean_for_prompt(approval.tool, 64)} ({approval.code})"


def _more(store: Store, approval: Approval) -> str:
    """Say what else has to be answered before the turn goes on."""
    batch = store.approvals.of_batch(approval.batch)
    waiting = [item for item in batch if item.state == "pending"]
    if not waiting:
        return "."
    return f". Still to be answered: {', '.join(map(_name, waiting))}."


def _describe(grant: Grant) -> str:
    command = "" if grant.command is None else f" {clean_for_prompt(grant.command, 120)!r}"
    scope = "always" if grant.session_id is None else "in one conversation"
    return f"{grant.id}. {clean_for_prompt(grant.tool, 64)}{command}: approved {scope}"
