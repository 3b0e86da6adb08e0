"""Tasks that show "typing": one for each turn, ended with the turn and with the adapter."""

from __future__ import annotations

import asyncio

from tertulia.platforms.typing_tasks import TypingTasks


def test_turn_has_one_task_until_it_has_ended() -> None:
    async def run() -> None:
        tasks, shown = TypingTasks(), []

        async def show() -> None:
            shown.append("typing")

        tasks.start("turn", show)
        tasks.start("turn", show)
        tasks.start("other", show)
        await asyncio.gather(*tasks._by_turn.values())
        assert shown == ["typing", "typing"]
        await asyncio.sleep(0)
        tasks.start("turn", show)
        await asyncio.gather(*tasks._by_turn.values())
        assert len(shown) == 3

    asyncio.run(run())


def test_task_of_a_repeated_turn_is_cancelled_by_close() -> None:
    async def run() -> None:
        tasks, cancelled = TypingTasks(), []

        async def show() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append("task")
                raise

        tasks.start("turn", show)
        await asyncio.sleep(0)
        tasks.stop("turn")
        tasks.start("turn", show)  # before the first task has ended
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert cancelled == ["task"]
        tasks.stop("unknown")
        await tasks.close()
        assert cancelled == ["task", "task"]

    asyncio.run(run())
