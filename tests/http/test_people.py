"""People are listed, approved by a pairing code, and given roles."""

from __future__ import annotations

from pathlib import Path

from tertulia import Source
from tests.http.served_gateway import served_gateway


def test_stranger_is_approved_by_code(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            code = store.people.request_pairing(Source("telegram", "9", user_id="9"))
        with server.client() as client:
            (waiting,) = client.get("/pairings").json()["items"]
            assert waiting["person"] == "telegram:9"
            person = client.post("/pairings/approve", json={"code": code}).json()
            assert person["role"] == "member"
            raised = client.put("/people/telegram:9/role", json={"role": "owner"}).json()
            assert raised["role"] == "owner"
            assert "telegram:9" in client.get("/people").text
            events = client.get("/people/events", params={"person": "telegram:9"}).json()["items"]
            assert [(event["kind"], event["by"]) for event in events] == [
                ("role", "token:root"),
                ("approved", "token:root"),
            ]
        with server.client("ana") as client:
            assert client.get("/people/events").status_code == 403


def test_stranger_is_refused(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            store.people.request_pairing(Source("telegram", "9", user_id="9"))
        with server.client() as client:
            body = {"person": "telegram:9"}
            assert client.post("/pairings/refuse", json=body).status_code == 204
            assert client.get("/pairings").json()["items"] == []
            assert client.post("/pairings/refuse", json={"person": "x:1"}).status_code == 404


def test_stranger_is_approved_by_identity(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            store.people.request_pairing(Source("telegram", "9", user_id="9", user_name="Bo"))
        with server.client() as client:
            (waiting,) = client.get("/pairings").json()["items"]
            assert waiting["name"] == "Bo"
            for body in ({}, {"person": "telegram:9", "code": "ABCDEFGH"}):
                assert client.post("/pairings/approve", json=body).status_code == 400
            body = {"person": waiting["person"]}
            assert client.post("/pairings/approve", json=body).json()["role"] == "member"
            assert client.post("/pairings/approve", json=body).status_code == 404


def test_people_are_listed_by_identity(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        with server.store() as store:
            for number in range(5):
                store.people.remember(
                    Source("telegram", f"{number}", user_id=f"a b,{number}"), role="member"
                )
            identities = [person.id for person in store.people.find()]
        with server.client("root") as client:
            ids = " ".join([identities[3], "telegram:unknown", identities[1]])
            people = client.get("/people", params={"ids": ids}).json()["items"]
            assert [person["id"] for person in people] == [identities[1], identities[3]]
        with server.client("ana") as client:
            assert client.get("/people", params={"ids": ids}).status_code == 403
