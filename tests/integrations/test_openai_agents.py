"""A session of the OpenAI Agents SDK, with the real runner and a scripted model."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse, TResponseStreamEvent
from agents.memory import Session, SessionSettings
from agents.models.interface import Model
from agents.run_internal.session_persistence import rewind_session_items
from agents.usage import Usage as RunUsage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

import tertulia
from tertulia import (
    ConfigError,
    IllegalMove,
    LeaseLost,
    SessionBusy,
    Source,
    Store,
    ToolCall,
    Usage,
)
from tertulia.integrations import run_lease
from tertulia.integrations.openai_agents import FIELD, PLATFORM, TertuliaSession, message_of
from tertulia.testing import FakeClock
from tests.integrations.conftest import FAST
from tests.records.store_inspection import ANA, let_lease_run_out, log_of, open_apart, turn_states

pytestmark = pytest.mark.check

set_tracing_disabled(True)

ANA_SOURCE = Source(PLATFORM, "ana")


def user_item(text: str) -> Any:
    return {"role": "user", "content": text}


def answer_item(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="m", type="message", role="assistant", status="completed", content=[part]
    )


def call(name: str = "look", call_id: str = "c1") -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", call_id=call_id, name=name, arguments='{"at": "sky"}'
    )


def request_usage(count: int = 10) -> RunUsage:
    return RunUsage(
        requests=1,
        input_tokens=count,
        output_tokens=5,
        total_tokens=count + 5,
        input_tokens_details=InputTokensDetails.model_validate(
            {"cached_tokens": 4, "cache_write_tokens": 0}
        ),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=2),
    )


class Script(Model):
    """Gives one answer after the other; a callable is called with what the model is shown."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.model_inputs: list[list[Any]] = []

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        self.model_inputs.append(list(input))
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer(input)
            if asyncio.iscoroutine(answer):
                answer = await answer
        if isinstance(answer, Exception):
            raise answer
        output = answer if isinstance(answer, list) else [answer]
        output = [answer_item(item) if isinstance(item, str) else item for item in output]
        return ModelResponse(output=output, usage=request_usage(), response_id=None)

    async def stream_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        done = await self.get_response(system_instructions, input)
        response = Response(
            id="r",
            created_at=0,
            model="script",
            object="response",
            output=done.output,
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
            usage=ResponseUsage(
                input_tokens=10,
                output_tokens=5,
                total_tokens=15,
                input_tokens_details=done.usage.input_tokens_details,
                output_tokens_details=done.usage.output_tokens_details,
            ),
        )
        yield ResponseCompletedEvent(
            type="response.completed", response=response, sequence_number=0
        )


@function_tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


def agent(*answers: Any) -> Agent[Any]:
    return Agent("A", model=Script(*answers), tools=[look])


def model_inputs(of: Agent[Any]) -> list[list[Any]]:
    assert isinstance(of.model, Script)
    return of.model.model_inputs


def run(of: Agent[Any], text: str, session: TertuliaSession) -> Any:
    return asyncio.run(Runner.run(of, text, session=session)).final_output


def items(session: TertuliaSession, limit: int | None = None) -> list[Any]:
    return list(asyncio.run(session.get_items(limit)))


def session_of(store: Store, source: Source = ANA_SOURCE) -> tertulia.Session:
    result = store.sessions.current(store.sessions.key(source))
    assert result is not None
    return result


# -- items

