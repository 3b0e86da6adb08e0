"""The newest turn of a session is looked at, stopped and repeated, by whom it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

import tertulia
from tertulia import Source
from tertulia.platforms.web import WebAdapter
from tests.http.agents import HeldAgent
from tests.http.served_gateway import ServedGateway, eventually, served_gateway


def say(client: httpx2.Client, server: ServedGateway, text: str) -> str:
    """Post a message to the caller's chat, wait until its turn began; return the session."""
    assert client.post("/web/c/messages", json={"text": text}).status_code == 202
    with server.store() as store:
        eventually(lambda: store.sessions.find(state="current").items)
        session = store.sessions.find(state="current").items[0].id
        eventually(lambda: store.sessions.newest_turn(session))
    return session


def turn_of(client: httpx2.Client, session: str) -> dict[str, Any]:
    turn: dict[str, Any] = client.get(f"/sessions/{session}/turn").json()["turn"]
    return turn


def test_a_running_turn_is_shown_stopped_and_repeated(tmp_path: Path) -> None:
    agent = HeldAgent()
    with (
        served_gateway(tmp_path / "talk.db", agent=agent, adapters=[WebAdapter()]) as server,
        server.client("ana") as ana,
        server.client("bob") as bob,
        server.client() as root,
    ):
        session = say(ana, server, "hello")
        assert agent.began.acquire(timeout=60)
        turn = turn_of(ana, session)
        assert (turn["state"], turn["is_running"]) == ("open", True)
        assert turn["node"] == server.gateway.pipeline.node
        assert turn["lease_until"] is not None
        for action in ("stop", "retry"):
            assert bob.post(f"/sessions/{session}/{action}").status_code == 404
        assert root.post(f"/sessions/{session}/retry").status_code == 400
        assert root.post(f"/sessions/{session}/stop").status_code == 200
        assert agent.ended.acquire(timeout=60)
        assert agent.ends == ["stopped"]
        eventually(lambda: not turn_of(ana, session)["is_running"])
        assert ana.post(f"/sessions/{session}/stop").status_code == 400
        agent.may_go_on.set()
        assert ana.post(f"/sessions/{session}/retry").status_code == 200
        assert agent.ended.acquire(timeout=60)
        eventually(lambda: turn_of(ana, session)["state"] == "answered")
        events = root.get(f"/sessions/{session}/events").json()["items"]
        asked = [(each["kind"], each["by"]) for each in events if each["kind"] in ("stop", "retry")]
        assert asked == [("retry", "token:ana"), ("stop", "token:root")]
        with server.store() as store:
            entries = store.transcript(session).entries()
        assert [entry.role for entry in entries] == ["user", "assistant"]
        assert entries[0].body["content"] == "hello"
        root.post(f"/sessions/{session}/end")
        assert root.post(f"/sessions/{session}/retry").status_code == 400


def test_a_turn_of_a_waiting_caller_is_stopped_and_leaves_no_reply(tmp_path: Path) -> None:
    agent = HeldAgent()
    with (
        served_gateway(tmp_path / "talk.db", agent=agent) as server,
        server.client("ana") as client,
        server.client() as root,
    ):
        with client.stream("POST", "/turns", json={"text": "hello", "stream": True}) as reply:
            assert agent.began.acquire(timeout=60)
            with server.store() as store:
                session = store.sessions.find().items[0].id
            assert turn_of(root, session)["node"] is None
            assert root.post(f"/sessions/{session}/stop").status_code == 200
            reply.read()
        assert agent.ends == ["stopped"]
        assert root.post(f"/sessions/{session}/retry").status_code == 400
        with server.store() as store:
            eventually(lambda: not store.inbox.find(state="waiting").items)
            assert store.outbox.find().items == ()


def test_a_message_that_was_given_up_is_answered_again(tmp_path: Path) -> None:
    source = Source("web", "c", account="ana", user_id="ana")
    with tertulia.open(tmp_path / "talk.db") as store:
        store.inbox.put(source, "hello", message_id="1")
        (item,) = store.inbox.claim(worker="lost")
        with pytest.raises(RuntimeError), store.turn(source, "hello", message_id="1") as turn:
            raise RuntimeError
        store.inbox.failed(item, "the model is gone", for_good=True)
    session = turn.session.id
    with (
        served_gateway(tmp_path / "talk.db", adapters=[WebAdapter()]) as server,
        server.client("ana") as client,
    ):
        shown = turn_of(client, session)
        assert (shown["state"], shown["is_dead"], shown["node"]) == ("interrupted", True, "lost")
        assert (shown["item"], shown["problem"]) == (item.id, "the model is gone")
        assert client.post(f"/sessions/{session}/retry").status_code == 200
        eventually(lambda: turn_of(client, session)["state"] == "answered")
        with server.store() as store:
            texts = [entry.body["content"] for entry in store.transcript(session).entries()]
        assert [text for text in texts if text == "hello"] == ["hello"]
