"""Health, readiness and metrics."""

from __future__ import annotations

from pathlib import Path

from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import served_gateway


def test_metrics_count_turns_tokens_and_queues(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as server:
        with server.client() as client:
            assert client.get("/readyz").json() == {"status": "ok"}
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