ITEMS: dict[str, Any] = {
    "easy": user_item("¿Qué tal? 👩‍👩‍👧"),
    "typed": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    "developer": {"role": "developer", "content": "be brief"},
    "answer": {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "hola", "annotations": [], "logprobs": None}],
    },
    "refusal": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}],
    },
    "picture": {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}],
    },
    "call": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": None},
    "result": {"type": "function_call_output", "call_id": "c", "output": "done"},
    "parts as a result": {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": "x"}],
    },
    "thought": {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "zzz"},
    "hosted": {"type": "web_search_call", "id": "w", "status": "completed", "action": {"q": "x"}},
    "of tomorrow": {"type": "telepathy", "thought": {"deep": [1, 2.5, None, True]}},
    "nothing": {},
    "odd types": {"role": 7, "type": ["x"], "content": {"a": 1}, "call_id": None},
    "an odd result": {"type": "x_output", "call_id": None, "output": None},
    "no arguments": {"type": "function_call", "call_id": None, "name": None},
    "half a pair": {"role": "user", "content": "\ud83d", "\udc00": "\x00"},
    "great numbers": {"role": "user", "content": "n", "n": [2**80, 0.1 + 0.2, -0.0]},
    "large": {"role": "user", "content": "é" * 300_000},
}


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_comes_back_as_it_went_in(store: Store, name: str) -> None:
    session = TertuliaSession("ana", store)
    asyncio.run(session.add_items([user_item("before"), ITEMS[name], user_item("after")]))
    again = TertuliaSession("ana", store)
    assert items(again) == [user_item("before"), ITEMS[name], user_item("after")]
    assert list(items(again)[1]) == list(ITEMS[name])  # in the same order too


def test_an_item_is_a_message_of_ours(store: Store) -> None:
    session = TertuliaSession("ana", store)
    item_names = ["typed", "developer", "thought", "call", "result", "hosted", "answer"]
    asyncio.run(session.add_items([ITEMS[name] for name in item_names]))
    result = store.transcript(session_of(store).id).load()
    assert [(item["role"], item["content"]) for item in result] == [
        ("user", "a"),
        ("system", "be brief"),
        ("assistant", None),
        ("assistant", None),
        ("tool", "done"),
        ("assistant", "[web_search_call]"),
        ("assistant", "hola"),
    ]
    assert result[3]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert [hit.seq for hit in store.search("hola").items] == [7]


def test_a_large_item_is_kept_once(store: Store, where: Path) -> None:
    store.vacuum()
    empty = where.stat().st_size
    large = os.urandom(400_000).hex()
    asyncio.run(TertuliaSession("ana", store).add_items([user_item(large)]))
    assert items(TertuliaSession("ana", store)) == [user_item(large)]
    store.vacuum()
    assert where.stat().st_size - empty < 700_000  # twice would be more, even compressed


@pytest.mark.parametrize("bad", ["text", None, 5, {"role": "user", "content": object()}, {1: 2}])
def test_of_items_with_a_bad_one_none_is_stored(store: Store, bad: Any) -> None:
    session = TertuliaSession("ana", store)
    asyncio.run(session.add_items([user_item("a")]))
    with pytest.raises(IllegalMove):
        asyncio.run(session.add_items([user_item("b"), bad]))
    assert items(session) == [user_item("a")]


# -- what the SDK asks of a session


def test_is_a_session_of_the_sdk(store: Store) -> None:
    assert isinstance(TertuliaSession("ana", store), Session)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, [0, 1, 2]), (0, []), (-1, []), (1, [2]), (2, [1, 2]), (3, [0, 1, 2]), (9, [0, 1, 2])],
)
def test_a_limit_gives_the_newest_in_order(
    store: Store, limit: int | None, expected: list[int]
) -> None:
    session = TertuliaSession("ana", store)
    asyncio.run(session.add_items([user_item(str(number)) for number in range(3)]))
    assert items(session, limit) == [user_item(str(number)) for number in expected]


def test_a_limit_of_the_settings_gives_way_to_one_that_is_asked(store: Store) -> None:
    session = TertuliaSession("ana", store, SessionSettings(limit=1))
    asyncio.run(session.add_items([user_item("a"), user_item("b")]))
    assert items(session) == [user_item("b")]
    assert items(session, 2) == [user_item("a"), user_item("b")]
    thrifty = agent("x")
    run(thrifty, "c", session)
    assert model_inputs(thrifty) == [[user_item("b"), user_item("c")]]


