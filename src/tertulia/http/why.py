"""Why a session began, goes on or ended: its events, its policy, the sessions beside it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tertulia.core.policy import Policies, PolicyForecast, ResetPolicy
from tertulia.core.session import Page, Session
from tertulia.core.settings import require_zone
from tertulia.http.parameters import Count, Cursor, Text
from tertulia.http.routing import SESSION_PATH, ApiCall, Operation
from tertulia.records.sessions.open import Activity
from tertulia.records.sessions.session_events import SessionEvent


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Count = 50
    cursor: Cursor | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a session began, goes on or ended: events newest first, its policy, its neighbours.

    `earlier` is the session it continued or was forked from; `later` those that came after it.
    """

    session: Session
    events: Page[SessionEvent]
    policy: PolicyForecast
    earlier: Session | None
    later: tuple[Session, ...]


class PolicyRule(msgspec.Struct, frozen=True):
    """A rule and the setting that it stands in."""

    setting: str
    policy: ResetPolicy


class PolicyList(msgspec.Struct, frozen=True):
    """The rules in force, and the zone of people whose own is not known."""

    items: tuple[PolicyRule, ...]
    zone: str


class ForecastQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A chat and its last activity, to ask what its policy would do."""

    platform: Text
    updated_at: datetime
    chat_type: Text = "dm"
    zone: Text | None = None


async def list_events(call: ApiCall) -> Page[SessionEvent]:
    session = await call.session()
    query: EventQuery = call.query
    return await call.api.store.sessions.events(session.id, limit=query.limit, cursor=query.cursor)


async def read_why(call: ApiCall) -> Why:
    session = await call.session()
    sessions, query = call.api.store.sessions, call.query
    earlier = None if session.parent_id is None else await sessions.get(session.parent_id)
    return Why(
        session=session,
        events=await sessions.events(session.id, limit=query.limit, cursor=query.cursor),
        policy=await sessions.forecast(session.id),
        earlier=earlier,
        later=tuple(await sessions.after(session.id)),
    )


async def list_policies(call: ApiCall) -> PolicyList:
    context = call.api.store.sync.context
    policies: Policies = context.settings.policies
    rules = [PolicyRule("default", policies.default)]
    for kind, chosen in (("platforms", policies.platforms), ("chat_types", policies.chat_types)):
        rules += [PolicyRule(f"{kind}.{name}", rule) for name, rule in sorted(chosen.items())]
    return PolicyList(tuple(rules), str(context.zone))


async def forecast_policy(call: ApiCall) -> PolicyForecast:
    query: ForecastQuery = call.query
    context = call.api.store.sync.context
    zone = context.zone if query.zone is None else require_zone(query.zone)
    updated_at = query.updated_at
    if updated_at.tzinfo is None:
        updated_at = updated_at.replace(tzinfo=zone)
    policies: Policies = context.settings.policies
    activity = Activity(updated_at, None)
    return policies.forecast(query.platform, query.chat_type, activity, zone=zone)


TABLE = (
    Operation(
        method="GET", path=SESSION_PATH + "/events", act=list_events, query=EventQuery,
        answer=Page[SessionEvent],
        summary="List what happened to a session, newest first, and who did it.",
    ),
    Operation(
        method="GET", path=SESSION_PATH + "/why", act=read_why, query=EventQuery, answer=Why,
        summary="Tell why a session began, goes on or ended: events, policy, neighbours.",
    ),
    Operation(
        method="GET", path="/policies", act=list_policies, answer=PolicyList,
        summary="List the rules that end sessions by themselves, and where they stand.",
    ),
    Operation(
        method="GET", path="/policies/forecast", act=forecast_policy, query=ForecastQuery,
        answer=PolicyForecast,
        summary="Tell when a session of a chat would end after its last activity.",
    ),
)  # fmt: skip
