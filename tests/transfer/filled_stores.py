"""Stores with something of everything in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import tertulia
from tertulia import Budget, Duplicate, NotFound, Settings, Source, Store, ToolCall, Usage
from tertulia.records.approval_questions import AskedCall
from tertulia.records.processes import Process
from tertulia.records.turns.turn import control_of
from tertulia.records.turns.waiting import Suspension
from tertulia.testing import FakeClock
from tertulia.transfer import import_from

ANA = Source("telegram", "12025550101", user_id="12025550101", user_name="Ana")
BEN = Source("discord", "77", user_id="77", user_name="Ben", account="bot2")
GROUP = Source("telegram", "-100", chat_type="group", chat_name="Ops", user_id="5", user_name="Eve")
THREAD = Source("slack", "C1", chat_type="channel", user_id="U1", thread_id="17.5")
EVE = Source("signal", "+12025550103", user_id="+12025550103")
CAL = Source("telegram", "90", user_id="90", user_name="Cal")
DEE = Source("telegram", "91", user_id="91", user_name="Dee")
SOURCES = (ANA, BEN, GROUP, THREAD, Source.local())

# Long enough to be kept apart from its message.
LARGE = "lorem ipsum " * 4_000
BUDGETS = (Budget(per="person", usd=1000.0),)
SETTINGS = Settings(
    zone="UTC",
    durability="fast",
    group_sessions_per_user=False,
    budgets=BUDGETS,
    remember=True,
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def opened(path: str | Path, clock: FakeClock | None = None, **changes: Any) -> Store:
    settings = msgspec.structs.replace(SETTINGS, **changes)
    return tertulia.open(path, settings=settings, clock=clock or FakeClock(NOON))


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of its own for each example of a property."""
    path = tempfile.mkdtemp(prefix="tertulia-")
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path)


def talk(store: Store, source: Source, words: str) -> str:
    """A turn with a tool, a thought, a cost and a delivery; the id of its session."""
    with store.turn(source, words) as turn:
        turn.add_assistant(
            "", tool_calls=[ToolCall("c1", "look", {"for": words})], reasoning="Let me look."
        )
        turn.add_tool_result("c1", f"found {words}")
        turn.add_assistant(
            f"You said: {words}", usage=Usage(input=10, output=5, model="gpt-5-mini")
        )
        turn.deliver(words)
        return turn.session.id


def _session(store: Store, source: Source) -> str:
    return store.sessions.open(source).id


_LEFT_OPEN = """
import os, sys
import tertulia
from tests.transfer.filled_stores import EVE, opened

turn = opened(sys.argv[1]).turn(EVE, "and then?").__enter__()
turn.add_assistant("", tool_calls=[tertulia.ToolCall("c9", "burn", {})])
os._exit(0)
"""


def left_open(path: Path) -> None:
    """As after a crash: a turn that nobody closed, with a call whose result nobody knows."""
    folders = os.pathsep.join(part for part in sys.path if part)
    subprocess.run(
        [sys.executable, "-c", _LEFT_OPEN, str(path)],
        env={**os.environ, "PYTHONPATH": folders},
        check=True,
    )


def _rename(store: Store, source: Source, words: str) -> None:
    try:
        store.sessions.rename(_session(store, source), words or None)
    except Duplicate:
        store.sessions.rename(_session(store, source), None)


def _link(store: Store, source: Source, words: str) -> None:
    code = store.people.request_pairing(source)
    if code is not None and words:
        store.people.approve(code, role="member")


def _claim(store: Store, source: Source, words: str) -> None:
    for newcomer in store.inbox.claim(1):
        if words:
            store.inbox.failed(newcomer, words, retry_after=5)
    for parcel in store.outbox.claim(1):
        if words:
            store.outbox.failed(parcel, words, outcome="unknown")


def _delete(store: Store, source: Source, words: str) -> None:
    try:
        store.sessions.delete(_session(store, source))
    except NotFound:
        return


def _append(store: Store, source: Source, words: str) -> None:
    log = store.transcript(_session(store, source))
    log.extend(
        [
            {"role": "user", "content": words, "x_custom": {"kept": [1, 2.5, None]}},
            {"role": "assistant", "content": [{"type": "text", "text": LARGE + words}]},
            {"role": "user", "content": "half a pair \ud83d"},
        ]
    )


def _schedule(store: Store, source: Source, words: str) -> None:
    made = store.schedules.create(source, "every 2h", words.strip() or "look")
    store.schedules.run_now(made.id)
    for run in store.schedules.claim(1):
        store.schedules.failed(run, words, for_good=not words)