def test_pop_gives_exactly_the_newest_until_there_is_none(store: Store) -> None:
    session = TertuliaSession("ana", store)
    item_names = [ITEMS[name] for name in ("easy", "call", "result", "of tomorrow")]
    asyncio.run(session.add_items(item_names))
    popped_items = [asyncio.run(session.pop_item()) for _ in range(5)]
    assert popped_items == [*reversed(item_names), None]
    assert items(session) == []


def test_nothing_that_is_popped_or_cleared_is_destroyed(store: Store) -> None:
    session = TertuliaSession("ana", store)
    asyncio.run(session.add_items([user_item("a"), user_item("b")]))
    asyncio.run(session.pop_item())
    asyncio.run(session.add_items([user_item("c")]))
    asyncio.run(session.clear_session())
    assert items(session) == []
    transcript = store.transcript(session_of(store).id)
    assert [row.content for row in log_of(store, session_of(store))] == ["a", "b", "c"]
    transcript.restore(1)
    assert items(session) == [user_item("a"), user_item("b")]


def test_to_look_at_a_session_makes_none(store: Store) -> None:
    session = TertuliaSession("ana", store)
    asyncio.run(session.add_items([]))
    asyncio.run(session.clear_session())
    assert (items(session), asyncio.run(session.pop_item())) == ([], None)
    assert store.sessions.count() == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda session: session.add_items([]),
        lambda session: session.add_items([user_item("x")]),
        lambda session: session.get_items(),
        lambda session: session.get_items(0),
        lambda session: session.pop_item(),
        lambda session: session.clear_session(),
    ],
)
def test_a_closed_session_refuses_everything(
    store: Store, use: Callable[[TertuliaSession], Any]
) -> None:
    session = TertuliaSession("ana", store)
    asyncio.run(session.add_items([user_item("a")]))
    session.close()
    with pytest.raises(IllegalMove, match="was closed"):
        asyncio.run(use(session))
    assert items(TertuliaSession("ana", store)) == [user_item("a")]  # the store is not


def test_closing_may_be_awaited(store: Store) -> None:
    async def close() -> None:
        await TertuliaSession("ana", store).close()

    asyncio.run(close())


def test_ids_that_look_alike_are_conversations_of_their_own(store: Store) -> None:
    for name in ("a:b", "a%3Ab", "a", "A", " a", "a/b", "", "ä", "a\u0308"):
        asyncio.run(TertuliaSession(name, store).add_items([user_item(f"of {name!r}")]))
        assert items(TertuliaSession(name, store)) == [user_item(f"of {name!r}")]


def test_takes_an_async_store(where: Path) -> None:
    async def run_agent() -> list[Any]:
        async with tertulia.aio.open(where, settings=FAST) as store:
            session = TertuliaSession("ana", store)
            await Runner.run(agent("hello"), "hi", session=session)
        async with tertulia.aio.open(where, settings=FAST) as store:
            return list(await TertuliaSession("ana", store).get_items())

    assert [item["role"] for item in asyncio.run(run_agent())] == ["user", "assistant"]


def test_takes_nothing_else() -> None:
    with pytest.raises(ConfigError, match="Expected a store"):
        TertuliaSession("ana", "talk.db")  # type: ignore[arg-type]


# -- runs


def test_a_run_is_a_turn(store: Store) -> None:
    session = TertuliaSession("ana", store)
    assert run(agent(call(), "it is blue"), "the sky?", session) == "it is blue"
    assert run(agent("you are welcome"), "thanks", session) == "you are welcome"
    rows = log_of(store, session_of(store))
    assert [(row.turn, row.role) for row in rows] == [
        (1, "user"),
        (1, "assistant"),
        (1, "tool"),
        (1, "assistant"),
        (2, "user"),
        (2, "assistant"),
    ]
    assert turn_states(store) == ["answered", "answered"]
    assert store.transcript(session_of(store).id).undo() == 1
    assert len(items(session)) == 4


