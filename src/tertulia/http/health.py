"""Whether the gateway lives and can work, and what it has counted."""

from __future__ import annotations

from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

from tertulia import aio
from tertulia.core.usage import Usage
from tertulia.errors import StoreUnavailable
from tertulia.http.routing import (
    ApiCall,
    Operation,
)
from tertulia.records.queues.inbox import ArrivalState
from tertulia.records.queues.outbox import (
    DELIVERY_STATES,
    DeliveryState,
)

# A queue is counted up to here: what is longer needs a look all the same.
_COUNTED = 1000
_ARRIVALS: tuple[ArrivalState, ...] = ("waiting", "taken", "dead")
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class PrometheusMetrics:
    """What a gateway has counted since it began, and how long its queues are."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._turns = Counter(
            "tertulia_turns", "Turns that are over.", ("platform", "outcome"),
            registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "tertulia_turn_seconds", "How long turns took.", ("platform",),
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._tokens = Counter(
            "tertulia_tokens", "Tokens of model calls.", ("platform", "kind"),
            registry=self.registry,
        )  # fmt: skip
        self._cost = Counter(
            "tertulia_cost_usd", "What model calls cost, as far as it is known.", ("platform",),
            registry=self.registry,
        )  # fmt: skip
        self._inbox = Gauge(
            "tertulia_inbox", f"Accepted messages by state, up to {_COUNTED}.", ("state",),
            registry=self.registry,
        )  # fmt: skip
        self._outbox = Gauge(
            "tertulia_deliveries", f"Deliveries by state, up to {_COUNTED}.", ("state",),
            registry=self.registry,
        )  # fmt: skip

    def turned(self, platform: str, outcome: str, seconds: float) -> None:
        self._turns.labels(platform, outcome).inc()
        self._seconds.labels(platform).observe(seconds)

    def spent(self, platform: str, usage: Usage) -> None:
        for kind in ("input", "output", "cache_read", "cache_write", "reasoning"):
            self._tokens.labels(platform, kind).inc(getattr(usage, kind))
        self._cost.labels(platform).inc(usage.cost_usd or 0.0)

    async def written(self, store: aio.Store) -> bytes:
        """All of it in the form that Prometheus reads."""
        for state in _ARRIVALS:
            arrivals = await store.inbox.find(state=state, limit=_COUNTED)
            self._inbox.labels(state).set(len(arrivals.items))
        for delivery_state in _unsent():
            parcels = await store.outbox.find(state=delivery_state, limit=_COUNTED)
            self._outbox.labels(delivery_state).set(len(parcels.items))
        return generate_latest(self.registry)


def _unsent() -> list[DeliveryState]:
    return [state for state in DELIVERY_STATES if state != "sent"]


async def check_health(call: ApiCall) -> Health:
    return Health()


async def check_readiness(call: ApiCall) -> Health:
    if call.api.is_draining:
        raise StoreUnavailable("The gateway is stopping.", retry_after=5)
    await call.api.store.sessions.has_any()
    return Health()


async def read_metrics(call: ApiCall) -> Response:
    body = await call.api.metrics.written(call.api.store)
    return Response(body, media_type="text/plain; version=0.0.4")


TABLE = (
    Operation(
        method="GET", path="/healthz", summary="The gateway lives.", act=check_health,
        role=None, answer=Health,
    ),
    Operation(
        method="GET", path="/readyz", summary="The gateway can work: its store answers.",
        act=check_readiness, role=None, answer=Health,
    ),
    Operation(
        method="GET", path="/metrics", summary="What was counted, for Prometheus.",
        act=read_metrics, role="owner", answer=str, kind="text/plain",
    ),
)  # fmt: skip
