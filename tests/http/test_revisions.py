"""Changes of a transcript over HTTP: each can be taken back, and says who made it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.served_gateway import ServedGateway, served_gateway


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path_factory.mktemp("revisions") / "talk.db") as gateway:
        yield gateway


@pytest.fixture
def session_path(server: ServedGateway, request: pytest.FixtureRequest) -> str:
    """The path of a new session of Ana's with three turns."""
    with server.client("ana") as client:
        for text in ("one", "two", "three"):
            body = {"text": text, "conversation": request.node.name}
            session_id = client.post("/turns", json=body).json()["session_id"]
    return f"/sessions/{session_id}"


def said(page: Any) -> list[str]:
    return [item["body"]["content"] for item in page["items"] if item["role"] == "user"]


def test_undo_redo_and_restore(server: ServedGateway, session_path: str) -> None:
    with server.client("ana") as client:
        transcript = f"{session_path}/transcript"
        undone = client.post(f"{session_path}/undo", json={"turns": 2}).json()
        assert (undone["turns"], undone["before"]) == (2, 1)
        assert said(client.get(transcript).json()) == ["one"]
        assert client.post(f"{session_path}/redo").json()["revision"] == 1
        assert client.post(f"{session_path}/redo").status_code == 400
        assert said(client.get(transcript).json()) == ["one", "two", "three"]
        client.post(f"{session_path}/restore", json={"number": undone["revision"]})
        assert said(client.get(transcript).json()) == ["one"]
        assert client.post(f"{session_path}/restore", json={"number": 99}).status_code == 404
        newest = client.get(f"{session_path}/revisions", params={"limit": 1}).json()["items"][0]
        assert (newest["made_by"], newest["by"], newest["is_current"]) == (
            "restore", "token:ana", True,
        )  # fmt: skip


def test_edit_remove_and_compact(server: ServedGateway, session_path: str) -> None:
    with server.client("ana") as client:
        page = client.get(f"{session_path}/transcript").json()
        first = page["items"][0]["seq"]
        message = {"role": "user", "content": "uno"}
        edited = client.post(f"{session_path}/edit", json={"seq": first, "message": message})
        assert edited.json()["revision"] == page["revision"] + 1
        last = page["items"][-1]["seq"]
        assert client.post(f"{session_path}/remove", json={"seq": last}).status_code == 200
        assert client.post(f"{session_path}/remove", json={"seq": last}).status_code == 404
        assert said(client.get(f"{session_path}/transcript").json())[0] == "uno"
        summed_up = client.post(f"{session_path}/compact", json={"keep_turns": 1}).json()
        assert summed_up["messages"] == 4
        assert client.post(f"{session_path}/compact", json={"keep_turns": 1}).status_code == 400


def test_windows_of_a_transcript(server: ServedGateway, session_path: str) -> None:
    with server.client("ana") as client:

        def window(**query: int) -> Any:
            return client.get(f"{session_path}/transcript", params=query).json()

        whole = window()
        assert (whole["before"], whole["after"], whole["is_current"]) == (0, 0, True)
        seqs = [item["seq"] for item in whole["items"]]
        newest = window(newest=2)
        assert ([item["seq"] for item in newest["items"]], newest["before"]) == (seqs[-2:], 4)
        older = window(newest=2, before=seqs[-2])
        assert [item["seq"] for item in older["items"]] == seqs[2:4]
        assert (older["before"], older["after"]) == (2, 2)
        around = window(newest=3, around=seqs[2])
        assert [item["seq"] for item in around["items"]] == seqs[1:4]
        client.post(f"{session_path}/undo", json={})
        earlier = window(revision=1)
        assert (len(earlier["items"]), earlier["is_current"]) == (6, False)


def test_nothing_to_undo_is_said(server: ServedGateway, session_path: str) -> None:
    with server.client("ana") as client:
        assert client.post(f"{session_path}/undo", json={"turns": 9}).json()["turns"] == 3
        response = client.post(f"{session_path}/undo", json={})
    assert response.status_code == 400
    assert "nothing to undo" in response.text