def test_a_streamed_run_is_a_turn_too(store: Store) -> None:
    async def run_agent() -> None:
        run_result = Runner.run_streamed(
            agent(call(), "it is blue"), "the sky?", session=TertuliaSession("ana", store)
        )
        async for _ in run_result.stream_events():
            pass

    asyncio.run(run_agent())
    rows = log_of(store, session_of(store))
    assert [(row.turn, row.role) for row in rows] == [
        (1, "user"),
        (1, "assistant"),
        (1, "tool"),
        (1, "assistant"),
    ]
    assert session_of(store).usage.total == 30
    assert run_lease._held_turns == {}


def test_a_tool_may_add_items_by_hand(store: Store) -> None:
    session = TertuliaSession("ana", store, wait=0)

    @function_tool
    async def note(at: str) -> str:
        """Note something."""
        await session.add_items([user_item("a note")])
        return "noted"

    async def run_agent() -> None:
        script = Script(call("note"), "done")
        await Runner.run(Agent("A", model=script, tools=[note]), "note it", session=session)

    asyncio.run(run_agent())
    contents = [row.content for row in log_of(store, session_of(store))]
    assert contents == ["note it", "a note", None, "noted", "done"]
    assert turn_states(store) == ["answered"]


def test_the_lease_is_taken_before_the_model_runs(store: Store) -> None:
    refused: list[bool] = []

    def intrude(_: Any) -> str:
        with open_apart(Path(store.path)) as other, pytest.raises(SessionBusy):
            other.turn(ANA_SOURCE, "me first", wait=0).__enter__()
        refused.append(True)
        return "nobody came"

    run(agent(intrude), "hi", TertuliaSession("ana", store))
    assert refused == [True]
    with store.turn(ANA_SOURCE, "now", wait=0) as turn:  # and given back with the answer
        turn.add_assistant("yes")


