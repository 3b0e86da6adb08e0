"""Inbox items are listed for the owner."""

from __future__ import annotations

from pathlib import Path

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
