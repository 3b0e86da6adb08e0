"""An agent of Pydantic AI whose conversations are kept in a store, its Telegram chat as well.

    python examples/pydantic_ai_sdk.py talk.db

Run it twice with the same file: the agent remembers. The model is a script, so nothing leaves the
machine; put a real one in its place.
"""

from __future__ import annotations

import asyncio
import sys

from pydantic_ai import Agent, Conversation, ModelMessage
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import tertulia
from tertulia import Source
from tertulia.integrations.pydantic_ai import (
    TertuliaConversationStore,
    add_run,
    message_history,
)


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Looks at the sky when rain is mentioned, and says how often it has been asked something."""
    parts = [part for message in messages for part in message.parts]
    asked = [part for part in parts if isinstance(part, UserPromptPart)]
    last = parts[-1]
    if last is asked[-1] and "rain" in str(asked[-1].content):
        call_id = f"call_{len(messages)}"
        return ModelResponse(parts=[ToolCallPart("sky_over", {"city": "Sevilla"}, call_id)])
    sky = last.content if isinstance(last, ToolReturnPart) else "away"
    return ModelResponse(parts=[TextPart(f"You have asked {len(asked)} times. The sky is {sky}.")])


agent = Agent(FunctionModel(script, model_name="script"))


@agent.tool_plain
def sky_over(city: str) -> str:
    """The sky over a city."""
    return "blue"


async def talk(store: tertulia.Store) -> str:
    """One run of the agent in the conversation "ana"."""
    conversations = TertuliaConversationStore(store)
    conversation = await conversations.load("ana") or Conversation(conversation_id="ana")
    result = await agent.run("Will it rain in Sevilla?", conversation=conversation)
    await conversations.save(result)
    return result.output


def answer(store: tertulia.Store, source: Source, text: str) -> str:
    """The same agent in a chat: under a lease, with the history of that chat."""
    with store.turn(source, text) as turn:
        result = agent.run_sync(message_history=message_history(turn))
        add_run(turn, result)
    return result.output


def main(where: str) -> None:
    with tertulia.open(where) as store:
        print(asyncio.run(talk(store)))
        ben = Source("telegram", "43", user_id="43", user_name="Ben")
        print("Ben is told:", answer(store, ben, "Is Sevilla far?"))
        for session in store.sessions.find().items:
            count = store.transcript(session.id).count()
            print(f"{session.key}: {count} messages, {session.usage.total} tokens")
        for hit in store.search("sevilla").items:
            print(f"found in {store.sessions.require(hit.session_id).key}: {hit.snippet}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "talk.db")