def test_runs_at_once_do_not_interleave(store: Store) -> None:
    async def slow(_: Any) -> str:
        await asyncio.sleep(0.01)
        return "answer"

    async def run_agent() -> None:
        first, second = TertuliaSession("ana", store), TertuliaSession("ana", store)
        runs = [
            Runner.run(agent(slow), f"{index}", session=(first, second, first, second)[index])
            for index in range(4)
        ]
        await asyncio.gather(*runs)

    asyncio.run(run_agent())
    rows = log_of(store, session_of(store))
    assert [row.role for row in rows] == ["user", "assistant"] * 4
    assert [row.turn for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_run_that_is_late_fails_and_the_other_stays_whole(store: Store) -> None:
    def overtaken(_: Any) -> str:
        let_lease_run_out(store, session_of(store))
        with open_apart(Path(store.path)) as other, other.turn(ANA_SOURCE, "second") as turn:
            turn.add_assistant("done")
        return "too late"

    with pytest.raises(LeaseLost):
        run(agent(overtaken), "first", TertuliaSession("ana", store))
    rows = log_of(store, session_of(store))
    assert [row.content for row in rows] == ["first", "second", "done"]


def test_after_a_run_that_failed_the_next_one_goes_on_at_once(store: Store) -> None:
    async def run_agent() -> None:
        session = TertuliaSession("ana", store, wait=0)
        try:
            await Runner.run(agent(RuntimeError("broken")), "one", session=session)
        except RuntimeError:  # its context is alive as long as the error is
            await Runner.run(agent("fine"), "two", session=session)

    asyncio.run(run_agent())
    again = agent("fine")
    run(again, "three", TertuliaSession("ana", store, wait=0))
    questions = [item["content"] for item in model_inputs(again)[0] if item.get("role") == "user"]
    assert questions == ["one", "two", "three"]  # what the person said is kept, whatever happens


def test_a_run_that_failed_elsewhere_gives_the_session_back(store: Store) -> None:
    session = TertuliaSession("ana", store)
    with pytest.raises(RuntimeError):
        run(agent(RuntimeError("broken")), "one", session)
    (held_turn,) = run_lease._held_turns[(os.path.realpath(store.path), session_of(store).key)]
    assert not held_turn.turn.sync.renew()  # as whoever renews leases would find out
    with open_apart(Path(store.path)) as other, other.turn(ANA_SOURCE, "two", wait=0) as turn:
        turn.add_assistant("fine")


def test_closing_gives_the_session_back(store: Store) -> None:
    async def run_agent() -> None:
        session = TertuliaSession("ana", store)
        try:
            await Runner.run(agent(RuntimeError("broken")), "one", session=session)
        except RuntimeError:
            session.close()
            with (
                open_apart(Path(store.path)) as other,
                other.turn(ANA_SOURCE, "two", wait=0) as turn,
            ):
                turn.add_assistant("fine")

    asyncio.run(run_agent())


def test_a_run_that_waits_for_a_person_is_not_renewed_for_ever(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_lease, "LONGEST_SILENCE", -1.0)

    def silent(_: Any) -> str:
        (held_turn,) = run_lease._held_turns[(os.path.realpath(store.path), session_of(store).key)]
        assert not held_turn.turn.sync.renew()
        return "but nobody came"

    assert run(agent(silent), "hi", TertuliaSession("ana", store)) == "but nobody came"


def test_a_call_waits_for_consent_over_a_restart(store: Store) -> None:
    @function_tool(needs_approval=True)
    def launch(at: str) -> str:
        """Launch something."""
        return f"launched at {at}"

    async def run_agent() -> list[Any]:
        script = Script(call("launch"), "it is away")
        careful: Agent[Any] = Agent("A", model=script, tools=[launch])
        first = await Runner.run(careful, "launch it", session=TertuliaSession("ana", store))
        assert len(first.interruptions) == 1
        state = first.to_state()
        state.approve(first.interruptions[0])
        session = TertuliaSession("ana", store)
        second = await Runner.run(careful, state, session=session)
        assert second.final_output == "it is away"
        return list(await session.get_items())

    kinds = [item.get("type") or item["role"] for item in asyncio.run(run_agent())]
    assert kinds == ["user", "function_call", "function_call_output", "message"]


def test_the_runner_rewinds_exactly_what_it_stored(store: Store) -> None:
    async def rewind() -> list[Any]:
        session = TertuliaSession("ana", store)
        await session.add_items([user_item("a"), user_item("b"), ITEMS["call"]])
        await rewind_session_items(session, [user_item("b"), ITEMS["call"]])
        return list(await session.get_items())

    assert asyncio.run(rewind()) == [user_item("a")]


def test_streaming_goes_on_after_a_run_that_failed(store: Store) -> None:
    """A streamed run asks for the history in a task of its own, started by the one that failed."""

    async def run_agents() -> str:
        session = TertuliaSession("ana", store, wait=0)
        with pytest.raises(RuntimeError) as failure:
            await Runner.run(agent(RuntimeError("no luck")), "one", session=session)
        assert failure.value.__traceback__ is not None  # it keeps the context of the run alive
        streamed = Runner.run_streamed(agent("fine"), "two", session=session)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)

    assert asyncio.run(run_agents()) == "fine"


def test_streaming_goes_on_after_a_run_that_waits_for_approval(store: Store) -> None:
    @function_tool(needs_approval=True)
    def launch(at: str) -> str:
        """Launch something."""
        return f"launched at {at}"

    async def run_agents() -> str:
        session = TertuliaSession("ana", store, wait=0)
        careful: Agent[Any] = Agent("A", model=Script(call("launch"), "away"), tools=[launch])
        first = await Runner.run(careful, "launch it", session=session)
        assert len(first.interruptions) == 1
        state = first.to_state()
        state.approve(first.interruptions[0])
        streamed = Runner.run_streamed(careful, state, session=session)
        async for _ in streamed.stream_events():
            pass
        return str(streamed.final_output)

    assert asyncio.run(run_agents()) == "away"


