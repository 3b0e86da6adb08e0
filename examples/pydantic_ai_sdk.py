"""An agent of Pydantic AI with its conversations and a Telegram chat in one store.

    python examples/pydantic_ai_sdk.py talk.db

Run it twice with the same file: the agent remembers. The model is a script, so nothing leaves the
machine; replace it with a real one.
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
from tertulia.integrations.pydantic_ai import TertuliaConversationStore, add_run, message_history


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Look at the sky if the question mentions rain; answer with the number of questions."""
    parts = [part for message in messages for part in message.parts]
    questions = [part for part in parts if isinstance(part, UserPromptPart)]
    last = parts[-1]
    if last is questions[-1] and "rain" in str(questions[-1].content):
        call_id = f"call_{len(messages)}"
        return ModelResponse(parts=[ToolCallPart("sky_over", {"city": "Sevilla"}, call_id)])
    sky = last.content if isinstance(last, ToolReturnPart) else "away"
    return ModelResponse(
        parts=[TextPart(f"You have asked {len(questions)} times. The sky is {sky}.")]
    )


agent = Agent(FunctionModel(script, model_name="script"))


@agent.tool_plain
def sky_over(city: str) -> str:
    """Return the sky over a city."""
    return "blue"


async def run_once(store: tertulia.Store) -> str:
    """Run the agent once in the conversation "ana" and return its answer."""
    conversations = TertuliaConversationStore(store)
    conversation = await conversations.load("ana") or Conversation(conversation_id="ana")
    result = await agent.run("Will it rain in Sevilla?", conversation=conversation)
    await conversations.save(result)
    return result.output


def answer(store: tertulia.Store, source: Source, text: str) -> str:
    """Answer a chat message with the same agent, under the lease and with the chat's history."""
    with store.turn(source, text) as turn:
        result = agent.run_sync(message_history=message_history(turn))
        add_run(turn, result)
    return result.output


def main(path: str) -> None:
    with tertulia.open(path) as store:
        print(asyncio.run(run_once(store)))
        ben = Source("telegram", "43", user_id="43", user_name="Ben")
        print("Answer to Ben:", answer(store, ben, "Is Sevilla far?"))
        for session in store.sessions.find().items:
            count = store.transcript(session.id).count()
            print(f"{session.key}: {count} messages, {session.usage.total} tokens")
        for hit in store.search("sevilla").items:
            print(f"found in {store.sessions.require(hit.session_id).key}: {hit.snippet}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "talk.db")