ACTS: dict[str, Callable[[Store, Source, str], object]] = {
    "talk": talk,
    "append": _append,
    "undo": lambda store, source, words: store.transcript(_session(store, source)).undo(),
    "redo": lambda store, source, words: store.transcript(_session(store, source)).redo(),
    "clear": lambda store, source, words: store.transcript(_session(store, source)).clear(),
    "rewrite": lambda store, source, words: store.transcript(_session(store, source)).rewrite(
        [{"role": "user", "content": words}]
    ),
    "compact": lambda store, source, words: store.transcript(_session(store, source)).compact(
        keep_turns=1
    ),
    "fork": lambda store, source, words: store.sessions.fork(_session(store, source)),
    "reset": lambda store, source, words: store.sessions.reset(store.sessions.key(source)),
    "rename": _rename,
    "delete": _delete,
    "put": lambda store, source, words: store.inbox.put(source, words, message_id=words or None),
    "claim": _claim,
    "pair": _link,
    "schedule": _schedule,
}


def forget_a_message(store: Store) -> None:
    """Accept and answer a message, and delete its session."""
    source = Source("telegram", "777", user_id="777")
    item = store.inbox.put(source, "forget me", message_id="1")
    with store.turn(source, item.text, message_id=item.message_id) as turn:
        turn.add_assistant("Gone.")
    store.sessions.delete(turn.session.id)


def program(store: Store) -> Process:
    return Process(
        id="p1",
        key=store.sessions.key(ANA),
        session_id=None,
        origin=ANA,
        node="here",
        folder="p1",
        command="sleep 600",
        cwd="/",
        is_pty=True,
        state="starting",
        began_at=store.now(),
        told_at=store.now(),
    )


def wait_for_approval(store: Store) -> None:
    """Leave one call waiting, and another one approved for longer."""
    for source, code in ((CAL, "AAAA2222"), (DEE, "BBBB3333")):
        call = ToolCall("c1", "terminal", {"command": "ls"})
        with store.turn(source, "look", message_id=code) as turn:
            turn.add_assistant(None, tool_calls=[call])
            request = AskedCall(code=code, call=call, question=f"May I? {code}")
            waiting = Suspension(requests=(request,), seconds=3600, requester="somebody")
            control_of(turn).suspend(waiting)
    store.approvals.approve("BBBB3333", by="somebody", scope="always")


def everything(store: Store) -> None:
    """Each act once, in an order in which each finds something to do."""
    for number, act in enumerate(("talk", "append", *ACTS, "talk", "fork", "append", "talk")):
        for source in (ANA, GROUP):
            ACTS[act](store, source, f"{act} {number}")
    store.sessions.end(talk(store, THREAD, "over"), "idle")
    store.people.set_zone("telegram:12025550101", "Europe/Madrid")
    store.people.accept_link(BEN, store.people.offer_link(ANA))
    store.people.request_pairing(EVE)
    with suppress(tertulia.Error):
        store.people.approve("WRONGONE", by="somebody")
    store.processes.begin(program(store))
    wait_for_approval(store)
    store.person_ids.remember("whatsapp", "", "ES.1", "34600111222")
    store.mcp_pins.note_offered("files", {"read": {"name": "read", "hash": "1"}})
    store.mcp_pins.note_offered("files", {"read": {"name": "read", "hash": "2"}})
    store.media.put(b"a file that no message holds yet", name="notes.txt")
    for session in store.sessions.find(limit=1).items:
        store.chat_chains.put("what was said", session.id, 1)
    for session in store.sessions.find(limit=1).items:
        store.agent_choices.begin_prompt(session.id, "You are kind.")
        store.agent_choices.set_model(session.id, "small")
    store.agent_choices.choose(ANA, store.settings.agent, by="telegram:1")
    store.memories.add(ANA, "Ana sails.")
    forget_a_message(store)
    store.memories.switch(BEN.with_fields(chat_id="9", user_id="9"), on=False)
    lease = store.listeners.claim("telegram", "", "node")
    assert lease is not None
    store.listeners.advance(lease, "7")
    store.listeners.release(lease)
    with tempfile.TemporaryDirectory() as folder:
        row = {"role": "user", "content": "from elsewhere", "timestamp": "2026-03-01T10:00:00Z"}
        Path(folder, "talk.jsonl").write_text(json.dumps(row))
        import_from(store, "jsonl", folder)


def parts(path: Path) -> dict[str, bytes]:
    """What an archive holds, but for the time it was made at."""
    with zipfile.ZipFile(path) as packed:
        found = {name: packed.read(name) for name in packed.namelist()}
    manifest = json.loads(found["manifest.json"])
    del manifest["made_at"]
    found["manifest.json"] = json.dumps(manifest).encode()
    return found