def test_run_within_a_run_of_the_same_session_is_refused(store: Store) -> None:
    """A tool that starts a run in a task of its own must not end the run that called it."""
    session = TertuliaSession("ana", store, wait=0)

    @function_tool
    async def look(at: str) -> str:
        """Look."""
        inner = asyncio.create_task(Runner.run(agent("inner"), "inner", session=session))
        with pytest.raises(SessionBusy):
            await inner
        return "busy"

    outer: Agent[Any] = Agent("A", model=Script(call(), "done"), tools=[look])
    assert run(outer, "look", session) == "done"


@pytest.mark.parametrize("name", ["pop_item", "clear_session"])
def test_cancelled_call_that_waits_for_the_database_changes_nothing(
    store: Store, name: str
) -> None:
    session = TertuliaSession("ana", store)

    async def cancel() -> list[Any]:
        await session.add_items([user_item("a"), user_item("b")])
        with open_apart(Path(store.path)) as other:
            locked, unlock = threading.Event(), threading.Event()

            def hold(_: Any) -> None:
                locked.set()
                unlock.wait(30)

            holder = threading.Thread(target=other.context.write, args=(hold,))
            holder.start()
            await asyncio.to_thread(locked.wait, 30)
            task = asyncio.create_task(getattr(session, name)())
            await asyncio.sleep(0.05)  # whether it waits already or has not begun: the same result
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            unlock.set()
            await asyncio.to_thread(holder.join)
        await session.add_items([user_item("c")])  # written after whatever waited before it
        return list(await session.get_items())

    assert asyncio.run(cancel()) == [user_item("a"), user_item("b"), user_item("c")]


# -- usage


def test_each_model_call_is_in_the_ledger_once(store: Store) -> None:
    session = TertuliaSession("ana", store, model="gpt-5-mini")
    run(agent(call(), "blue"), "the sky?", session)
    run(agent("welcome"), "thanks", session)
    asyncio.run(session.add_items([user_item("by hand")]))
    request_usage = session_of(store).usage
    assert (
        request_usage.input,
        request_usage.cache_read,
        request_usage.output,
        request_usage.reasoning,
    ) == (18, 12, 15, 6)
    assert session_of(store).last_prompt_tokens == 10
    assert store.usage.sum("model")["gpt-5-mini"].total == 45
    assert store.usage.sum("platform")[PLATFORM].total == 45


def test_usage_of_runs_at_once_is_not_mixed_up(store: Store) -> None:
    async def run_agent() -> None:
        session = TertuliaSession("ana", store)
        await asyncio.gather(
            *(Runner.run(agent(call(), "x"), f"{n}", session=session) for n in range(3))
        )

    asyncio.run(run_agent())
    assert session_of(store).usage.total == 3 * 2 * 15


def test_a_budget_refuses_before_the_model_is_called(where: Path) -> None:
    limit = tertulia.Budget(per="session", tokens=10)
    settings = tertulia.Settings(zone="UTC", durability="fast", budgets=(limit,))
    with tertulia.open(where, settings=settings) as store:
        run(agent("dear"), "one", TertuliaSession("ana", store))
        refused = agent("never said")
        with pytest.raises(tertulia.BudgetExceeded):
            run(refused, "two", TertuliaSession("ana", store))
        assert model_inputs(refused) == []


# -- conversations of other writers


