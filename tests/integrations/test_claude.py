"""The session store of the Claude Agent SDK: its own suite, and what we promise besides."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio
from claude_agent_sdk import (
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    rename_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionKey

import tertulia
from tertulia import IllegalMove, Source, Store
from tertulia.integrations.claude import FIELD, PLATFORM, TertuliaSessionStore
from tests.integrations.conftest import FAST
from tests.records.store_inspection import ANA

pytestmark = pytest.mark.check

MAIN: SessionKey = {"project_key": "proj", "session_id": "s1"}
BELOW: SessionKey = {"project_key": "proj", "session_id": "s1", "subpath": "below/one"}
UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def mirror(store: Store) -> TertuliaSessionStore:
    return TertuliaSessionStore(store)


def user_entry(text: Any, uuid: str | None = None, **fields: Any) -> Any:
    uuid_field = {} if uuid is None else {"uuid": uuid}
    return {"type": "user", **uuid_field, "message": {"role": "user", "content": text}, **fields}


def assistant_entry(content: Any, uuid: str | None = None, **message: Any) -> Any:
    uuid_field = {} if uuid is None else {"uuid": uuid}
    return {"type": "assistant", **uuid_field, "message": {"content": content, **message}}


def append(mirror: TertuliaSessionStore, *entries: Any, key: SessionKey = MAIN) -> None:
    asyncio.run(mirror.append(key, list(entries)))


def load(mirror: TertuliaSessionStore, key: SessionKey = MAIN) -> Any:
    return asyncio.run(mirror.load(key))


def session_of(store: Store, mirror: TertuliaSessionStore, key: SessionKey = MAIN) -> Any:
    return store.sessions.current(store.sessions.key(mirror.source(key)))


def stored_messages(
    store: Store, mirror: TertuliaSessionStore
) -> list[tuple[str, Any, str | None]]:
    entries = store.transcript(session_of(store, mirror).id).entries()
    return [(entry.role, entry.body.get("content"), entry.kind) for entry in entries]


class TestConformance:
    """The suite that the SDK ships."""

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Iterator[Iterator[Store]]:
        opened: list[Store] = []

        def fresh() -> Iterator[Store]:
            for number in count():
                opened.append(tertulia.open(tmp_path / f"{number}.db", settings=FAST))
                yield opened[-1]

        yield fresh()
        assert len(opened) > 10
        for store in opened:
            assert store.check() == []
            store.close()

    def test_with_a_store(self, stores: Iterator[Store]) -> None:
        asyncio.run(run_session_store_conformance(lambda: TertuliaSessionStore(next(stores))))

    def test_with_trio(self, stores: Iterator[Store]) -> None:
        """The SDK runs on trio too, where asyncio has no event loop."""
        trio.run(run_session_store_conformance, lambda: TertuliaSessionStore(next(stores)))

    def test_with_an_async_store(self, tmp_path: Path) -> None:
        numbers = count()

        async def run() -> None:
            opened: list[Any] = []

            async def make() -> TertuliaSessionStore:
                path = tmp_path / f"{next(numbers)}.db"
                opened.append(await tertulia.aio.open(path, settings=FAST))
                return TertuliaSessionStore(opened[-1])

            await run_session_store_conformance(make)
            for store in opened:
                await store.close()

        asyncio.run(run())
        assert next(numbers) > 10


STRANGE: dict[str, Any] = {
    "no message": {"type": "user"},
    "a message that is none": {"type": "assistant", "message": "x"},
    "odd blocks": {"type": "assistant", "message": {"content": [None, 5, "x", {"type": 7}, {}]}},
    "an odd result": {"type": "user", "message": {"content": [{"type": "tool_result"}]}},
    "odd content": {"type": "user", "message": {"content": {"a": 1}}},
    "odd usage": {"type": "assistant", "message": {"content": "x", "usage": {"input_tokens": "9"}}},
    "odd ids": {"type": "user", "uuid": 5, "message": {"content": "x", "id": {}}},
    "of tomorrow": {"type": "telepathy", "deep": [{"x": [1.5, None, True]}]},
    "half a pair": {"type": "user", "message": {"content": "\ud83d\x00"}},
    "great numbers": {"type": "x", "n": [2**80, -0.0]},
    "large": {"type": "user", "message": {"content": "é" * 300_000}},
}


@pytest.mark.parametrize("name", STRANGE)
def test_an_entry_comes_back_as_it_went_in(mirror: TertuliaSessionStore, name: str) -> None:
    append(mirror, STRANGE[name])
    assert load(mirror) == [STRANGE[name]]


def test_what_is_no_json_is_refused_with_all_of_its_batch(mirror: TertuliaSessionStore) -> None:
    with pytest.raises(IllegalMove):
        append(mirror, user_entry("a"), {"type": "x", "raw": b"y"})
    assert load(mirror) is None


def test_an_entry_is_a_message_of_ours(store: Store, mirror: TertuliaSessionStore) -> None:
    use = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "sky"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [
        {"type": "text", "text": "blue"}]}  # fmt: skip
    append(
        mirror,
        {"type": "summary", "summary": "Talk of the sky"},
        user_entry("how is it?"),
        assistant_entry(
            [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look"}, use]
        ),
        user_entry([result]),
        assistant_entry([{"type": "text", "text": "It is blue."}]),
        user_entry("<caveat>", isMeta=True),
    )
    assert stored_messages(store, mirror) == [
        ("system", "[summary]\nTalk of the sky", "internal"),
        ("user", "how is it?", None),
        ("assistant", "I look", None),
        ("tool", "blue", None),
        ("assistant", "It is blue.", None),
        ("user", "<caveat>", "internal"),
    ]
    session = session_of(store, mirror)
    history = store.transcript(session.id).history()
    assert [entry["role"] for entry in history] == ["user", "assistant", "tool", "assistant"]
    assert history[1]["tool_calls"][0]["function"]["arguments"] == '{"at": "sky"}'
    assert store.transcript(session.id).entries()[2].body["reasoning_content"] == "hm"
    assert sorted(hit.seq for hit in store.search("blue").items) == [4, 5]


def test_several_results_in_one_entry(store: Store, mirror: TertuliaSessionStore) -> None:
    uses: list[Any] = [
        {"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("a", "b")
    ]
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": n, "content": f"of {n}"} for n in ("a", "b")
    ]
    entries = [
        user_entry("go"),
        assistant_entry(uses),
        user_entry([*results, {"type": "text", "text": "go on"}]),
    ]
    append(mirror, *entries)
    assert load(mirror) == entries
    assert [row[:2] for row in stored_messages(store, mirror)][2:] == [
        ("tool", "of a"),
        ("tool", "of b"),
        ("user", "go on"),
    ]


class TestOnce:
    """An entry's uuid is its idempotency key."""

    def test_a_batch_that_is_sent_again_changes_nothing(self, mirror: TertuliaSessionStore) -> None:
        batch = [user_entry("a", "1"), assistant_entry("b", "2")]
        append(mirror, *batch)
        append(mirror, *batch, user_entry("c", "3"))
        append(mirror, user_entry("c", "3"), user_entry("c", "3"))
        assert load(mirror) == [*batch, user_entry("c", "3")]

    def test_without_a_uuid_everything_is_stored(self, mirror: TertuliaSessionStore) -> None:
        append(mirror, {"type": "mode"}, {"type": "mode"})
        append(mirror, {"type": "mode"})
        assert load(mirror) == [{"type": "mode"}] * 3

    def test_a_uuid_counts_within_its_transcript(self, mirror: TertuliaSessionStore) -> None:
        other: SessionKey = {"project_key": "proj", "session_id": "s2"}
        for key in (MAIN, BELOW, other):
            append(mirror, user_entry("a", "1"), key=key)
            assert load(mirror, key) == [user_entry("a", "1")]

    def test_what_was_taken_back_does_not_come_again(
        self, store: Store, mirror: TertuliaSessionStore
    ) -> None:
        append(mirror, user_entry("a", "1"), user_entry("b", "2"))
        store.transcript(session_of(store, mirror).id).undo()
        append(mirror, user_entry("b", "2"))
        assert load(mirror) == [user_entry("a", "1")]

    def test_after_a_deletion_it_may_come_again(self, mirror: TertuliaSessionStore) -> None:
        append(mirror, user_entry("a", "1"))
        asyncio.run(mirror.delete(MAIN))
        append(mirror, user_entry("a", "1"))
        assert load(mirror) == [user_entry("a", "1")]

    def test_two_handles_at_once(self, mirror: TertuliaSessionStore, where: Path) -> None:
        batch = [user_entry(str(number), str(number)) for number in range(20)]

        async def race() -> None:
            with tertulia.open(where, settings=FAST) as other:
                twin = TertuliaSessionStore(other)
                await asyncio.gather(*(entry.append(MAIN, batch) for entry in (mirror, twin) * 3))

        asyncio.run(race())
        assert load(mirror) == batch


