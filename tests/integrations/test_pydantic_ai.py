"""Pydantic AI: its conversation store and `message_history=`, with real agents and a script."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pydantic_ai import Agent, BinaryImage, Conversation, ImageUrl, ModelMessage, UserError
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import tertulia
from tertulia import IllegalMove, SessionBusy, Source, Store, ToolCall
from tertulia.integrations.pydantic_ai import (
    FIELD,
    PLATFORM,
    EntryNotFound,
    TertuliaConversationStore,
    add_run,
    add_run_async,
    message_history,
    message_history_async,
)
from tests.integrations.conftest import FAST
from tests.records.store_inspection import ANA, let_lease_run_out, log_of

pytestmark = pytest.mark.check

ANA_SOURCE = Source(PLATFORM, "ana")


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    used = RequestUsage(input_tokens=10, output_tokens=5, cache_read_tokens=4)
    if isinstance(last, UserPromptPart) and "sky" in str(last.content):
        calls = [ToolCallPart("look", {"at": at}, f"{at}{len(messages)}") for at in ("a", "b")]
        return ModelResponse(parts=[ThinkingPart("hm"), *calls], usage=used)
    return ModelResponse(parts=[TextPart(f"after {len(messages)}")], usage=used)


agent = Agent(FunctionModel(script, model_name="script"))


@agent.tool_plain
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


def run(prompt: str | None = None, *, message_history: Any = None) -> AgentRunResult[str]:
    """The SDK's own `run_sync` leaves its event loop behind for the collector."""
    return asyncio.run(agent.run(prompt, message_history=message_history))


@pytest.fixture
def conversations(store: Store) -> TertuliaConversationStore:
    return TertuliaConversationStore(store)


async def exchange(
    conversations: ConversationStore, text: str, name: str = "ana", scope: str | None = None
) -> Conversation:
    conversation = await conversations.load(name) or Conversation(conversation_id=name)
    result = await agent.run(text, conversation=conversation)
    await conversations.save(result, scope=scope)
    return result.conversation


def user_request(text: str) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(text)])


def texts(store: Store, source: Source = ANA_SOURCE) -> list[Any]:
    session = store.sessions.current(store.sessions.key(source))
    assert session is not None
    return [item["content"] for item in store.transcript(session.id).load()]