def test_an_agent_goes_on_in_a_chat(store: Store) -> None:
    with store.turn(ANA, "the sky?") as turn:
        turn.add_assistant("I look.", tool_calls=[ToolCall("c1", "look", {"at": "sky"})])
        turn.add_tool_result("c1", "blue")
        turn.add_assistant("It is blue.", usage=Usage(1, 1))
    session = TertuliaSession("any name", store, source=ANA)
    assert items(session) == [
        {"role": "user", "content": "the sky?"},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"sky"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "blue"},
        {"role": "assistant", "content": "It is blue."},
    ]
    assert items(session, 3) == items(session)[2:]
    reminded = agent("As I said.")
    run(reminded, "sure?", session)
    assert len(model_inputs(reminded)[0]) == 6
    assert store.transcript(turn.session.id).history()[-1]["content"] == "As I said."


def test_pop_takes_one_item_of_a_message_with_several(store: Store) -> None:
    with store.turn_control(ANA, "the sky?") as turn:
        calls = [ToolCall("c1", "look", {}), ToolCall("c2", "look", {})]
        turn.extend([{"role": "assistant", "content": "I look.", "tool_calls": [
            item.to_dict() for item in calls]}])  # fmt: skip
        turn.leave(keep_calls=True)
    session = TertuliaSession("x", store, source=ANA)
    before = items(session)
    assert asyncio.run(session.pop_item()) == before[-1]
    assert items(session) == before[:-1]


def test_messages_of_others_that_hold_no_item_are_skipped(store: Store) -> None:
    stored = store.sessions.open(ANA)
    odd: list[dict[str, Any]] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": 5},
    ]
    store.transcript(stored.id).extend(odd)
    session = TertuliaSession("x", store, source=ANA)
    assert items(session) == [{"role": "user", "content": "hello"}]
    assert asyncio.run(session.pop_item()) == {"role": "user", "content": "hello"}
    assert asyncio.run(session.pop_item()) is None


def test_what_was_cut_off_elsewhere_is_no_item(store: Store) -> None:
    with store.turn(ANA, "the sky?") as turn:
        turn.add_assistant(None, tool_calls=[ToolCall("c1", "look", {})])
    session = TertuliaSession("x", store, source=ANA)
    assert [item.get("type") for item in items(session)] == [None, "function_call"]
    assert items(session, 1) == items(session)[1:]
    assert asyncio.run(session.pop_item()) == {
        "type": "function_call",
        "call_id": "c1",
        "name": "look",
        "arguments": "{}",
    }


def test_a_session_of_the_store_is_found_by_its_id(store: Store) -> None:
    with store.turn(ANA, "hi") as turn:
        turn.add_assistant("hello")
    session = TertuliaSession(turn.session.id, store)
    assert len(items(session)) == 2
    run(agent("again"), "more", session)
    assert store.transcript(turn.session.id).count() == 4


def test_a_session_that_has_ended_stays_ended(store: Store) -> None:
    with store.turn(ANA, "hi") as turn:
        turn.add_assistant("hello")
    store.sessions.reset(turn.session.key)
    session = TertuliaSession(turn.session.id, store)
    assert len(items(session)) == 2
    with pytest.raises(IllegalMove, match="has ended"):
        asyncio.run(session.add_items([user_item("x")]))
    with pytest.raises(IllegalMove, match="has ended"):
        run(agent("x"), "x", session)
    store.sessions.switch(turn.session.key, turn.session.id)
    asyncio.run(session.add_items([user_item("x")]))
    assert len(items(session)) == 3


def test_ended_by_hand_a_name_begins_afresh(store: Store) -> None:
    session = TertuliaSession("ana", store)
    asyncio.run(session.add_items([user_item("a")]))
    store.sessions.end(session_of(store).id, "done")
    assert items(session) == []
    asyncio.run(session.add_items([user_item("b")]))
    assert items(session) == [user_item("b")]
    assert store.sessions.count() == 2


