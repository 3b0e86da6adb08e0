"""Processes over HTTP: listed, read and killed; members see their own only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia import Source
from tests.http.served_gateway import ServedGateway, eventually, served_gateway


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path / "talk.db", programs=tmp_path / "programs") as gateway:
        yield gateway


def test_process_is_listed_read_and_killed(server: ServedGateway) -> None:
    registry = server.gateway.pipeline.processes
    assert registry is not None
    with server.client("ana") as ana, server.client("bob") as bob, server.client("root") as root:
        turn = ana.post("/turns", json={"text": "hello", "conversation": "den"}).json()
        session = ana.get(f"/sessions/{turn['session_id']}").json()
        origin = Source("api", "den", account="ana", user_id="ana")
        process = registry.spawn("echo swordfish; sleep 600", key=session["key"], origin=origin)
        path = f"/processes/{process.id}"
        try:
            eventually(lambda: "swordfish" in root.get(f"{path}/log").json()["text"])
            assert root.get(path).json()["state"] == "running"
            assert [item["id"] for item in root.get("/processes").json()["items"]] == [process.id]
            (own,) = ana.get(f"/sessions/{session['id']}/processes").json()["items"]
            assert own["command"] == "echo swordfish; sleep 600"
            assert bob.get(f"/sessions/{session['id']}/processes").status_code == 404
            assert ana.get("/processes").status_code == 403
        finally:
            ended = root.post(f"{path}/kill")
        assert ended.json()["state"] == "killed"
        assert root.post(f"{path}/kill").status_code == 400
        assert root.get("/processes/none").status_code == 404


def test_gateway_without_processes_refuses_kill(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server, server.client("root") as root:
        assert root.get("/processes").json() == {"items": []}
        response = root.post("/processes/p1/kill")
        assert response.status_code == 400
        assert "[processes]" in response.json()["error"]["hint"]