class TestUsage:
    """A model call is counted once, whatever number of entries its answer has."""

    USED: dict[str, Any] = {  # noqa: RUF012
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
    }

    def test_the_last_block_counts(self, store: Store, mirror: TertuliaSessionStore) -> None:
        early = {**self.USED, "output_tokens": 1}
        append(
            mirror,
            user_entry("a", "1"),
            assistant_entry("b", "2", id="m1", model="claude-sonnet-4-5", usage=early),
            assistant_entry("c", "3", id="m1", model="claude-sonnet-4-5", usage=self.USED),
        )
        append(
            mirror, assistant_entry("d", "4", id="m1", model="claude-sonnet-4-5", usage=self.USED)
        )
        append(
            mirror, assistant_entry("c", "3", id="m1", model="claude-sonnet-4-5", usage=self.USED)
        )
        used = session_of(store, mirror).usage
        assert (used.input, used.output, used.cache_read, used.cache_write) == (10, 5, 100, 20)
        assert used.model == "claude-sonnet-4-5"
        assert session_of(store, mirror).last_prompt_tokens == 130

    def test_calls_add_up(self, store: Store, mirror: TertuliaSessionStore) -> None:
        for name in ("m1", "m2"):
            append(mirror, assistant_entry("b", name, id=name, usage=self.USED))
        append(mirror, assistant_entry("b", "x", usage=self.USED))
        assert store.usage.sum("platform")[PLATFORM].total == 3 * 135


