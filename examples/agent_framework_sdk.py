"""An agent of Microsoft Agent Framework with its history in a store, beside a Telegram chat.

    python examples/agent_framework_sdk.py talk.db

Run it twice with the same file: the agent remembers. The chat client is a script, so nothing leaves
the machine; replace it with a real one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

import tertulia
from tertulia import Source
from tertulia.integrations.agent_framework import TertuliaHistoryProvider


class ScriptedClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """A model that looks at the sky if asked about rain, and counts the questions."""

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> Awaitable[ChatResponse[Any]]:
        return self._answer(messages)

    async def _answer(self, messages: Sequence[Message]) -> ChatResponse[Any]:
        questions = [message for message in messages if message.role == "user"]
        if messages[-1] is questions[-1] and "rain" in questions[-1].text:
            name = f"call_{len(messages)}"
            call = Content.from_function_call(name, "sky_over", arguments={"city": "Sevilla"})
            contents = [call]
        else:
            results = [part.result for part in messages[-1].contents if part.result]
            sky = results[-1] if results else "away"
            contents = [
                Content.from_text(f"You have asked {len(questions)} times. The sky is {sky}.")
            ]
        return ChatResponse(
            messages=[Message("assistant", contents)],
            usage_details={"input_token_count": 40 * len(messages), "output_token_count": 9},
        )


@tool(approval_mode="never_require")
def sky_over(city: Annotated[str, "which city"]) -> str:
    """Return the sky over a city."""
    return "blue"


async def run_once(store: tertulia.Store) -> str:
    """Run the agent once in the session "ana" and return its answer."""
    history = TertuliaHistoryProvider(store, model="gpt-5-mini")
    agent = Agent(ScriptedClient(), context_providers=[history], tools=[sky_over])
    session = agent.create_session(session_id="ana")
    return (await agent.run("Will it rain in Sevilla?", session=session)).text


def main(path: str) -> None:
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
