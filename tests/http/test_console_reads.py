"""What the console shows on its pages, programs read over HTTP, on both databases."""

from __future__ import annotations

from tertulia import Source, Usage
from tests.http.served_gateway import served_gateway

ANA = Source("telegram", "42", user_id="42", user_name="Ana")
BO = Source("discord", "7", user_id="7", user_name="Bo")


def test_a_person_has_a_time_zone_and_was_seen(where: str) -> None:
    with served_gateway(where) as server, server.client() as client:
        with server.store() as store:
            with store.turn(ANA, "hello", message_id="1") as turn:
                turn.add_assistant("hi")
            store.people.remember(BO, role="guest")
            active_at = store.sessions.require(turn.session.id).updated_at
        by_id = {person["id"]: person for person in client.get("/people").json()["items"]}
        assert by_id["telegram:42"]["seen_at"] == active_at.isoformat().replace("+00:00", "Z")
        assert by_id["discord:7"]["seen_at"] is None
        address = "/people/telegram:42/zone"
        person = client.put(address, json={"zone": "Asia/Tokyo"}).json()
        assert (person["zone"], person["seen_at"]) == (
            "Asia/Tokyo",
            by_id["telegram:42"]["seen_at"],
        )
        assert client.put(address, json={"zone": None}).json()["zone"] is None
        events = client.get("/people/events").json()["items"]
        assert [(event["kind"], event["by"], event["detail"]) for event in events] == [
            ("zone", "token:root", {"zone": None, "before": "Asia/Tokyo"}),
            ("zone", "token:root", {"zone": "Asia/Tokyo", "before": None}),
        ]
        assert client.put(address, json={"zone": "Mars/Olympus"}).status_code == 400
        unknown = client.put("/people/telegram:1/zone", json={"zone": "Asia/Tokyo"})
        assert unknown.status_code == 404
        with server.client("ana") as member:
            assert member.put(address, json={"zone": None}).status_code == 403


def test_sessions_are_listed_by_id(where: str) -> None:
    with served_gateway(where) as server:
        with server.store() as store:
            ids = [store.sessions.open(source).id for source in (ANA, BO)]
        with server.client() as client:
            query = {"ids": " ".join([*ids, "unknown"]), "words": "true"}
            sessions = client.get("/sessions", params=query).json()
            assert {each["id"] for each in sessions["items"]} == set(ids)
            assert sessions["next"] is None
        with server.client("ana") as client:
            assert client.get("/sessions", params={"ids": ids[0]}).status_code == 403


def test_what_waits_for_a_person_is_counted(where: str) -> None:
    with served_gateway(where, adapters=()) as server:
        with server.client() as client:
            assert set(client.get("/now/counts").json().values()) == {0}
            with server.store() as store:
                for outcome in ("dead", "unknown", "dead"):
                    store.outbox.put("hola", "telegram:42")
                    (delivery,) = store.outbox.claim(platforms=["telegram"])
                    store.outbox.failed(delivery, "blocked", outcome=outcome)
                store.people.request_pairing(BO)
                counts = store.queues.count_problems(limit=1)
                assert counts.undelivered == 1  # no more are counted
            assert client.get("/now/counts").json() == {
                "unknown": 1,
                "undelivered": 2,
                "unanswered": 0,
                "pairings": 1,
            }
        with server.client("ana") as client:
            assert client.get("/now/counts").status_code == 403


def test_a_report_has_all_sums_of_a_period(where: str) -> None:
    with served_gateway(where) as server:
        with server.store() as store:
            session = store.sessions.open(ANA)
            store.usage.add(session.id, Usage(input=10, output=5, model="m", cost_usd=0.5))
        with server.client() as client:
            query = {"by": "model person platform session", "by_day": "model"}
            report = client.get("/usage/report", params=query).json()
            names = {by: list(sums) for by, sums in report["sums"].items()}
            assert names == {
                "model": ["m"],
                "person": ["telegram:42"],
                "platform": ["telegram"],
                "session": [session.id],
            }
            assert [(day["group"], day["calls"]) for day in report["days"]] == [("m", 1)]
            assert client.get("/usage/report", params={"by": "colour"}).status_code == 400
        with server.client("ana") as client:
            client.post("/turns", json={"text": "hola", "conversation": "c"})
            report = client.get("/usage/report", params={"by_day": "model"}).json()
            assert list(report["sums"]["person"]) == ["api:~ana:ana"]
            assert [day["calls"] for day in report["days"]] == [1]
            assert client.get("/usage/report", params={"by": "model"}).status_code == 403


def test_a_transcript_says_whether_something_can_be_redone(where: str) -> None:
    with served_gateway(where) as server, server.client() as client:
        with server.store() as store, store.turn(ANA, "hello", message_id="1") as turn:
            turn.add_assistant("hi")
        address = f"/sessions/{turn.session.id}"

        def can_redo() -> bool:
            return bool(client.get(f"{address}/transcript").json()["can_redo"])

        assert not can_redo()
        client.post(f"{address}/undo", json={})
        assert can_redo()
        assert client.post(f"{address}/redo").status_code == 200
        assert not can_redo()
        client.post(f"{address}/undo", json={})
        with server.store() as store, store.turn(ANA, "again", message_id="2") as turn:
            turn.add_assistant("hi")
        assert not can_redo()
        assert client.post(f"{address}/redo").status_code == 400