class TestListing:
    def test_names_cannot_be_mistaken_for_each_other(self, mirror: TertuliaSessionStore) -> None:
        tricky: list[SessionKey] = [
            {"project_key": "a", "session_id": "b/c"},
            {"project_key": "a/b", "session_id": "c"},
            {"project_key": "a", "session_id": "b", "subpath": "c"},
            {"project_key": "dm", "session_id": "dm"},
            {"project_key": "", "session_id": "a"},
            {"project_key": "a", "session_id": "a"},
            {"project_key": "session:a", "session_id": "a"},
        ]
        for number, key in enumerate(tricky):
            append(mirror, user_entry(number), key=key)
        assert [load(mirror, key) for key in tricky] == [
            [user_entry(number)] for number in range(len(tricky))
        ]
        listed = asyncio.run(mirror.list_sessions("a"))
        assert sorted(entry["session_id"] for entry in listed) == ["a", "b/c"]
        assert [entry["session_id"] for entry in asyncio.run(mirror.list_sessions(""))] == ["a"]

    def test_many_sessions_are_all_listed(self, mirror: TertuliaSessionStore) -> None:
        async def fill() -> int:
            for number in range(510):
                key: SessionKey = {"project_key": "p", "session_id": str(number)}
                await mirror.append(key, [user_entry("x")])
            return len({entry["session_id"] for entry in await mirror.list_sessions("p")})

        assert asyncio.run(fill()) == 510

    def test_each_write_is_later_than_the_one_before(self, mirror: TertuliaSessionStore) -> None:
        times = []
        for _ in range(5):
            append(mirror, {"type": "mode"})
            times.append(asyncio.run(mirror.list_sessions("proj"))[0]["mtime"])
        assert times == sorted(set(times))


