"""Now: what needs a person, worst first, what happened lately, and which nodes carry the work."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from tertulia import aio
from tertulia.core.source import Source
from tertulia.core.usage import Usage
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.listeners import Connection
from tertulia.records.nodes import AccountLease, Node
from tertulia.records.people import Pairing
from tertulia.records.queues.review import ProblemCounts, QueueCount, QueueGroup
from tertulia.records.usage import BudgetState

# A message that waits for longer than this needs a person.
_LONGEST_WAIT = timedelta(minutes=5)
_LOOK_BACK = timedelta(days=1)
# The indexer is always some messages behind while people write; at this many it is not running.
_MAX_INDEX_LAG = 1000
_MAX_RUNNING = 20
_MAX_FAILURES = 20
# A budget of which a larger share is used needs a person.
_BUDGET_SHARE = 0.8

Kind = Literal[
    "unknown", "dead", "pairing", "unanswered", "node", "platform", "schedule", "budget", "index"
]


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that needs a person. `count` of them, `is_more` if there are more than counted.

    `subject` says which: a platform and problem, an identity, a node; `name` is what the person
    calls themselves. `id` is the number of the newest delivery or message, or of the schedule.
    """

    kind: Kind
    count: int = 1
    is_more: bool = False
    queue: str | None = None
    platform: str | None = None
    subject: str | None = None
    name: str | None = None
    problem: str | None = None
    id: int | None = None
    since: datetime | None = None


class RunningTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is being answered now."""

    key: str
    source: Source
    text: str | None
    received_at: datetime
    attempts: int
    node: str | None = None


class NowQuery(msgspec.Struct, frozen=True):
    """`since` is when today's figures begin; by default a day ago. `look`: the last look."""

    since: datetime | None = None
    look: datetime | None = None


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened since a time: messages answered and given up, model calls, usage."""

    since: datetime
    answered: int
    failed: int
    is_more: bool
    calls: int
    usage: Usage


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """What needs a person, worst first; and since a time: messages, failures, usage.

    `answered` and `failed` count up to 1,000 (`is_more`). `recent` is the same since the last look,
    if the request says when that was.
    """

    at: datetime
    since: datetime
    zone: str
    needs: tuple[Need, ...]
    counts: tuple[QueueCount, ...]
    running: tuple[RunningTurn, ...]
    answered: int
    failed: int
    is_more: bool
    calls: int
    usage: Usage
    recent: Recent | None
    budgets: tuple[BudgetState, ...]
    nodes: int
    nodes_fresh: int


class BudgetList(msgspec.Struct, frozen=True):
    """The budgets of the configuration, and how much of each is used."""

    items: tuple[BudgetState, ...]


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes, their connections to accounts, and who has the lease of each account."""

    items: tuple[Node, ...]
    connections: tuple[Connection, ...]
    leases: tuple[AccountLease, ...]


async def read_now(call: ApiCall) -> Now:
    store = call.api.store
    now = store.now()
    query: NowQuery = call.query
    since = query.since or now - _LOOK_BACK
    overview = await store.queues.overview()
    pairings = await store.people.pending_pairings()
    nodes = await store.nodes.find()
    connections = await store.listeners.connections()
    budgets = await store.usage.budgets()
    today = await _read_recent(store, since)
    recent = None if query.look is None else await _read_recent(store, query.look)
    needs = [
        *_queue_needs(overview.groups),
        *_pairing_needs(pairings),
        *await _unanswered_needs(store, now),
        *_node_needs(nodes, connections),
        *await _schedule_needs(store, since),
        *_budget_needs(budgets),
        *await _index_needs(store),
    ]
    running = await store.inbox.find(state="taken", limit=_MAX_RUNNING)
    return Now(
        at=now,
        since=since,
        zone=str(store.sync.context.zone),
        needs=tuple(needs),
        counts=overview.counts,
        running=tuple(
            RunningTurn(
                key=item.key, source=item.source, text=item.text, received_at=item.received_at,
                attempts=item.attempts, node=item.worker,
            )
            for item in running.items
        ),
        answered=today.answered,
        failed=today.failed,
        is_more=today.is_more,
        calls=today.calls,
        usage=today.usage,
        recent=recent,
        budgets=tuple(budgets),
        nodes=len(nodes),
        nodes_fresh=sum(node.is_fresh for node in nodes),
    )  # fmt: skip


