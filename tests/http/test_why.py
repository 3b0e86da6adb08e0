"""Why a session is as it is: events with who did them, its policy, the sessions beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.served_gateway import ServedGateway, served_gateway


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path_factory.mktemp("why") / "talk.db") as gateway:
        yield gateway


def test_why_has_events_policy_and_neighbours(server: ServedGateway) -> None:
    with server.client("ana") as client:
        body = {"text": "hola", "conversation": "anas"}
        first = client.post("/turns", json=body).json()["session_id"]
        client.patch(f"/sessions/{first}", json={"title": "Mine"})
        second = client.post(f"/sessions/{first}/reset").json()["id"]
        why = client.get(f"/sessions/{first}/why").json()
        later = client.get(f"/sessions/{second}/why").json()
        events = client.get(f"/sessions/{first}/events", params={"limit": 1}).json()
        older = client.get(f"/sessions/{first}/events", params={"cursor": events["next"]}).json()
    kinds = [(event["kind"], event["by"]) for event in why["events"]["items"]]
    assert kinds == [("ended", "token:ana"), ("renamed", "token:ana"), ("began", None)]
    assert why["session"]["id"] == first
    assert [session["id"] for session in why["later"]] == [second]
    assert later["earlier"]["id"] == first
    assert later["policy"]["setting"]
    assert [event["kind"] for event in events["items"] + older["items"]] == [
        kind for kind, _ in kinds
    ]


def test_policies_and_what_they_would_do(server: ServedGateway) -> None:
    with server.client("ana") as client:
        rules = {
            rule["setting"]: rule["policy"] for rule in client.get("/policies").json()["items"]
        }
        assert rules["platforms.local"]["mode"] == "none"
        query = {"platform": "local", "updated_at": "2026-03-01T12:00:00Z"}
        assert client.get("/policies/forecast", params=query).json()["ends_at"] is None
        query = {"platform": "x", "updated_at": "2026-03-01T12:00:00", "zone": "Europe/Madrid"}
        forecast = client.get("/policies/forecast", params=query).json()
        assert forecast["zone"] == "Europe/Madrid"
        assert forecast["setting"] == "default"
        query["zone"] = "Nowhere/Land"
        assert client.get("/policies/forecast", params=query).status_code == 400
