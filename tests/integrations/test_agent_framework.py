"""A history provider of Microsoft Agent Framework, with real agents and a scripted client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    HistoryProvider,
    Message,
    ResponseStream,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st

import tertulia
from tertulia import IllegalMove, LeaseLost, SessionBusy, Source, Store, ToolCall
from tertulia.integrations import run_lease
from tertulia.integrations.agent_framework import (
    FIELD,
    PLATFORM,
    TertuliaHistoryProvider,
    find_new_messages,
)
from tests.integrations.conftest import FAST
from tests.records.store_inspection import let_lease_run_out, log_of, open_apart, turn_states

pytestmark = pytest.mark.check

ANA_SOURCE = Source(PLATFORM, "ana")
USED: Any = {
    "input_token_count": 10,
    "output_token_count": 5,
    "cache_read_input_token_count": 4,
    "reasoning_output_token_count": 2,
}


class Script(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Gives one answer after the other; a callable is called first."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)
        self.model_inputs: list[list[str]] = []

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        if stream:
            return ResponseStream(self._stream(messages), finalizer=ChatResponse.from_updates)
        return self._answer(messages)

    async def _answer(self, messages: Sequence[Message]) -> ChatResponse[Any]:
        self.model_inputs.append([message.text for message in messages])
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer()
            if asyncio.iscoroutine(answer):
                answer = await answer
        if isinstance(answer, Exception):
            raise answer
        content = Content.from_text(answer) if isinstance(answer, str) else answer
        return ChatResponse(messages=[Message("assistant", [content])], usage_details=USED)

    async def _stream(self, messages: Sequence[Message]) -> AsyncIterable[ChatResponseUpdate]:
        response = await self._answer(messages)
        yield ChatResponseUpdate(role="assistant", contents=list(response.messages[0].contents))


def call(call_id: str = "c1") -> Content:
    return Content.from_function_call(call_id, "look", arguments={"at": "sky"})


@tool(approval_mode="never_require")
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


def agent(store: Any, *answers: Any, by_call: bool = False, **options: Any) -> Agent[Any]:
    return Agent(
        Script(*answers),
        context_providers=[TertuliaHistoryProvider(store, **options)],
        tools=[look],
        require_per_service_call_history_persistence=by_call,
    )


def model_inputs(of: Agent[Any]) -> list[list[str]]:
    assert isinstance(of.client, Script)
    return of.client.model_inputs


def run(of: Agent[Any], text: str, name: str = "ana") -> str:
    async def run_agent() -> str:
        return (await of.run(text, session=of.create_session(session_id=name))).text

    return asyncio.run(run_agent())


def session_of(store: Store) -> tertulia.Session:
    result = store.sessions.current(store.sessions.key(ANA_SOURCE))
    assert result is not None
    return result


def rows(store: Store) -> list[tuple[int, str, Any]]:
    return [(row.turn, row.role, row.content) for row in log_of(store, session_of(store))]


def get(provider: TertuliaHistoryProvider, name: str | None = "ana") -> list[dict[str, Any]]:
    return [message.to_dict() for message in asyncio.run(provider.get_messages(name))]


def save(provider: TertuliaHistoryProvider, *messages: Message, name: str | None = "ana") -> None:
    asyncio.run(provider.save_messages(name, messages))


MESSAGES: dict[str, Message] = {
    "text": Message("user", ["¿Qué tal? 👩‍👩‍👧"], author_name="Ana", message_id="m1"),
    "properties": Message("user", ["x"], additional_properties={"deep": [{"a": None}, 1.5]}),
    "calls": Message("assistant", ["I look", call("c1"), call("c2")]),
    "results": Message(
        "tool",
        [
            Content.from_function_result("c1", result={"sky": "blue"}),
            Content.from_function_result("c2", result="grey"),
        ],
    ),
    "thought": Message("assistant", [Content.from_text_reasoning(text="hm"), "so"]),
    "picture": Message("user", [Content.from_uri("https://x/y.png", media_type="image/png")]),
    "file": Message("user", [Content.from_data(b"raw", media_type="application/pdf")]),
    "error": Message("assistant", [Content.from_error(message="no", error_code="7")]),
    "usage": Message("assistant", ["x", Content.from_usage(USED)]),
    "nothing": Message("assistant", []),
    "system": Message("system", ["be brief"]),
    "a new role": Message("narrator", ["meanwhile"]),
    "half a pair": Message("user", ["\ud83d\x00"]),
    "large": Message("user", ["é" * 300_000]),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_comes_back_as_it_went_in(store: Store, name: str) -> None:
    provider = TertuliaHistoryProvider(store)
    given = [Message("user", ["before"]), MESSAGES[name], Message("user", ["after"])]
    save(provider, *given)
    assert get(TertuliaHistoryProvider(store)) == [message.to_dict() for message in given]


def test_a_message_is_one_of_ours_or_several(store: Store) -> None:
    save(TertuliaHistoryProvider(store), *(MESSAGES[n] for n in ("text", "calls", "results")))
    result = store.transcript(session_of(store).id).load()
    assert [(message["role"], message["content"]) for message in result] == [
        ("user", "¿Qué tal? 👩‍👩‍👧"),
        ("assistant", "I look"),
        ("tool", '{"sky": "blue"}'),
        ("tool", "grey"),
    ]
    assert [message["id"] for message in result[1]["tool_calls"]] == ["c1", "c2"]


def test_what_cannot_be_kept_is_refused_whole(store: Store) -> None:
    bad = Message("assistant", [Content.from_function_call("c", "f", arguments={"a": object()})])
    provider = TertuliaHistoryProvider(store)
    with pytest.raises(IllegalMove):
        save(provider, Message("user", ["a"]), bad)
    assert get(provider) == []


class TestAccumulated:
    """The framework may send again what is stored."""

    ONE, TWO = Message("user", ["one"]), Message("assistant", ["two"])
    THREE, FOUR = Message("user", ["three"]), Message("assistant", ["four"])

    def test_the_whole_list_again(self, store: Store) -> None:
        provider = TertuliaHistoryProvider(store)
        save(provider, self.ONE, self.TWO)
        save(provider, self.ONE, self.TWO, self.THREE, self.FOUR)
        save(provider, self.ONE, self.TWO, self.THREE, self.FOUR)
        again = asyncio.run(provider.get_messages("ana"))
        save(TertuliaHistoryProvider(store), *again)
        assert [message.text for message in again] == ["one", "two", "three", "four"]
        assert len(log_of(store, session_of(store))) == 4

    def test_the_end_of_it_again(self, store: Store) -> None:
        provider = TertuliaHistoryProvider(store)
        save(provider, self.ONE, self.TWO, self.THREE)
        save(provider, self.TWO, self.THREE, self.FOUR)
        assert [message["contents"][0]["text"] for message in get(provider)] == [
            "one",
            "two",
            "three",
            "four",
        ]

    def test_messages_with_ids_are_told_apart_by_them(self, store: Store) -> None:
        provider = TertuliaHistoryProvider(store)
        save(provider, Message("user", ["hi"], message_id="1"))
        save(provider, Message("user", ["hi"], message_id="2"))
        save(provider, Message("user", ["hi"], message_id="2"), Message("assistant", ["yes"]))
        assert len(get(provider)) == 3

    def test_people_repeat_themselves(self, store: Store) -> None:
        provider = TertuliaHistoryProvider(store)
        save(provider, Message("user", ["hello?"]))
        save(provider, Message("user", ["hello?"]))
        assert len(get(provider)) == 2

    def test_the_same_exchange_twice_is_two(self, store: Store) -> None:
        run_agent = agent(store, "hello", "hello")
        assert [run(run_agent, "hi"), run(run_agent, "hi")] == ["hello", "hello"]
        assert len(rows(store)) == 4

    @given(
        st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=4)
    )
    def test_whatever_is_new_is_kept_in_order(self, old: list[str], new: list[str]) -> None:
        before = [Message("assistant", [text]) for text in old]
        more = [Message("user", [f"{text}!"], message_id=f"{n}") for n, text in enumerate(new)]
        fresh = find_new_messages(before[-len([*before, *more]) - 1 :], [*before, *more])
        assert [message.text for message in fresh] == [f"{text}!" for text in new]


def test_is_a_provider_of_the_framework(store: Store) -> None:
    assert isinstance(TertuliaHistoryProvider(store), HistoryProvider)
    assert TertuliaHistoryProvider(store).source_id == "tertulia"


@pytest.mark.parametrize("by_call", [False, True])
class TestRuns:
    """The same whether the framework stores once for each run or once for each model call."""

    def test_a_run_is_a_turn(self, store: Store, by_call: bool) -> None:
        run_agent = agent(store, call(), "it is blue", "you are welcome", by_call=by_call)
        assert run(run_agent, "the sky?") == "it is blue"
        assert run(run_agent, "thanks") == "you are welcome"
        assert rows(store) == [
            (1, "user", "the sky?"),
            (1, "assistant", None),
            (1, "tool", "sky is blue"),
            (1, "assistant", "it is blue"),
            (2, "user", "thanks"),
            (2, "assistant", "you are welcome"),
        ]
        assert turn_states(store) == ["answered", "answered"]
        assert model_inputs(run_agent)[-1] == ["the sky?", "", "", "it is blue", "thanks"]
        assert session_of(store).usage.total == 45
        assert session_of(store).usage.cache_read == 12

    def test_remembers_after_a_restart(self, where: Path, by_call: bool) -> None:
        for number in range(3):
            with tertulia.open(where, settings=FAST) as store:
                run_agent = agent(store, f"answer {number}", by_call=by_call)
                run(run_agent, f"question {number}")
        assert model_inputs(run_agent) == [
            ["question 0", "answer 0", "question 1", "answer 1", "question 2"],
        ]

    def test_the_lease_is_held_while_model_and_tools_run(self, store: Store, by_call: bool) -> None:
        refused = []

        def intrude() -> Content:
            with open_apart(Path(store.path)) as other, pytest.raises(SessionBusy):
                other.turn(ANA_SOURCE, "me first", wait=0).__enter__()
            refused.append(True)
            return call(f"c{len(refused)}")

        def last() -> str:
            intrude()
            return "done"

        run(agent(store, intrude, intrude, last, by_call=by_call), "hi")
        assert len(refused) == 3
        with store.turn(ANA_SOURCE, "now", wait=0) as turn:
            turn.add_assistant("yes")

    def test_what_the_person_said_is_stored_before_the_model_runs(
        self, store: Store, by_call: bool
    ) -> None:
        seen = []

        def look_at_store() -> str:
            seen.extend(rows(store))
            return "x"

        run(agent(store, look_at_store, by_call=by_call), "hi")
        assert seen == [(1, "user", "hi")]

    def test_runs_at_once_do_not_interleave(self, store: Store, by_call: bool) -> None:
        async def slow() -> str:
            await asyncio.sleep(0.01)
            return "answer"

        async def run_agent() -> None:
            agents = [agent(store, slow, by_call=by_call) for _ in range(3)]
            await asyncio.gather(
                *(message.run("hi", session=AgentSession(session_id="ana")) for message in agents)
            )

        asyncio.run(run_agent())
        assert [row[1] for row in rows(store)] == ["user", "assistant"] * 3

    def test_after_a_run_that_failed_the_next_goes_on(self, store: Store, by_call: bool) -> None:
        async def run_agent() -> str:
            broken = agent(store, RuntimeError("x"), "fine", by_call=by_call, wait=0)
            session = broken.create_session(session_id="ana")
            try:
                await broken.run("one", session=session)
            except RuntimeError:
                return (await broken.run("two", session=session)).text
            return "nothing failed"

        assert asyncio.run(run_agent()) == "fine"
        assert [row[2] for row in rows(store)] == ["one", "two", "fine"]

    def test_a_run_that_is_late_fails(self, store: Store, by_call: bool) -> None:
        def overtaken() -> str:
            let_lease_run_out(store, session_of(store))
            with open_apart(Path(store.path)) as other, other.turn(ANA_SOURCE, "second") as turn:
                turn.add_assistant("done")
            return "too late"

        with pytest.raises(LeaseLost):
            run(agent(store, overtaken, by_call=by_call), "first")
        assert [row[2] for row in rows(store)] == ["first", "second", "done"]

    def test_a_stream_is_stored_when_it_has_ended(self, store: Store, by_call: bool) -> None:
        async def run_agent() -> None:
            streamed = agent(store, "bit by bit", by_call=by_call)
            session = streamed.create_session(session_id="ana")
            async for _ in streamed.run("hi", session=session, stream=True):
                pass

        asyncio.run(run_agent())
        assert [row[2] for row in rows(store)] == ["hi", "bit by bit"]
        assert run_lease._held_turns == {}


def test_flags_of_the_framework_hold(store: Store) -> None:
    run(agent(store, "a", store_outputs=False), "q")
    assert [row[2] for row in rows(store)] == ["q"]
    run(agent(store, "b", store_inputs=False), "p")
    assert [row[2] for row in rows(store)] == ["q", "b"]
    blind = agent(store, "c", load_messages=False)
    run(blind, "r")
    assert model_inputs(blind) == [["r"]]
    assert [row[2] for row in rows(store)] == ["q", "b", "r", "c"]


def test_what_was_excluded_may_be_left_out(store: Store) -> None:
    out = Message("user", ["old"], additional_properties={"_excluded": True})
    save(TertuliaHistoryProvider(store), out, Message("user", ["new"]))
    assert len(get(TertuliaHistoryProvider(store))) == 2
    assert len(get(TertuliaHistoryProvider(store, skip_excluded=True))) == 1


def test_a_session_without_an_id_is_the_default_one(store: Store) -> None:
    provider = TertuliaHistoryProvider(store)
    save(provider, Message("user", ["x"]), name=None)
    assert len(get(provider, None)) == 1
    assert get(provider, "other") == []


def test_messages_of_other_writers_are_part_of_the_history(store: Store) -> None:
    with store.turn(ANA_SOURCE, "the sky?") as turn:
        turn.add_assistant("I look.", tool_calls=[ToolCall("c1", "look", {"at": "sky"})])
        turn.add_tool_result("c1", "blue")
        turn.add_assistant("It is blue.")
    transcript = store.transcript(turn.session.id)
    transcript.append({"role": "system", "content": "be brief", FIELD: "not ours"})
    result = asyncio.run(TertuliaHistoryProvider(store).get_messages("ana"))
    assert [(message.role, message.text) for message in result] == [
        ("user", "the sky?"),
        ("assistant", "I look."),
        ("tool", ""),
        ("assistant", "It is blue."),
        ("system", "be brief"),
    ]
    assert [part.call_id for part in result[1].contents if part.type == "function_call"] == ["c1"]
    assert result[2].contents[0].result == "blue"


def test_takes_an_async_store(where: Path) -> None:
    async def run_agent() -> int:
        async with tertulia.aio.open(where, settings=FAST) as store:
            message = agent(store, "hello")
            await message.run("hi", session=message.create_session(session_id="ana"))
            return len(await TertuliaHistoryProvider(store).get_messages("ana"))

    assert asyncio.run(run_agent()) == 2


def test_undo_takes_back_a_run(store: Store) -> None:
    run_agent = agent(store, call(), "blue", "x")
    run(run_agent, "the sky?")
    run(run_agent, "thanks")
    store.transcript(session_of(store).id).undo()
    assert len(get(TertuliaHistoryProvider(store))) == 4


def test_a_run_that_failed_elsewhere_gives_the_session_back(store: Store) -> None:
    with pytest.raises(RuntimeError):
        run(agent(store, RuntimeError("x")), "one")
    (held_turn,) = run_lease._held_turns[(os.path.realpath(store.path), session_of(store).key)]
    assert not held_turn.turn.sync.renew()
    with open_apart(Path(store.path)) as other, other.turn(ANA_SOURCE, "two", wait=0) as turn:
        turn.add_assistant("fine")
