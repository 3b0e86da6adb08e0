"""A gateway that is killed with -9: whatever it had accepted is answered once after the restart."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import tertulia
from tertulia.records.queues.outbox import Delivery
from tests.crash.gateway_process import PATIENCE, SETTINGS, STEPS, lines
from tests.legality.validators import faults

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)

_ROOT = Path(__file__).parents[2]


def begin(where: str, folder: Path, step: str, plan: dict[str, list[str]]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.gateway_process", where, str(folder), step]
    return subprocess.Popen(
        [*command, json.dumps(plan)], cwd=_ROOT, stderr=subprocess.PIPE, text=True
    )


def end(node: subprocess.Popen[str]) -> int:
    _, told = node.communicate(timeout=PATIENCE)
    assert node.returncode in (0, -9), told
    return node.returncode


def check(where: str) -> tertulia.Store:
    store = tertulia.open(where, settings=SETTINGS)
    assert store.check() == []
    for session in store.sessions.find(limit=1000).items:
        history = store.transcript(session.id).history()
        assert not faults("openai", history), history
    return store


@pytest.mark.parametrize("step", STEPS)
def test_message_is_answered_once_after_a_kill(where: str, tmp_path: Path, step: str) -> None:
    plan = {"42": ["use a tool"]}
    assert end(begin(where, tmp_path, step, plan)) == -9
    assert end(begin(where, tmp_path, "none", plan)) == 0
    delivered = lines(tmp_path / "delivered")
    with check(where) as store:
        (delivery,) = store.outbox.find().items
        (item,) = store.inbox.find().items
        (session,) = store.sessions.find().items
        told = store.transcript(session.id).load()
    assert item.state == "done"
    assert [m["content"] for m in told if m["role"] == "user"] == ["use a tool"]
    assert told[-1]["content"] == "re use a tool"
    # What a platform may or may not have got is told to be unknown, and is not sent again.
    is_unknown = delivery.state == "unknown"
    if step == "answered" and is_unknown:  # it was on its way when the agent came to that
        assert delivered in ([], [["42", "re use a tool"]])
    else:
        assert is_unknown == (step in ("sending", "sent"))
        assert delivery.state in ("unknown", "sent")
        assert delivered == ([] if step == "sending" else [["42", "re use a tool"]])
    if step in ("result", "answered", "sending", "sent", "called"):
        results = [m for m in told if m["role"] == "tool"]
        assert results, "what a tool did is known"
    if step == "called":
        assert told[2].get("interrupted") is True


@pytest.mark.parametrize(
    ("step", "command"), [("claimed", "/new"), ("sending", "/new"), ("sent", "/undo"),
                          ("claimed", "/undo"), ("claimed", "/fork")],
)  # fmt: skip
def test_command_is_not_repeated_after_a_kill(
    where: str, tmp_path: Path, step: str, command: str
) -> None:
    first = {"42": ["one", "two", "three"]}
    assert end(begin(where, tmp_path, "none", first)) == 0
    before = len(lines(tmp_path / "delivered"))
    plan = {"42": [*first["42"], command]}
    assert end(begin(where, tmp_path, step, plan)) == -9
    assert end(begin(where, tmp_path, "none", plan)) == 0
    said = [text for _, text in lines(tmp_path / "delivered")[before:]]
    with check(where) as store:
        sessions = store.sessions.find().items
        current = [session for session in sessions if session.ended_at is None]
        count = store.transcript(current[0].id).count()
        states = Counter(delivery.state for delivery in store.outbox.find().items)
    if step == "claimed":
        # It had not run; the person is told that it was cut off, and nothing has happened.
        assert len(said) == 1
        assert f"{command} was interrupted" in said[0]
        assert (len(sessions), count) == (1, 6)
    else:
        assert states["unknown"] == 1
        assert (len(sessions), count) == ((2, 0) if command == "/new" else (1, 4))


def _under_load(
    where: str, folder: Path, *, chats: int, messages: int, kills: int, seed: int
) -> None:
    chance = random.Random(seed)
    plan = {
        f"{chat}": [
            f"{'tool ' if chance.random() < 0.3 else ''}{chat}-{number}"
            for number in range(messages)
        ]
        for chat in range(chats)
    }
    killed = 0
    while killed < kills:
        node = begin(where, folder, "none", plan)
        before = len(lines(folder / "accepted"))
        deadline = time.monotonic() + PATIENCE
        wanted = before + chance.randint(1, max(2, chats * messages // (kills + 2)))
        while node.poll() is None and len(lines(folder / "accepted")) < wanted:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 0.3))
        node.kill()
        killed += node.wait() == -9
        node.communicate()
        if node.returncode == 0:
            break
    assert killed, "it was done before it could be killed"
    assert end(begin(where, folder, "none", plan)) == 0

    delivered = Counter(text for _, text in lines(folder / "delivered"))
    wanted_texts = {f"re {text}" for texts in plan.values() for text in texts}
    with check(where) as store:
        deliveries: list[Delivery] = []
        cursor = None
        while True:
            page = store.outbox.find(limit=1000, cursor=cursor)
            deliveries += page.items
            cursor = page.next
            if cursor is None:
                break
        unknown = {one.body["text"] for one in deliveries if one.state == "unknown"}
        assert {one.state for one in deliveries} <= {"sent", "unknown"}
        assert Counter(one.body["text"] for one in deliveries) == Counter(wanted_texts)
        for session in store.sessions.find(limit=1000).items:
            chat = session.key.rsplit(":", maxsplit=1)[-1]
            told = store.transcript(session.id).load()
            assert [m["content"] for m in told if m["role"] == "user"] == plan[chat]
            answers = [m["content"] for m in told if m["role"] == "assistant" and m["content"]]
            assert answers == [f"re {text}" for text in plan[chat]]
    assert delivered.keys() <= wanted_texts
    assert not [text for text, count in delivered.items() if count > 1], "said twice"
    assert wanted_texts - delivered.keys() <= unknown, "lost"
    for chat, texts in plan.items():
        heard = [text for to, text in lines(folder / "delivered") if to == chat]
        assert heard == [f"re {text}" for text in texts if f"re {text}" in delivered]


def test_hundred_conversations_survive_kills(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    _under_load(str(tmp_path / "talk.db"), tmp_path, chats=100, messages=3, kills=3, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_hundred_conversations_survive_many_kills(where: str, tmp_path: Path, seed: int) -> None:
    _under_load(where, tmp_path, chats=100, messages=20, kills=12, seed=seed)
