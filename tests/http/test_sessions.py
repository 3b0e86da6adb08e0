"""Session operations: the owner changes any session, a member reads their own only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tertulia.platforms.web import WebAdapter
from tests.http.served_gateway import ServedGateway, served_gateway

SECRET_WORD = "swordfish"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    path = tmp_path_factory.mktemp("sessions") / "talk.db"
    with served_gateway(path, adapters=[WebAdapter()], stream_seconds=0.5) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def ana_session(server: ServedGateway) -> str:
    """A session of Ana's that contains the secret word."""
    with server.client("ana") as client:
        body = {"text": f"the password is {SECRET_WORD}", "conversation": "anas"}
        session_id: str = client.post("/turns", json=body).json()["session_id"]
    return session_id


@pytest.mark.parametrize("key", ["key", "person"])
@pytest.mark.parametrize("path", ["/sessions", "/search"])
def test_member_cannot_filter_by_key_or_person(
    server: ServedGateway, ana_session: str, path: str, key: str
) -> None:
    value = {"key": "agent:main:api:ana:dm:anas", "person": "api:~ana:ana"}[key]
    with server.client("bob") as client:
        response = client.get(path, params={"q": SECRET_WORD, key: value})
    assert response.status_code == 403
    assert SECRET_WORD not in response.text


def test_member_reads_own_sessions(server: ServedGateway, ana_session: str) -> None:
    with server.client("ana") as client:
        listed = client.get("/sessions").json()["items"]
        assert [item["id"] for item in listed] == [ana_session]
        assert client.get("/search", params={"q": SECRET_WORD}).json()["items"]
        assert SECRET_WORD in client.get(f"/sessions/{ana_session}/history").text
        assert "began" in client.get(f"/sessions/{ana_session}/explain").json()["text"].lower()
        sums = client.get("/usage", params={"by": "person"}).json()["sums"]
        assert list(sums) == ["api:~ana:ana"]
        assert client.get("/usage").status_code == 403


def test_owner_changes_session(server: ServedGateway) -> None:
    with server.client("root") as root:
        body = {"text": "hola", "conversation": "roots"}
        first = root.post("/turns", json=body).json()["session_id"]
        at = f"/sessions/{first}"
        assert root.patch(at, json={"title": "Mine"}).json()["title"] == "Mine"
        fork = root.post(f"{at}/fork", json={"at": 1}).json()
        assert fork["parent_id"] == first
        assert root.get(at).json()["end_reason"] == "fork"
        assert root.post(f"{at}/resume").json()["ended_at"] is None
        assert root.post(f"{at}/end", json={"reason": "done"}).json()["end_reason"] == "done"
        fresh = root.post(f"{at}/reset").json()
        assert fresh["key"] == fork["key"]
        assert root.delete(at).status_code == 204
        assert root.get(at).status_code == 404
        page = root.get("/sessions", params={"limit": 1, "key": fork["key"]}).json()
        rest = root.get(
            "/sessions", params={"limit": 1, "key": fork["key"], "cursor": page["next"]}
        ).json()
        assert page["items"][0]["id"] != rest["items"][0]["id"]


def test_account_of_a_history(server: ServedGateway, ana_session: str) -> None:
    with server.client("ana") as client:
        path = f"/sessions/{ana_session}"
        account = client.get(f"{path}/account", params={"max_messages": 1}).json()
        history = client.get(f"{path}/history", params={"max_messages": 1}).json()
        assert account["items"] == history["items"]
        fates = [row["fate"]["fate"] for row in account["rows"]]
        assert len(fates) >= 2
        assert set(fates) <= {"shown", "cut"}
        assert account["context_prompt"]
        first = account["rows"][0]["entry"]["seq"]
        then = client.get(f"{path}/account", params={"upto": first}).json()
        assert [row["entry"]["seq"] for row in then["rows"]] == [first]
        assert client.get(f"{path}/account", params={"upto": 999}).status_code == 404