def test_the_functions_of_the_sdk_work_on_it(mirror: TertuliaSessionStore, tmp_path: Path) -> None:
    directory = str(tmp_path)
    key: SessionKey = {
        "project_key": project_key_for_directory(directory),
        "session_id": UUID,
    }
    common = {"sessionId": UUID, "timestamp": "2026-03-01T10:00:00.000Z"}
    first = user_entry("Will it rain?", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", **common)
    second = {
        **assistant_entry(
            [{"type": "text", "text": "No."}], "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
        ),
        "parentUuid": first["uuid"],
        **common,
    }
    append(mirror, first, second, key=key)

    async def run() -> None:
        (listed,) = await list_sessions_from_store(mirror, directory=directory)
        assert (listed.session_id, listed.first_prompt) == (UUID, "Will it rain?")
        messages = await get_session_messages_from_store(mirror, UUID, directory=directory)
        assert [message.type for message in messages] == ["user", "assistant"]
        await rename_session_via_store(mirror, UUID, "The weather", directory=directory)
        (listed,) = await list_sessions_from_store(mirror, directory=directory)
        assert listed.custom_title == "The weather"
        fork = await fork_session_via_store(mirror, UUID, directory=directory)
        assert len(await list_sessions_from_store(mirror, directory=directory)) == 2
        messages = await get_session_messages_from_store(
            mirror, fork.session_id, directory=directory
        )
        assert [message.type for message in messages] == ["user", "assistant"]
        await delete_session_via_store(mirror, UUID, directory=directory)
        (listed,) = await list_sessions_from_store(mirror, directory=directory)
        assert listed.session_id == fork.session_id

    asyncio.run(run())


def test_a_deletion_is_whole(store: Store, mirror: TertuliaSessionStore) -> None:
    append(mirror, user_entry("unforgettable"))
    append(mirror, user_entry("unforgettable"), key=BELOW)
    store.sessions.reset(session_of(store, mirror).key)
    append(mirror, user_entry("unforgettable"))
    with store.turn(ANA, "unforgettable") as turn:
        turn.add_assistant("yes")
    asyncio.run(mirror.delete(MAIN))
    assert store.sessions.count() == 1
    assert [hit.session_id for hit in store.search("unforgettable").items] == [turn.session.id]


def test_clear_and_undo_move_a_pointer(store: Store, mirror: TertuliaSessionStore) -> None:
    append(mirror, user_entry("a"), assistant_entry("b"))
    transcript = store.transcript(session_of(store, mirror).id)
    transcript.clear()
    assert load(mirror) == []
    transcript.restore(1)
    assert load(mirror) == [user_entry("a"), assistant_entry("b")]


def test_messages_of_others_are_no_entries(store: Store, mirror: TertuliaSessionStore) -> None:
    append(mirror, user_entry("a"))
    transcript = store.transcript(session_of(store, mirror).id)
    transcript.append({"role": "user", "content": "b", FIELD: "x"})
    assert load(mirror) == [user_entry("a")]


def test_a_session_that_has_ended_is_not_loaded(store: Store, mirror: TertuliaSessionStore) -> None:
    append(mirror, user_entry("a", "1"))
    ended = session_of(store, mirror)
    store.sessions.end(ended.id, "done")
    assert load(mirror) is None
    store.sessions.switch(ended.key, ended.id)
    assert load(mirror) == [user_entry("a", "1")]


def test_listed_with_everything_else(store: Store, mirror: TertuliaSessionStore) -> None:
    append(mirror, user_entry("the sky over Sevilla"))
    with store.turn(Source("telegram", "42"), "Sevilla?") as turn:
        turn.add_assistant("yes")
    assert {entry.origin.platform for entry in store.sessions.find().items} == {
        PLATFORM,
        "telegram",
    }
    assert len(store.search("sevilla").items) == 2


CHILD = """
    import asyncio, os, signal, sys
    import tertulia
    from tertulia.integrations.claude import TertuliaSessionStore
    store = tertulia.open(sys.argv[1])
    mirror = TertuliaSessionStore(store)
    key = {"project_key": "proj", "session_id": "s1"}

    async def fill():
        for number in range(1000):
            lines = [{"type": "x", "uuid": f"{number}.{part}"} for part in range(3)]
            await mirror.append(key, lines)
            print(number, flush=True)
            if number == 20:
                os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(fill())
"""


def test_a_kill_leaves_whole_batches(where: Path) -> None:
    root = Path(__file__).parent.parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(where)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    acknowledged = len(done.stdout.split())
    assert acknowledged == 21, done.stderr
    with tertulia.open(where) as store:
        names = [entry["uuid"] for entry in load(TertuliaSessionStore(store))]
    assert names == [f"{number}.{part}" for number in range(21) for part in range(3)]