MESSAGES: dict[str, ModelMessage] = {
    "text": user_request("¿Qué tal? 👩‍👩‍👧"),
    "nothing": ModelRequest(parts=[]),
    "empty answer": ModelResponse(parts=[]),
    "system and person": ModelRequest(
        parts=[SystemPromptPart("be brief"), UserPromptPart("hi")], instructions="always"
    ),
    "pictures": ModelRequest(
        parts=[
            UserPromptPart(
                [
                    "look",
                    ImageUrl("https://x/y.png"),
                    BinaryImage(b"\x89raw", media_type="image/png"),
                ]
            )
        ]
    ),
    "results": ModelRequest(
        parts=[
            ToolReturnPart("look", {"sky": ["blue", 1.5]}, "c1"),
            ToolReturnPart("look", "again", "c2", outcome="retried"),
            RetryFeedbackPart("say it in another way", retry=RetryInfo(cause="model_retry")),
            UserPromptPart("and now?"),
        ]
    ),
    "answer": ModelResponse(
        parts=[
            ThinkingPart("hm", signature="zzz"),
            TextPart("so"),
            ToolCallPart("look", '{"at": "sky"}', "c1"),
            ToolCallPart("look", None, "c2"),
        ],
        usage=RequestUsage(input_tokens=3, details={"x": 1}),
        model_name="m",
        provider_details={"deep": [None, {"a": 1}]},
    ),
    "large": user_request("é" * 300_000),
    "zero characters": user_request("a\x00b"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_comes_back_as_it_went_in(store: Store, name: str) -> None:
    async def run_test() -> None:
        saved_messages = [user_request("before"), MESSAGES[name], user_request("after")]
        conversation = Conversation(messages=list(saved_messages), conversation_id="ana")
        await TertuliaConversationStore(store).save(conversation)
        loaded = await TertuliaConversationStore(store).load("ana")
        assert loaded is not None
        assert loaded.messages == saved_messages

    asyncio.run(run_test())


def test_a_message_is_one_of_ours_or_several(
    store: Store, conversations: TertuliaConversationStore
) -> None:
    saved_messages = [MESSAGES[name] for name in ("system and person", "answer", "results")]
    asyncio.run(conversations.save(Conversation(messages=saved_messages, conversation_id="ana")))
    session = store.sessions.current(store.sessions.key(ANA_SOURCE))
    assert session is not None
    loaded = store.transcript(session.id).load()
    assert [(item["role"], item["content"]) for item in loaded] == [
        ("system", "be brief"),
        ("user", "hi"),
        ("assistant", "so"),
        ("tool", '{"sky":["blue",1.5]}'),
        ("tool", '{"error":"again"}'),
        ("system", loaded[5]["content"]),
        ("user", "and now?"),
    ]
    assert "say it in another way" in loaded[5]["content"]
    assert loaded[2]["reasoning_content"] == "hm"
    assert [item["id"] for item in loaded[2]["tool_calls"]] == ["c1", "c2"]
    assert loaded[3]["name"] == "look"


class TestLikeTheOneInMemory:
    """Everything the SDK does with a store gives what its own store in memory gives."""

    @pytest.fixture(params=["memory", "tertulia"])
    def either(self, request: pytest.FixtureRequest, store: Store) -> ConversationStore:
        is_ours = request.param == "tertulia"
        return TertuliaConversationStore(store) if is_ours else InMemoryConversationStore()

    def test_remembers(self, either: ConversationStore) -> None:
        async def run_test() -> None:
            for text in ("hi", "the sky?", "thanks"):
                last = await exchange(either, text)
            loaded = await either.load("ana")
            assert loaded is not None
            assert loaded.messages == last.messages
            assert (len(loaded.messages), loaded.usage) == (8, last.usage)
            newest = await either.load("ana", limit=3)
            assert newest is not None
            assert newest.messages == last.messages[-3:]
            with pytest.raises(UserError):
                await either.load("ana", limit=-1)
            assert await either.load_entries("ana", limit=0) == []
            assert await either.load("nobody") is None

        asyncio.run(run_test())

    def test_who_saves_late_gets_a_conflict(self, either: ConversationStore) -> None:
        async def run_test() -> None:
            await exchange(either, "hi")
            item, two = await either.load("ana"), await either.load("ana")
            await either.save(await agent.run("first", conversation=item))
            late = await agent.run("second", conversation=two)
            with pytest.raises(ConversationConflict):
                await either.save(late)
            with pytest.raises(ConversationConflict):
                await either.save(Conversation(messages=[user_request("x")], conversation_id="ana"))
            loaded = await either.load("ana")
            assert loaded is not None
            assert len(loaded.messages) == 4

        asyncio.run(run_test())

    def test_branches_and_comes_back(self, either: ConversationStore) -> None:
        async def run_test() -> None:
            await exchange(either, "hi")
            whole = await exchange(either, "the sky?")
            branch = await either.branch("ana", at=2, expected_revision=whole.revision)
            await either.save(await agent.run("something else", conversation=branch))
            record = await either.read_record("ana")
            assert record is not None
            assert len(record.branches) == 1
            loaded = await either.load("ana")
            assert loaded is not None
            assert len(loaded.messages) == 4
            back = await either.branch(
                "ana", from_entry=record.branches[0], expected_revision=record.revision
            )
            assert back.messages == whole.messages
            nowhere = await either.branch("ana", at=0, expected_revision=back.revision)
            await either.save(await agent.run("afresh", conversation=nowhere))
            loaded = await either.load("ana")
            assert loaded is not None
            assert len(loaded.messages) == 2

        asyncio.run(run_test())

    def test_a_rewritten_history_branches(self, either: ConversationStore) -> None:
        async def run_test() -> None:
            await exchange(either, "hi")
            whole = await exchange(either, "more")
            edited = [*whole.messages[:2], user_request("edited")]
            await either.save(
                Conversation(messages=edited, conversation_id="ana", revision=whole.revision)
            )
            loaded, record = await either.load("ana"), await either.read_record("ana")
            assert loaded is not None
            assert record is not None
            assert loaded.messages == edited
            assert len(record.branches) == 1

        asyncio.run(run_test())

    def test_a_fork_lives_on_its_own(self, either: ConversationStore) -> None:
        async def run_test() -> None:
            await exchange(either, "the sky?", scope="me")
            whole = await exchange(either, "thanks")
            fork = await either.fork("ana", at=4, new_conversation_id="fork", scope="you")
            assert fork.messages == whole.messages[:4]
            await either.save(await agent.run("go on", conversation=fork))
            copy = await either.fork("fork", new_conversation_id="copy")
            with pytest.raises(ConversationConflict):
                await either.fork("ana", new_conversation_id="fork")
            await either.delete("ana")
            await either.delete("ana")
            assert await either.load("ana") is None
            for name in ("fork", "copy"):
                loaded = await either.load(name)
                assert loaded is not None
                assert loaded.messages[:4] == whole.messages[:4]
                assert loaded.messages == copy.messages
            record = await either.read_record("fork")
            assert record is not None
            assert (record.forked_from, record.scope) == ("ana", "you")

        asyncio.run(run_test())

    def test_scopes_keep_apart(self, either: ConversationStore) -> None:
        async def run_test() -> None:
            for name, scope in (("a", "x"), ("b", "y"), ("c", "x"), ("x", None)):
                await exchange(either, "hi", name, scope)
            listed = [item.conversation_id for item in await either.list_conversations()]
            assert listed == ["x", "c", "b", "a"]
            of_x = await either.list_conversations(scope="x")
            assert [item.conversation_id for item in of_x] == ["c", "a"]
            newest = await either.list_conversations(scope="x", limit=1)
            assert [item.conversation_id for item in newest] == ["c"]
            assert list(await either.list_conversations(limit=0)) == []
            assert await either.load("a", scope="y") is None
            await either.delete("a", scope="y")
            assert await either.load("a", scope="x") is not None
            stolen = await either.load("a")
            assert stolen is not None
            with pytest.raises(ConversationConflict):
                await either.save(stolen, scope="y")

        asyncio.run(run_test())

    def test_the_primitives_alone(self, either: ConversationStore) -> None:
        async def run_test() -> None:
            moment = datetime(2026, 5, 1, tzinfo=UTC)
            for place, days in enumerate((2, 9, 5)):
                record = ConversationRecord(
                    conversation_id=f"{place}",
                    head_id=None,
                    updated_at=moment + timedelta(days=days),
                )
                await either.write_record(record, expected_revision=None)
            listed = [item.conversation_id for item in await either.read_records()]
            assert listed == ["1", "2", "0"]
            assert await either.read_record("2") == record
            first = ConversationEntry(parent_id=None, message=user_request("a"))
            second = ConversationEntry(parent_id=first.id, message=user_request("b"))
            longer = replace(record, head_id=second.id, revision="r2")
            with pytest.raises(ConversationConflict):
                await either.write_record(longer, expected_revision=record.revision)
            await either.write_record(
                longer, new_entries=[first, second], expected_revision=record.revision
            )
            assert await either.read_entry(second.id) == second
            assert await either.read_history(second.id) == [first, second]
            assert await either.read_history(second.id, limit=1) == [second]
            assert await either.read_history(None) == []
            for wrong in ("stale", record.revision):
                with pytest.raises(ConversationConflict):
                    await either.write_record(longer, expected_revision=wrong)
                with pytest.raises(ConversationConflict):
                    await either.delete_record("2", expected_revision=wrong)
            with pytest.raises(ConversationConflict):
                await either.delete_record("nobody", expected_revision="r")
            await either.delete_record("2", expected_revision="r2")
            assert await either.read_record("2") is None
            with pytest.raises(LookupError):
                await either.read_entry(second.id)

        asyncio.run(run_test())


class Model(RuleBasedStateMachine):
    """Any order of saves, branches, forks and deletions, on both stores."""

    place: Path

    @initialize()
    def begin(self) -> None:
        self.store = tertulia.open(self.fresh(), settings=FAST)
        self.ours = TertuliaConversationStore(self.store)
        self.memory = InMemoryConversationStore()
        self.requests = 0

    def fresh(self) -> Path:
        for number in range(10**6):
            path = Model.place.with_name(f"{number}.db")
            if not path.exists():
                return path
        raise AssertionError

    @rule(name=st.sampled_from("ab"), several=st.booleans())
    def say(self, name: str, several: bool) -> None:
        self.requests += 1
        fresh: list[ModelMessage] = [user_request(f"{self.requests}")]
        if several:
            fresh += [
                ModelRequest(parts=[SystemPromptPart("s"), UserPromptPart(f"{self.requests}")]),
                ModelResponse(parts=[TextPart("x")]),
            ]

        async def run_test(conversations: ConversationStore) -> None:
            loaded = await conversations.load(name) or Conversation(conversation_id=name)
            loaded.messages = [*loaded.messages, *fresh]
            await conversations.save(loaded)

        self.both(run_test)

    @rule(name=st.sampled_from("ab"), at=st.integers(0, 6), back=st.booleans())
    def branch(self, name: str, at: int, back: bool) -> None:
        async def run_test(conversations: ConversationStore) -> str:
            record = await conversations.read_record(name)
            if record is None:
                return "nothing"
            try:
                if back and record.branches:
                    await conversations.branch(
                        name, from_entry=record.branches[0], expected_revision=record.revision
                    )
                else:
                    await conversations.branch(name, at=at, expected_revision=record.revision)
            except UserError:
                return "out of range"
            return "done"

        self.both(run_test)

    @rule(name=st.sampled_from("ab"), new=st.sampled_from("abc"), at=st.none() | st.integers(0, 3))
    def fork(self, name: str, new: str, at: int | None) -> None:
        async def run_test(conversations: ConversationStore) -> str:
            try:
                await conversations.fork(name, at=at, new_conversation_id=new)
            except ConversationConflict:
                return "conflict"
            except UserError:
                return "no"
            return "done"

        self.both(run_test)

    @rule(name=st.sampled_from("abc"))
    def delete(self, name: str) -> None:
        self.both(lambda conversations: conversations.delete(name))

    def both(self, run_test: Any) -> None:
        async def compare() -> None:
            assert await run_test(self.ours) == await run_test(self.memory)
            for name in "abc":
                ours, memory = await self.ours.load(name), await self.memory.load(name)
                assert (ours is None) == (memory is None)
                if ours is not None and memory is not None:
                    assert _plain(ours.messages) == _plain(memory.messages)
                    record, twin = (
                        await self.ours.read_record(name),
                        await self.memory.read_record(name),
                    )
                    assert record is not None
                    assert twin is not None
                    assert len(record.branches) == len(twin.branches)
                    self.seen_is_head(name, ours.messages)

        asyncio.run(compare())

    def seen_is_head(self, name: str, messages: list[ModelMessage]) -> None:
        session = self.store.sessions.current(self.store.sessions.key(Source(PLATFORM, name)))
        assert session is not None
        entries = self.store.transcript(session.id).entries()
        firsts = [item for item in entries if "value" in item.body[FIELD]]
        assert len(firsts) == len(messages)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            assert self.store.check() == []
            self.store.close()


def _plain(messages: list[ModelMessage]) -> list[list[tuple[str, Any]]]:
    return [
        [(part.part_kind, getattr(part, "content", None)) for part in message.parts]
        for message in messages
    ]


def test_any_order_of_operations(tmp_path: Path) -> None:
    Model.place = tmp_path / "model.db"
    machine: Any = Model
    machine.TestCase.settings = hypothesis_settings(
        max_examples=15, stateful_step_count=15, deadline=None
    )
    machine.TestCase("runTest").runTest()


class TestTheStoreBeneath:
    def test_undo_moves_the_head(
        self, store: Store, conversations: TertuliaConversationStore
    ) -> None:
        async def run_test() -> None:
            await exchange(conversations, "hi")
            whole = await exchange(conversations, "the sky?")
            session = store.sessions.current(store.sessions.key(ANA_SOURCE))
            assert session is not None
            transcript = store.transcript(session.id)
            transcript.undo()
            loaded = await conversations.load("ana")
            assert loaded is not None
            assert loaded.messages == whole.messages[:2]
            with pytest.raises(ConversationConflict):  # it was loaded before
                await conversations.save(await agent.run("late", conversation=whole))
            await conversations.save(await agent.run("go on", conversation=loaded))
            assert texts(store) == ["hi", "after 1", "go on", "after 3"]
            record = await conversations.read_record("ana")
            assert record is not None
            back = await conversations.branch(
                "ana", from_entry=record.branches[0], expected_revision=record.revision
            )
            assert back.messages == whole.messages

        asyncio.run(run_test())

    def test_nothing_is_destroyed_by_a_branch(
        self, store: Store, conversations: TertuliaConversationStore
    ) -> None:
        async def run_test() -> None:
            whole = await exchange(conversations, "hi")
            await conversations.branch("ana", at=0, expected_revision=whole.revision)

        asyncio.run(run_test())
        session = store.sessions.current(store.sessions.key(ANA_SOURCE))
        assert session is not None
        assert texts(store) == []
        assert [row.content for row in log_of(store, session)] == ["hi", "after 1"]
        store.transcript(session.id).restore(1)
        assert texts(store) == ["hi", "after 1"]

    def test_each_model_call_is_in_the_ledger_once(
        self, store: Store, conversations: TertuliaConversationStore
    ) -> None:
        async def run_test() -> None:
            whole = await exchange(conversations, "the sky?")
            await conversations.save(whole)
            await conversations.fork("ana", new_conversation_id="fork")
            await conversations.branch("ana", at=1, expected_revision=whole.revision)

        asyncio.run(run_test())
        used = store.usage.sum("platform")[PLATFORM]
        assert (used.input, used.cache_read, used.output) == (12, 8, 10)
        assert list(store.usage.sum("model")) == ["script"]

    def test_a_save_waits_for_a_turn_that_is_under_way(self, store: Store) -> None:
        async def run_test() -> None:
            hasty = TertuliaConversationStore(store, wait=0.05)
            whole = await exchange(hasty, "hi")
            result = await agent.run("more", conversation=whole)
            with store.turn(ANA_SOURCE, "I am speaking") as turn:
                with pytest.raises(SessionBusy):
                    await hasty.save(result)
                turn.add_assistant("done")
            await hasty.save(result)

        asyncio.run(run_test())
        assert texts(store) == ["hi", "after 1", "I am speaking", "done", "more", "after 3"]

    def test_a_save_closes_a_turn_that_was_left(
        self, store: Store, conversations: TertuliaConversationStore
    ) -> None:
        async def run_test() -> None:
            whole = await exchange(conversations, "hi")
            result = await agent.run("more", conversation=whole)
            lost = store.turn_control(ANA_SOURCE, "I am gone")
            lost.__enter__()
            let_lease_run_out(store, lost.session)
            await conversations.save(result)
            with pytest.raises(tertulia.LeaseLost):
                lost.add_assistant("late")
            lost.leave(failed=True)

        asyncio.run(run_test())
        assert texts(store) == ["hi", "after 1", "I am gone", "more", "after 3"]

    def test_a_session_that_has_ended_stays_ended(
        self, store: Store, conversations: TertuliaConversationStore
    ) -> None:
        async def run_test() -> None:
            whole = await exchange(conversations, "hi")
            session = store.sessions.current(store.sessions.key(ANA_SOURCE))
            assert session is not None
            store.sessions.end(session.id, "done")
            assert await conversations.load("ana") is None
            with pytest.raises(ConversationConflict):
                await conversations.save(await agent.run("late", conversation=whole))
            store.sessions.switch(session.key, session.id)
            assert await conversations.load("ana") is not None

        asyncio.run(run_test())

    def test_a_deletion_is_whole(
        self, store: Store, conversations: TertuliaConversationStore
    ) -> None:
        asyncio.run(exchange(conversations, "unforgettable"))
        assert len(store.search("unforgettable").items) == 1
        asyncio.run(conversations.delete("ana"))
        assert store.search("unforgettable").items == ()
        assert store.sessions.count() == 0

    def test_a_conflict_leaves_nothing_behind(
        self, store: Store, conversations: TertuliaConversationStore
    ) -> None:
        entry = ConversationEntry(parent_id="nowhere", message=user_request("x"))
        record = ConversationRecord(conversation_id="ana", head_id=entry.id)

        async def run_test() -> None:
            with pytest.raises(ConversationConflict):
                await conversations.write_record(
                    record, new_entries=[entry], expected_revision=None
                )
            with pytest.raises(EntryNotFound, match="No stored conversation"):
                await conversations.read_entry(entry.id)

        asyncio.run(run_test())
        assert store.sessions.count() == 0

    def test_a_conversation_keeps_its_scope(self, conversations: TertuliaConversationStore) -> None:
        async def run_test() -> None:
            await exchange(conversations, "hi", scope="me")
            record = await conversations.read_record("ana")
            assert record is not None
            other = replace(record, scope="you", revision="new")
            with pytest.raises(IllegalMove, match="cannot change"):
                await conversations.write_record(other, expected_revision=record.revision)

        asyncio.run(run_test())

    def test_of_saves_at_once_one_wins(self, store: Store, where: Path) -> None:
        async def run_test() -> list[Any]:
            with tertulia.open(where, settings=FAST) as other:
                both = [TertuliaConversationStore(item) for item in (store, other)] * 4
                await exchange(both[0], "hi")
                loaded = [await item.load("ana") for item in both]
                results = [await agent.run("more", conversation=item) for item in loaded]
                saves = [item.save(result) for item, result in zip(both, results, strict=True)]
                return await asyncio.gather(*saves, return_exceptions=True)

        outcomes = asyncio.run(run_test())
        assert sum(isinstance(item, list) for item in outcomes) == 1
        assert sum(isinstance(item, ConversationConflict) for item in outcomes) == 7
        assert texts(store) == ["hi", "after 1", "more", "after 3"]

    def test_takes_an_async_store(self, where: Path) -> None:
        async def run_test() -> None:
            async with tertulia.aio.open(where, settings=FAST) as store:
                await exchange(TertuliaConversationStore(store), "hi")
            async with tertulia.aio.open(where, settings=FAST) as store:
                loaded = await TertuliaConversationStore(store).load("ana")
                assert loaded is not None
                assert len(loaded.messages) == 2

        asyncio.run(run_test())


class TestHistories:
    """The helpers for `message_history=`: a chat of the store, answered by an agent."""

    def answer(self, store: Store, text: str) -> tertulia.Turn:
        with store.turn(ANA, text) as turn:
            add_run(turn, run(message_history=message_history(turn)))
        return turn

    def test_a_chat_is_remembered(self, store: Store) -> None:
        self.answer(store, "the sky?")
        turn = self.answer(store, "thanks")
        assert turn.answer == "after 5"
        rows = log_of(store, turn.session)
        assert [(row.turn, row.role) for row in rows] == [
            (1, "user"),
            (1, "assistant"),
            (1, "tool"),
            (1, "tool"),
            (1, "assistant"),
            (2, "user"),
            (2, "assistant"),
        ]
        assert store.sessions.require(turn.session.id).usage.total == 3 * 15

    def test_a_prompt_that_the_turn_has_is_not_stored_twice(self, store: Store) -> None:
        with store.turn(ANA, "hi") as turn:
            add_run(turn, run("hi", message_history=message_history(turn)[:-1]))
        assert texts(store, ANA) == ["hi", "after 1"]
        with store.turn(ANA) as turn:
            add_run(turn, run("by itself"))
        assert texts(store, ANA) == ["hi", "after 1", "by itself", "after 1"]

    def test_messages_of_other_writers_are_read_too(self, store: Store) -> None:
        with store.turn(ANA, "the sky?") as turn:
            turn.add_assistant("I look.", tool_calls=[ToolCall("c1", "look", {"at": "sky"})])
            turn.add_tool_result("c1", "blue")
            turn.add_assistant("It is blue.")
        transcript = store.transcript(turn.session.id)
        transcript.append({"role": "system", "content": "be brief"})
        loaded = message_history(transcript)
        assert [[part.part_kind for part in item.parts] for item in loaded] == [
            ["user-prompt"],
            ["text", "tool-call"],
            ["tool-return"],
            ["text"],
            ["system-prompt"],
        ]
        (result,) = loaded[2].parts
        assert isinstance(result, ToolReturnPart)
        assert (result.tool_name, result.content) == ("look", "blue")
        assert len(message_history(transcript, newest=2)) == 2
        assert run("and now?", message_history=loaded).output == "after 5"

    def test_what_was_cut_off_is_told(self, store: Store) -> None:
        with store.turn(ANA, "the sky?") as turn:
            turn.add_assistant(None, tool_calls=[ToolCall("c1", "look", {})])
        *_, last = message_history(store.transcript(turn.session.id))
        assert isinstance(last.parts[0], ToolReturnPart)
        assert "interrupted" in str(last.parts[0].content)
        assert self.answer(store, "well?").answer is not None

    def test_awaited(self, where: Path) -> None:
        async def run_test() -> str | None:
            async with tertulia.aio.open(where, settings=FAST) as store:
                async with store.turn(ANA, "hi") as turn:
                    history = await message_history_async(turn)
                    await add_run_async(turn, await agent.run(message_history=history))
                log = store.transcript(turn.session.id)
                assert len(await message_history_async(log)) == 2
            return turn.answer

        assert asyncio.run(run_test()) == "after 1"


CHILD = """
    import asyncio, os, signal, sys
    import tertulia
    from tests.integrations.test_pydantic_ai import exchange, TertuliaConversationStore
    talks = TertuliaConversationStore(tertulia.open(sys.argv[1]))

    async def play():
        for number in range(4):
            await exchange(talks, f"{number}")
            print(number, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(play())
"""


def test_a_kill_loses_nothing_that_was_saved(where: Path) -> None:
    root = Path(__file__).parent.parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(where)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["0", "1", "2", "3"])
    with tertulia.open(where) as store:
        asyncio.run(exchange(TertuliaConversationStore(store), "4"))
        assert texts(store)[::2] == ["0", "1", "2", "3", "4"]
