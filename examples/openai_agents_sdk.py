"""An agent of the OpenAI Agents SDK whose session is kept in a store, beside a Telegram chat.

    python examples/openai_agents_sdk.py talk.db

Run it twice with the same file: the agent remembers. The model is a script, so nothing leaves the
machine; put a real one in its place.
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
    """Looks at the sky when rain is mentioned, and says how often it has been asked something."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        assert isinstance(input, list)
        items: list[Any] = input
        asked = [item for item in items if item.get("role") == "user"]
        used = Usage(requests=1, input_tokens=40 * len(items), output_tokens=9)
        if items[-1] is asked[-1] and "rain" in str(asked[-1]["content"]):
            call = ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call_{len(items)}",
                name="sky_over",
                arguments='{"city": "Sevilla"}',
            )
            return ModelResponse(output=[call], usage=used, response_id=None)
        text = f"You have asked {len(asked)} times. The sky is {items[-1].get('output', 'away')}."
        words = ResponseOutputText(type="output_text", text=text, annotations=[])
        answer = ResponseOutputMessage(
            id=f"answer_{len(items)}",
            type="message",
            role="assistant",
            status="completed",
            content=[words],
        )
        return ModelResponse(output=[answer], usage=used, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("the script answers at once")


@function_tool
def sky_over(city: str) -> str:
    """The sky over a city."""
    return "blue"


async def talk(store: tertulia.Store) -> str:
    """One run of the agent in the session "ana"."""
    agent = Agent("Weather", model=ScriptedModel(), tools=[sky_over])
    session = TertuliaSession("ana", store, model="gpt-5-mini")
    result = await Runner.run(agent, "Will it rain in Sevilla?", session=session)
    return str(result.final_output)


def main(where: str) -> None:
    set_tracing_disabled(True)
    with tertulia.open(where) as store:
        ben = Source("telegram", "43", user_id="43", user_name="Ben")
        with store.turn(ben, "Is Sevilla far?") as turn:
            turn.add_assistant("It depends on where you are.")
        print(asyncio.run(talk(store)))
        for session in store.sessions.find().items:
            count = store.transcript(session.id).count()
            print(f"{session.key}: {count} messages, {session.usage.total} tokens")
        for hit in store.search("sevilla").items:
            print(f"found in {store.sessions.require(hit.session_id).key}: {hit.snippet}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "talk.db")
