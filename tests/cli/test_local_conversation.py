"""The conversations at the terminal, if several agents may answer there."""

from __future__ import annotations

import asyncio

from tertulia import Settings, Source, aio
from tertulia.cli import local_conversation
from tertulia.cli.terminal_chat import has_unfinished_work

SETTINGS = Settings(agents=("support",), durability="fast")
SUPPORT = Source.local().with_fields(agent="support")


def test_chosen_agent_has_the_current_conversation(where: str) -> None:
    async def play() -> None:
        async with aio.open(where, settings=SETTINGS) as store:
            main = await store.sessions.conversation(Source.local())
            support = await store.sessions.conversation(SUPPORT)
            assert local_conversation.all_keys(store.sync) == [main, support]
            assert local_conversation.current_key(store.sync) == main
            await store.agent_choices.choose(Source.local(), "support", by="local")
            assert local_conversation.current_key(store.sync) == support

    asyncio.run(play())


def test_message_for_any_agent_is_waited_for(where: str) -> None:
    async def play() -> None:
        async with aio.open(where, settings=SETTINGS) as store:
            assert not await has_unfinished_work(store)
            await store.inbox.put(SUPPORT, "hello", message_id="1")
            assert await has_unfinished_work(store)

    asyncio.run(play())
