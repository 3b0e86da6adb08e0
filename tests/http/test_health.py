"""Health, readiness and metrics."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import tertulia
from tertulia import Usage
from tertulia.agents import ParrotAgent, Step
from tertulia.agents.base import Event, ModelUsage, Request
from tertulia.platforms.web import WebAdapter
from tertulia.records.listeners import Connection
from tests.http.served_gateway import served_gateway


def test_metrics_count_turns_tokens_and_queues(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as server:
        with server.client() as client:
            assert client.get("/readyz").json() == {"status": "ok", "accounts_with_problems": 0}
            client.post("/turns", json={"text": "hola"})
            client.post("/web/den/messages", json={"text": "hola"})
            metrics = client.get("/metrics").text
        assert 'tertulia_turns_total{outcome="answered",platform="api"} 1.0' in metrics
        assert 'tertulia_turn_seconds_count{platform="api"} 1.0' in metrics
        assert 'tertulia_tokens_total{kind="output",platform="api"}' in metrics
        assert 'tertulia_deliveries{state="dead"} 0.0' in metrics
        assert 'tertulia_inbox{state="waiting"}' in metrics
        with server.client("ana") as client:
            assert client.get("/metrics").status_code == 403


def test_account_in_trouble_is_counted_and_keeps_nobody_from_working(tmp_path: Path) -> None:
    where = tmp_path / "talk.db"
    with served_gateway(where, adapters=[WebAdapter()]) as server, server.client() as client:
        with tertulia.open(where) as store:
            for node in ("n1", "n2"):
                trouble = Connection(
                    platform="email", account="", node=node, listening=False, problem="Refused."
                )
                store.listeners.report(trouble)
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["accounts_with_problems"]) == (200, 1)
        assert "tertulia_accounts_with_problems 1.0" in client.get("/metrics").text


class PricedAgent(ParrotAgent):
    """An agent whose model calls have a price in the list, and no reported cost."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        yield ModelUsage(Usage(input=1_000, model="gpt-5-mini", provider="openai"))
        yield Step("hello", usage=Usage(output=1_000, model="gpt-5-mini", provider="openai"))


def test_metrics_and_answers_have_the_estimated_cost(tmp_path: Path) -> None:
    gateway = served_gateway(tmp_path / "talk.db", agent=PricedAgent())
    with gateway as server, server.client() as client:
        usage = client.post("/turns", json={"text": "hola"}).json()["usage"]
        sums = client.get("/usage", params={"by": "platform"}).json()
        metrics = client.get("/metrics").text
    line = next(at for at in metrics.splitlines() if at.startswith("tertulia_cost_usd_total{"))
    cost = float(line.split()[-1])
    assert cost > 0
    assert usage["cost_usd"] == pytest.approx(cost)
    assert usage["cost_status"] == "estimated"
    assert f"{cost:.6f}"[:6] in str(sums)
    assert "tertulia_unpriced_calls_total{" not in metrics


class UnpricedAgent(ParrotAgent):
    """An agent with one call of unknown cost, one that is free and one that a plan includes."""

    async def run(self, request: Request) -> AsyncGenerator[Event, None]:
        yield ModelUsage(Usage(1_000, model="nobody-knows"))
        yield ModelUsage(Usage(1_000, model="nobody-knows", cost_status="included"))
        yield Step("hello", usage=Usage(1_000, model="nobody-knows", cost_usd=0.0))


def test_calls_without_a_price_are_counted_apart(tmp_path: Path) -> None:
    gateway = served_gateway(tmp_path / "talk.db", agent=UnpricedAgent())
    with gateway as server, server.client() as client:
        client.post("/turns", json={"text": "hola"})
        metrics = client.get("/metrics").text
    assert 'tertulia_unpriced_calls_total{platform="api"} 1.0' in metrics
    assert 'tertulia_cost_usd_total{platform="api"} 0.0' in metrics


def test_full_disk_is_not_ready(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("a file system can be mounted by root only")
    ballast = tmp_path / "ballast"
    try:
        with served_gateway(tmp_path / "talk.db") as server, server.client() as client:
            assert client.get("/readyz").status_code == 200
            with pytest.raises(OSError, match="No space"):
                ballast.write_bytes(bytes(9_000_000))
            full = client.get("/readyz")
            assert (full.status_code, full.json()["error"]["code"]) == (503, "store_full")
            assert client.get("/healthz").status_code == 200
            ballast.unlink()
            assert client.get("/readyz").status_code == 200
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
