"""Liveness, readiness, and metrics for Prometheus."""

from __future__ import annotations

from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

from tertulia import aio
from tertulia.core.usage import Usage
from tertulia.errors import StoreFull, StoreUnavailable
from tertulia.http.routing import ApiCall, Operation
from tertulia.records.queues.inbox import InboxState
from tertulia.records.queues.outbox import DELIVERY_STATES, DeliveryState

# Queues are counted up to this length: any longer one needs attention, whatever its exact length.
_COUNT_LIMIT = 1000
# With less space than this the next messages could not be stored.
_MIN_FREE_BYTES = 1_048_576
_INBOX_STATES: tuple[InboxState, ...] = ("waiting", "taken", "dead")
_SECONDS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(Health, frozen=True):
    # Accounts of chat apps in trouble. They keep no other work from being done.
    accounts_with_problems: int = 0


class PrometheusMetrics:
    """Counters of a gateway since its start, and the lengths of its queues."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._turns = Counter(
            "tertulia_turns", "Turns that have ended.", ("platform", "outcome"),
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "tertulia_turn_seconds", "Duration of turns in seconds.", ("platform",),
            buckets=_SECONDS_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._tokens = Counter(
            "tertulia_tokens", "Tokens of model calls.", ("platform", "kind"),
            registry=self.registry,
        )  # fmt: skip
        self._cost = Counter(
            "tertulia_cost_usd", "Cost of model calls in USD, where known.", ("platform",),
            registry=self.registry,
        )  # fmt: skip
        self._unpriced = Counter(
            "tertulia_unpriced_calls", "Model calls whose cost is not known.", ("platform",),
            registry=self.registry,
        )  # fmt: skip
        self._inbox = Gauge(
            "tertulia_inbox", f"Accepted messages by state, up to {_COUNT_LIMIT}.", ("state",),
            registry=self.registry,
        )  # fmt: skip
        self._outbox = Gauge(
            "tertulia_deliveries", f"Deliveries by state, up to {_COUNT_LIMIT}.", ("state",),
            registry=self.registry,
        )  # fmt: skip

        self._problems = Gauge(
            "tertulia_accounts_with_problems", "Accounts of chat apps that do not work now.",
            registry=self.registry,
        )  # fmt: skip

    def turn_ended(self, platform: str, outcome: str, seconds: float) -> None:
        """Count a turn that has ended."""
        self._turns.labels(platform, outcome).inc()
        self._seconds.labels(platform).observe(seconds)

    def usage_stored(self, platform: str, usage: Usage) -> None:
        """Count the tokens and the cost of a model call."""
        for kind in ("input", "output", "cache_read", "cache_write", "reasoning"):
            self._tokens.labels(platform, kind).inc(getattr(usage, kind))
        if usage.cost_usd is not None:
            self._cost.labels(platform).inc(usage.cost_usd)
        elif usage.cost_status != "included":
            self._unpriced.labels(platform).inc()

    async def render(self, store: aio.Store) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        for state in _INBOX_STATES:
            self._inbox.labels(state).set(await store.inbox.count(state, limit=_COUNT_LIMIT))
        for delivery_state in _unsent_states():
            count = await store.outbox.count(delivery_state, limit=_COUNT_LIMIT)
            self._outbox.labels(delivery_state).set(count)
        self._problems.set(await _count_problems(store))
        return generate_latest(self.registry)


def _unsent_states() -> list[DeliveryState]:
    return [state for state in DELIVERY_STATES if state != "sent"]


async def check_health(call: ApiCall) -> Health:
    return Health()


async def check_readiness(call: ApiCall) -> Readiness:
    if call.api.is_draining:
        raise StoreUnavailable("The gateway is stopping.", retry_after=5)
    await call.api.store.sessions.has_any()
    if not await call.api.store.has_space(_MIN_FREE_BYTES):
        raise StoreFull("The disk of the store is full.", hint="Free some space.", retry_after=30)
    return Readiness(accounts_with_problems=await _count_problems(call.api.store))


async def _count_problems(store: aio.Store) -> int:
    connections = await store.listeners.connections()
    troubled = [each for each in connections if each.is_fresh and each.problem]
    return len({(connection.platform, connection.account) for connection in troubled})


async def read_metrics(call: ApiCall) -> Response:
    body = await call.api.metrics.render(call.api.store)
    return Response(body, media_type="text/plain; version=0.0.4")


TABLE = (
    Operation(
        method="GET", path="/healthz", summary="Report that the gateway is alive.",
        act=check_health, role=None, answer=Health,
    ),
    Operation(
        method="GET", path="/readyz", summary="Report that the store responds and has space.",
        act=check_readiness, role=None, answer=Readiness,
    ),
    Operation(
        method="GET", path="/metrics", summary="Metrics for Prometheus.",
        act=read_metrics, role="owner", answer=str, kind="text/plain",
    ),
)  # fmt: skip
