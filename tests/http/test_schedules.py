"""Schedules over HTTP: created, run and read; members see their own only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import ServedGateway, eventually, served_gateway


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as gateway:
        yield gateway


def test_schedule_is_created_run_and_removed(server: ServedGateway) -> None:
    with server.client("ana") as ana:
        body = {"when": "cron 0 9 * * MON", "task": "look at the mail", "zone": "Europe/Madrid"}
        schedule = ana.post("/schedules", json=body).json()
        assert (schedule["state"], schedule["target"], schedule["misfire"]) == (
            "active",
            "origin",
            "once",
        )
        assert "Europe/Madrid" in schedule["when"]
        url_path = f"/schedules/{schedule['id']}"
        assert ana.get("/schedules").json()["items"] == [schedule] == [ana.get(url_path).json()]

        assert ana.post(f"{url_path}/pause").json()["state"] == "paused"
        assert ana.post(f"{url_path}/resume").json()["state"] == "active"
        manual_run = ana.post(f"{url_path}/run").json()
        assert manual_run["is_manual"]

        def done() -> Any:
            runs = ana.get(f"{url_path}/runs").json()["items"]
            return [run for run in runs if run["state"] == "done"]

        (run,) = eventually(done)
        assert run["id"] == manual_run["id"]
        assert "look at the mail" in run["result"]
        assert run["problem"] is None  # on `api` the result is only read here
        assert ana.get(f"/sessions/{run['session_id']}").status_code == 200

        assert ana.delete(url_path).status_code == 204
        assert ana.get(url_path).status_code == 404


def test_result_is_delivered_to_the_page_of_the_schedule(server: ServedGateway) -> None:
    with server.client("ana") as ana, ana.stream("GET", "/web/den/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        body = {"when": "every 2h", "task": "water", "platform": "web", "conversation": "den"}
        schedule = ana.post("/schedules", json=body).json()
        ana.post(f"/schedules/{schedule['id']}/run")
        assert any("water" in line for line in lines if line.startswith("data:"))
        assert ana.get("/schedules", params={"platform": "web"}).json()["items"] == [schedule]


def test_schedules_of_others_are_not_visible(server: ServedGateway) -> None:
    with server.client("ana") as ana, server.client("bob") as bob, server.client("root") as root:
        schedule = ana.post("/schedules", json={"when": "every 2h", "task": "swordfish"}).json()
        url_path = f"/schedules/{schedule['id']}"
        for method, path in (
            ("GET", url_path), ("DELETE", url_path), ("POST", f"{url_path}/pause"),
            ("POST", f"{url_path}/resume"), ("POST", f"{url_path}/run"),
            ("GET", f"{url_path}/runs"),
        ):  # fmt: skip
            response = bob.request(method, path)
            assert response.status_code == 404
            assert "swordfish" not in response.text
        for platform in ("api", "web"):
            assert bob.get("/schedules", params={"platform": platform}).json()["items"] == []
        assert (
            root.get("/schedules").json()["items"]
            == [schedule]
            == ana.get("/schedules").json()["items"]
        )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"when": "whenever", "task": "x"}, 400),
        ({"when": "every 2h", "task": "x", "zone": "Mars/Base"}, 400),
        ({"when": "every 2h", "task": "x", "target": "local"}, 403),
        ({"when": "every 2h", "task": "x", "target": "web:den"}, 403),
        ({"when": "every 2h", "task": "x", "conversation": "a\nb"}, 400),
        ({"when": "every 2h", "task": ""}, 400),
    ],
)
def test_invalid_schedule_is_refused(
    server: ServedGateway, body: dict[str, str], status: int
) -> None:
    with server.client("ana") as ana:
        response = ana.post("/schedules", json=body)
        assert response.status_code == status
        assert response.json()["error"]["hint"]
        assert ana.get("/schedules").json()["items"] == []
        assert ana.get("/schedules/one").status_code == 400
