"""Inbox items are listed for the owner."""

from __future__ import annotations

from pathlib import Path

import tertulia
from tertulia import Source
from tests.http.served_gateway import served_gateway


def test_items_are_listed_by_state_and_key(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            # Nothing claims a message of a platform that is due only in an hour.
            item = store.inbox.put(
                Source("telegram", "42", user_id="42"), "hola", gather_seconds=3600
            )
        with server.client() as client:
            (listed,) = client.get("/inbox", params={"state": "waiting"}).json()["items"]
            assert (listed["text"], listed["key"]) == ("hola", item.key)
            assert client.get("/inbox", params={"key": item.key}).json()["items"] == [listed]
            assert client.get("/inbox", params={"state": "dead"}).json()["items"] == []
            assert client.get("/inbox", params={"key": "agent:main:x"}).json()["items"] == []
        with server.client("ana") as client:
            assert client.get("/inbox").status_code == 403


def test_dead_messages_are_settled_without_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    sources = [Source("telegram", user, user_id=user) for user in ("42", "43")]
    with tertulia.open(path) as store:
        numbers = [store.inbox.put(source, "hola").id for source in sources]
        for item in store.inbox.claim():
            store.inbox.failed(item, "the model is gone", for_good=True)
    with served_gateway(path) as server, server.client() as client:
        query = {"state": "dead", "order": "newest", "problem": "the model is gone"}
        page = client.get("/inbox", params=query).json()
        assert [item["id"] for item in page["items"]] == numbers[::-1]
        settled = client.post(f"/inbox/{numbers[0]}/settle", json={"outcome": "done"}).json()
        assert (settled["state"], "token:root" in settled["problem"]) == ("done", True)
        report = client.post("/inbox/settle", json={"outcome": "done"}).json()
        assert (report["settled"], report["changed"]) == (1, [])
        again = client.post(f"/inbox/{numbers[0]}/settle", json={"outcome": "retry"})
        assert again.status_code == 400
