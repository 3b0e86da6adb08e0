"""Now: one operation says what needs a person, and nothing if all is well."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import tertulia
from tertulia import Source
from tests.http.served_gateway import eventually, served_gateway


def kinds(now: dict[str, Any]) -> list[str]:
    return [need["kind"] for need in now["needs"]]


def test_nothing_needs_anybody(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server, server.client() as client:
        client.post("/turns", json={"text": "hola"})
        now = client.get("/now").json()
        assert now["needs"] == []
        assert (now["calls"], now["answered"]) == (1, 0)
        assert now["recent"] is None
        later = client.get("/now", params={"since": now["at"], "look": now["since"]}).json()
        assert (later["calls"], later["recent"]["calls"]) == (0, 1)
        node = eventually(lambda: client.get("/nodes").json()["items"])[0]
        assert (node["is_fresh"], node["version"]) == (True, tertulia.__version__)
    with server.store() as store:
        assert store.nodes.find() == []  # it stopped in good order


def test_what_needs_a_person_comes_worst_first(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    with tertulia.open(path) as store:
        ana = Source("telegram", "42", user_id="42", user_name="Ana")
        store.people.request_pairing(ana)
        for outcome in ("dead", "unknown"):
            store.outbox.put("hola", "telegram:42")
            (delivery,) = store.outbox.claim()
            store.outbox.failed(delivery, "blocked", outcome=outcome)
        late = store.inbox.put(ana, "hello?")
        (item,) = store.inbox.claim()
        store.inbox.failed(item, "the model is gone", for_good=True)
    with served_gateway(path) as server:
        with server.client() as client:
            now = client.get("/now").json()
        assert kinds(now) == ["unknown", "dead", "dead", "pairing"]
        assert now["needs"][0]["problem"] == "blocked"
        assert now["needs"][2]["queue"] == "inbox"
        assert now["needs"][2]["id"] == late.id
        assert (now["needs"][3]["subject"], now["needs"][3]["name"]) == ("telegram:42", "Ana")
        assert (now["answered"], now["failed"]) == (0, 1)
        with server.client("ana") as client:
            assert client.get("/now").status_code == 403


def test_usage_by_day_and_model(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        for name in ("ana", "ana", "bob"):
            with server.client(name) as client:
                client.post("/turns", json={"text": "hola"})
        with server.client("root") as root, server.client("ana") as ana:
            (day,) = root.get("/usage/days").json()["items"]
            assert (day["calls"], day["group"]) == (3, "parrot")
            people = root.get("/usage/days", params={"by": "person"}).json()["items"]
            assert {item["group"]: item["calls"] for item in people} == {
                "api:~ana:ana": 2, "api:~bob:bob": 1,
            }  # fmt: skip
            (own,) = ana.get("/usage/days").json()["items"]
            assert own["calls"] == 2
            later = (server.store().now() + timedelta(days=1)).isoformat()
            assert ana.get("/usage/days", params={"since": later}).json()["items"] == []
