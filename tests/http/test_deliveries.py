"""Deliveries are listed, and settled by hand."""

from __future__ import annotations

from pathlib import Path

from tertulia.platforms.web import WebAdapter
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


def test_delivery_for_a_web_chat_is_for_the_account_of_the_caller(tmp_path: Path) -> None:
    with (
        served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as server,
        server.client() as client,
    ):
        body = {"text": "It is done.", "to": "web:console"}
        assert client.post("/deliveries", json=body).json()["account"] == "root"
        (delivery,) = client.get("/web/console/deliveries").json()["items"]
        assert delivery["body"]["text"] == "It is done."
        other = client.post("/deliveries", json={**body, "account": "ana"}).json()
        assert (other["account"], other["chat_id"]) == ("ana", "console")
        telegram = client.post("/deliveries", json={"text": "x", "to": "telegram:42"}).json()
        assert (telegram["account"], telegram["chat_id"]) == ("", "42")
        guest = client.post("/deliveries", json={**body, "account": "eve/0123"}).json()
        assert guest["account"] == "eve/0123"
        for account in ("nobody", "eve", "ana/0123"):
            refused = client.post("/deliveries", json={**body, "account": account})
            assert refused.json()["error"]["param"] == "account", refused.text
        assert client.post("/deliveries", json={**body, "account": ""}).status_code == 400
        for target in ("telegram", "origin"):
            wrong = {"text": "x", "to": target, "account": "second"}
            assert client.post("/deliveries", json=wrong).json()["error"]["param"] == "to"


def test_dead_deliveries_are_reviewed_and_settled_together(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            for number in range(3):
                store.outbox.put("hola", f"telegram:{number}")
            for delivery in store.outbox.claim():
                store.outbox.failed(delivery, "blocked", outcome="dead")
        with server.client() as client:
            overview = client.get("/deliveries/overview").json()
            (group,) = overview["groups"]
            assert (group["problem"], group["count"]) == ("blocked", 3)
            query = {"state": "dead", "platform": "telegram", "problem": "blocked"}
            assert client.get("/deliveries", params=query).status_code == 400
            page = client.get("/deliveries", params={**query, "order": "newest"}).json()
            newest, *_, oldest = [item["id"] for item in page["items"]]
            assert newest > oldest
            body = {"outcome": "sent", "ids": [newest, 99]}
            report = client.post("/deliveries/settle", json=body).json()
            assert report == {"settled": 1, "changed": [99], "is_more": False}
            assert client.get(f"/deliveries/{newest}").json()["state"] == "sent"
            body = {"outcome": "dead", "platform": "telegram", "problem": "blocked"}
            assert client.post("/deliveries/settle", json=body).json()["settled"] == 2
            assert "token:root" in client.get(f"/deliveries/{oldest}").json()["problem"]
        with server.client("ana") as client:
            assert client.get("/deliveries/overview").status_code == 403