async def _read_recent(store: aio.Store, since: datetime) -> Recent:
    count = await store.queues.count_settled(since)
    total = await store.usage.total(since)
    return Recent(
        since=since, answered=count.answered, failed=count.failed, is_more=count.is_more,
        calls=total.calls, usage=total.usage,
    )  # fmt: skip


async def count_problems(call: ApiCall) -> ProblemCounts:
    return await call.api.store.queues.count_problems()


async def list_nodes(call: ApiCall) -> NodeList:
    store = call.api.store
    return NodeList(
        items=tuple(await store.nodes.find()),
        connections=tuple(await store.listeners.connections()),
        leases=tuple(await store.nodes.leases()),
    )


async def list_budgets(call: ApiCall) -> BudgetList:
    return BudgetList(tuple(await call.api.store.usage.budgets()))


def _queue_needs(groups: Iterable[QueueGroup]) -> list[Need]:
    kinds: dict[str, Kind] = {"unknown": "unknown", "dead": "dead"}
    return [
        Need(
            kind=kinds[group.state],
            count=group.count,
            queue=group.queue,
            platform=group.platform,
            problem=group.problem,
            id=group.newest_id,
            since=group.oldest_at,
        )
        for group in groups
        if group.state in kinds
    ]


def _pairing_needs(pairings: Iterable[Pairing]) -> list[Need]:
    return [
        Need(
            kind="pairing", platform=each.platform, subject=each.person, name=each.name,
            since=each.asked_at,
        )
        for each in pairings
    ]  # fmt: skip


async def _unanswered_needs(store: aio.Store, now: datetime) -> list[Need]:
    """Return the message that has waited longest, if that is too long."""
    page = await store.inbox.find(state="waiting", limit=1)
    return [
        Need(
            kind="unanswered",
            platform=item.source.platform,
            subject=item.key,
            problem=item.problem,
            id=item.id,
            since=item.received_at,
        )
        for item in page.items
        if item.received_at < now - _LONGEST_WAIT
    ]


def _node_needs(nodes: Iterable[Node], connections: Iterable[Connection]) -> list[Need]:
    silent = [
        Need(kind="node", subject=node.name, since=node.seen_at)
        for node in nodes
        if not node.is_fresh
    ]
    troubled = [
        Need(
            kind="platform", platform=each.platform, subject=each.account or None,
            problem=each.problem, since=each.since,
        )
        for each in connections
        if each.is_fresh and each.problem is not None
    ]  # fmt: skip
    return silent + troubled


async def _schedule_needs(store: aio.Store, since: datetime) -> list[Need]:
    runs = await store.schedules.failures(since, limit=_MAX_FAILURES)
    return [
        Need(kind="schedule", id=schedule, problem=problem, since=ended_at)
        for schedule, problem, ended_at in runs
    ]


def _budget_needs(budgets: Iterable[BudgetState]) -> list[Need]:
    return [
        Need(
            kind="budget",
            platform=state.budget.only if state.budget.per == "platform" else None,
            subject=f"{state.share:.0%} of the budget of {state.budget.only or state.budget.per}",
        )
        for state in budgets
        if state.share > _BUDGET_SHARE
    ]


async def _index_needs(store: aio.Store) -> list[Need]:
    behind = await store.count_unindexed()
    return [Need(kind="index", count=behind)] if behind > _MAX_INDEX_LAG else []


TABLE = (
    Operation(
        method="GET", path="/now", act=read_now, role="owner", query=NowQuery, answer=Now,
        summary="Sum up what needs a person, worst first, and what happened since a time.",
    ),
    Operation(
        method="GET", path="/now/counts", act=count_problems, role="owner", answer=ProblemCounts,
        summary="Count what waits for a person: deliveries, messages, strangers; 1,000 at most.",
    ),
    Operation(
        method="GET", path="/budgets", act=list_budgets, role="owner", answer=BudgetList,
        summary="List the budgets, and how much of each is used.",
    ),
    Operation(
        method="GET", path="/nodes", act=list_nodes, role="owner", answer=NodeList,
        summary="List the gateways with their signs of life, and who listens for which account.",
    ),
)  # fmt: skip
