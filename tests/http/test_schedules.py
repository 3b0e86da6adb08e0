"""Schedules and background programs over HTTP: made, run, looked at, and each person's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tertulia import Source
from tertulia.platforms.web import WebAdapter
from tests.http.scene import PATIENCE, ServedGateway, served_gateway


@pytest.fixture
def here(tmp_path: Path) -> Iterator[ServedGateway]:
    with served_gateway(
        tmp_path / "talk.db", adapters=[WebAdapter()], programs=tmp_path / "programs"
    ) as found:
        yield found


def eventually(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_a_task_is_planned_run_and_read(here: ServedGateway) -> None:
    with here.client("ana") as ana:
        asked = {"when": "cron 0 9 * * MON", "task": "look at the mail", "zone": "Europe/Madrid"}
        made = ana.post("/schedules", json=asked).json()
        assert (made["state"], made["target"], made["misfire"]) == ("active", "origin", "once")
        assert "Europe/Madrid" in made["when"]
        place = f"/schedules/{made['id']}"
        assert ana.get("/schedules").json()["items"] == [made] == [ana.get(place).json()]

        assert ana.post(f"{place}/pause").json()["state"] == "paused"
        assert ana.post(f"{place}/resume").json()["state"] == "active"
        ran = ana.post(f"{place}/run").json()
        assert ran["is_manual"]

        def done() -> Any:
            runs = ana.get(f"{place}/runs").json()["items"]
            return [one for one in runs if one["state"] == "done"]

        (run,) = eventually(done)
        assert run["id"] == ran["id"]
        assert "look at the mail" in run["result"]
        assert run["problem"] is None  # nobody waits on `api`: it is read here
        assert ana.get(f"/sessions/{run['session_id']}").status_code == 200

        assert ana.delete(place).status_code == 204
        assert ana.get(place).status_code == 404


def test_a_result_comes_to_the_page_it_was_planned_for(here: ServedGateway) -> None:
    with here.client("ana") as ana, ana.stream("GET", "/web/den/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        asked = {"when": "every 2h", "task": "water", "platform": "web", "conversation": "den"}
        made = ana.post("/schedules", json=asked).json()
        ana.post(f"/schedules/{made['id']}/run")
        assert any("water" in line for line in lines if line.startswith("data:"))
        assert ana.get("/schedules", params={"platform": "web"}).json()["items"] == [made]


def test_schedules_of_others_are_not_there(here: ServedGateway) -> None:
    with here.client("ana") as ana, here.client("bob") as bob, here.client("root") as root:
        made = ana.post("/schedules", json={"when": "every 2h", "task": "swordfish"}).json()
        place = f"/schedules/{made['id']}"
        for method, path in (
            ("GET", place), ("DELETE", place), ("POST", f"{place}/pause"),
            ("POST", f"{place}/resume"), ("POST", f"{place}/run"), ("GET", f"{place}/runs"),
        ):  # fmt: skip
            found = bob.request(method, path)
            assert found.status_code == 404
            assert "swordfish" not in found.text
        for platform in ("api", "web"):
            assert bob.get("/schedules", params={"platform": platform}).json()["items"] == []
        assert (
            root.get("/schedules").json()["items"]
            == [made]
            == ana.get("/schedules").json()["items"]
        )


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"when": "whenever", "task": "x"}, 400),
        ({"when": "every 2h", "task": "x", "zone": "Mars/Base"}, 400),
        ({"when": "every 2h", "task": "x", "target": "local"}, 403),
        ({"when": "every 2h", "task": "x", "target": "web:den"}, 403),
        ({"when": "every 2h", "task": "x", "conversation": "a\nb"}, 400),
        ({"when": "every 2h", "task": ""}, 400),
    ],
)
def test_what_cannot_be_planned_is_told(
    here: ServedGateway, asked: dict[str, str], status: int
) -> None:
    with here.client("ana") as ana:
        found = ana.post("/schedules", json=asked)
        assert found.status_code == status
        assert found.json()["error"]["hint"]
        assert ana.get("/schedules").json()["items"] == []
        assert ana.get("/schedules/one").status_code == 400


def test_programs_are_seen_read_and_ended(here: ServedGateway) -> None:
    registry = here.gateway.pipeline.processes
    assert registry is not None
    with here.client("ana") as ana, here.client("bob") as bob, here.client("root") as root:
        said = ana.post("/turns", json={"text": "hello", "conversation": "den"}).json()
        session = ana.get(f"/sessions/{said['session_id']}").json()
        origin = Source("api", "den", account="ana", user_id="ana")
        begun = registry.spawn("echo swordfish; sleep 600", key=session["key"], origin=origin)
        place = f"/processes/{begun.id}"
        try:
            eventually(lambda: "swordfish" in root.get(f"{place}/log").json()["text"])
            assert root.get(place).json()["state"] == "running"
            assert [one["id"] for one in root.get("/processes").json()["items"]] == [begun.id]
            (own,) = ana.get(f"/sessions/{session['id']}/processes").json()["items"]
            assert own["command"] == "echo swordfish; sleep 600"
            assert bob.get(f"/sessions/{session['id']}/processes").status_code == 404
            assert ana.get("/processes").status_code == 403
        finally:
            ended = root.post(f"{place}/kill")
        assert ended.json()["state"] == "killed"
        assert root.post(f"{place}/kill").status_code == 400
        assert root.get("/processes/none").status_code == 404


def test_a_gateway_without_programs_says_so(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as here, here.client("root") as root:
        assert root.get("/processes").json() == {"items": []}
        found = root.post("/processes/p1/kill")
        assert found.status_code == 400
        assert "[processes]" in found.json()["error"]["hint"]
