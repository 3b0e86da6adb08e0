"""The way of one message is told to the owner."""

from __future__ import annotations

from pathlib import Path

from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import eventually, served_gateway


def test_message_of_a_page_is_traced_to_its_delivery(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as server:
        with server.client("ana") as ana:
            ana.post("/web/den/messages", json={"text": "hola"})
        with server.client() as client:
            (item,) = eventually(
                lambda: client.get("/inbox", params={"state": "done"}).json()["items"]
            )
            trace = client.get(f"/messages/{item['id']}").json()
            assert trace["message"]["text"] == "hola"
            assert trace["turn"]["state"] == "answered"
            assert len(trace["calls"]) == 1
            assert "hola" in trace["deliveries"][0]["body"]["text"]
            assert client.get("/messages/999").status_code == 404
        with server.client("ana") as ana:
            assert ana.get(f"/messages/{item['id']}").status_code == 403
