"""Deliveries are listed, and settled by hand."""

from __future__ import annotations

from pathlib import Path

from tests.http.served_gateway import served_gateway


def test_unknown_delivery_is_settled_by_hand(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            store.outbox.put("hola", "telegram:42", delivery="d1")
            (claimed,) = store.outbox.claim()
            store.outbox.failed(claimed, "nobody knows", outcome="unknown")
        with server.client() as client:
            (delivery,) = client.get("/deliveries", params={"state": "unknown"}).json()["items"]
            path = f"/deliveries/{delivery['id']}/settle"
            assert client.post(path, json={"outcome": "retry"}).json()["state"] == "waiting"
            assert client.post(path, json={"outcome": "sent"}).status_code == 400
            assert client.post("/deliveries/99/settle", json={"outcome": "sent"}).status_code == 404
