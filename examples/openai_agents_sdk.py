"""An agent of the OpenAI Agents SDK with its session in a store, beside a Telegram chat.

    python examples/openai_agents_sdk.py talk.db

Run it twice with the same file: the agent remembers. The model is a script, so nothing leaves the
machine; replace it with a real one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import tertulia
from tertulia import Source
from tertulia.integrations.openai_agents import TertuliaSession


class ScriptedModel(Model):
    """A model that looks at the sky if asked about rain, and counts the questions."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        assert isinstance(input, list)
        items: list[Any] = input
        questions = [item for item in items if item.get("role") == "user"]
        used = Usage(requests=1, input_tokens=40 * len(items), output_tokens=9)
        if items[-1] is questions[-1] and "rain" in str(questions[-1]["content"]):
            call = ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call_{len(items)}",
                name="sky_over",
                arguments='{"city": "Sevilla"}',
            )
            return ModelResponse(output=[call], usage=used, response_id=None)
        text = (
            f"You have asked {len(questions)} times. The sky is {items[-1].get('output', 'away')}."
        )
        part = ResponseOutputText(type="output_text", text=text, annotations=[])
        answer = ResponseOutputMessage(
            id=f"answer_{len(items)}",
            type="message",
            role="assistant",
            status="completed",
            content=[part],
        )
        return ModelResponse(output=[answer], usage=used, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("the scripted model does not stream")


@function_tool
def sky_over(city: str) -> str:
    """Return the sky over a city."""
    return "blue"


async def run_once(store: tertulia.Store) -> str:
    """Run the agent once in the session "ana" and return its answer."""
    agent = Agent("Weather", model=ScriptedModel(), tools=[sky_over])
    session = TertuliaSession("ana", store, model="gpt-5-mini")
    result = await Runner.run(agent, "Will it rain in Sevilla?", session=session)
    return str(result.final_output)


def main(path: str) -> None:
    set_tracing_disabled(True)
    with tertulia.open(path) as store:
        ben = Source("telegram", "43", user_id="43", user_name="Ben")
        with store.turn(ben, "Is Sevilla far?") as turn:
            turn.add_assistant("It depends on where you are.")
        print(asyncio.run(run_once(store)))
        for session in store.sessions.find().items:
            count = store.transcript(session.id).count()
            print(f"{session.key}: {count} messages, {session.usage.total} tokens")
        for hit in store.search("sevilla").items:
            print(f"found in {store.sessions.require(hit.session_id).key}: {hit.snippet}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "talk.db")