def test_a_name_is_not_forgotten_overnight(where: Path) -> None:
    clock = FakeClock()
    with tertulia.open(where, settings=FAST, clock=clock) as store:
        asyncio.run(TertuliaSession("ana", store).add_items([user_item("a")]))
        clock.forward(days=40)
        asyncio.run(TertuliaSession("ana", store).add_items([user_item("b")]))
        assert items(TertuliaSession("ana", store)) == [user_item("a"), user_item("b")]
        assert store.sessions.expired().items == ()


def test_a_chat_keeps_its_policy(where: Path) -> None:
    clock = FakeClock()
    with tertulia.open(where, settings=FAST, clock=clock) as store:
        session = TertuliaSession("x", store, source=ANA)
        asyncio.run(session.add_items([user_item("a")]))
        clock.forward(days=2)
        assert items(session) == []
        asyncio.run(session.add_items([user_item("b")]))
        assert items(session) == [user_item("b")]


def test_fields_of_others_under_our_name_do_no_harm(store: Store) -> None:
    transcript = store.transcript(store.sessions.open(ANA_SOURCE).id)
    transcript.append({"role": "user", "content": "hi", FIELD: {"json": 5}})
    assert items(TertuliaSession("ana", store)) == [user_item("hi")]
    assert message_of(user_item("x"))[FIELD] == {"value": user_item("x")}


# -- processes

CHILD = """
    import asyncio, os, signal, sys
    import tertulia
    from agents import Runner
    from tests.integrations.test_openai_agents import agent, TertuliaSession
    where, name, how = sys.argv[1:]
    # Who dies is not waited for long; who lives may not lose its lease on a busy machine.
    lease = 1 if how == "dies" else 60
    store = tertulia.open(where, settings=tertulia.Settings(zone="UTC", lease_seconds=lease))
    session = TertuliaSession("ana", store)

    def die(_):
        os.kill(os.getpid(), signal.SIGKILL)

    async def slow(_):
        await asyncio.sleep(0.005)
        return name

    async def talk():
        for number in range(5):
            script = (die,) if how == "dies" else (slow,)
            await Runner.run(agent(*script), f"{name} {number}", session=session)

    asyncio.run(talk())
"""


def child(where: Path, name: str, how: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parent.parent.parent
    program = [sys.executable, "-c", textwrap.dedent(CHILD), str(where), name, how]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    return subprocess.Popen(program, env=environment, cwd=root)


def test_two_processes_on_one_session(store: Store, where: Path) -> None:
    children = [child(where, name, "lives") for name in ("one", "two")]
    assert [item.wait(120) for item in children] == [0, 0]
    rows = log_of(store, session_of(store))
    assert [row.role for row in rows] == ["user", "assistant"] * 10
    for question, answer in zip(rows[::2], rows[1::2], strict=True):
        assert question.content.startswith(answer.content)
        assert question.turn == answer.turn


def test_a_process_that_is_killed_loses_nothing_it_was_told(store: Store, where: Path) -> None:
    asyncio.run(TertuliaSession("ana", store).add_items([user_item("before")]))
    assert child(where, "one", "dies").wait(120) == -signal.SIGKILL
    assert items(TertuliaSession("ana", store)) == [user_item("before"), user_item("one 0")]
    session = TertuliaSession("ana", store, wait=30)
    assert run(agent("I am back"), "and now?", session) == "I am back"
    assert [row.turn for row in log_of(store, session_of(store))] == [1, 2, 3, 3]


def test_no_thread_is_left_behind(store: Store) -> None:
    run(agent("x"), "hi", TertuliaSession("ana", store))
    names = {thread.name for thread in threading.enumerate()}
    assert not [name for name in names if name.startswith("asyncio")]


def test_arguments_of_a_wrong_type_are_refused(store: Store) -> None:
    session = TertuliaSession("chat", store)
    for call in (
        lambda: TertuliaSession(5, store),  # type: ignore[arg-type]
        lambda: asyncio.run(session.get_items("all")),  # type: ignore[arg-type]
        lambda: asyncio.run(session.add_items(None)),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            call()
