"""Typing and drafts: one ticker for each turn, which ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tertulia import Source
from tertulia.agents.base import Event, Request, Thought
from tertulia.gateway import progress
from tertulia.gateway.progress import TurnProgress
from tertulia.platforms.base import StreamUpdate
from tests.gateway.running_gateway import App, Echo, running_gateway, until

ANA = Source("telegram", "42", user_id="42")


class Typing(App):
    """Shows typing and drafts as fast as it can; a draft stays in the chat."""

    def __init__(self, *, draft_seconds: float | None = 0.0) -> None:
        super().__init__()
        self.typing_seconds = 0.001
        self.draft_seconds = draft_seconds

    async def show(self, source: Source, shown: StreamUpdate) -> str | None:
        await super().show(source, shown)
        return "draft-1" if shown.kind == "draft" else None

    def kinds(self) -> list[str]:
        return [update.kind for update in self.shown]


def test_typing_is_repeated_and_ends_with_the_turn() -> None:
    async def play() -> None:
        app = Typing()
        turn = TurnProgress(app, ANA, "1", message_id="m1")
        async with turn.shown():
            await until(lambda: app.kinds().count("typing") > 2, "typing is repeated")
        assert app.kinds()[0] == "began"
        assert app.kinds()[-1] == "ended"
        assert {update.message_id for update in app.shown} == {"m1"}
        before = len(app.shown)
        await asyncio.sleep(0.02)
        assert len(app.shown) == before
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(play())


def test_ticker_ends_when_the_turn_fails() -> None:
    async def play() -> None:
        app = Typing()
        with pytest.raises(RuntimeError):
            async with TurnProgress(app, ANA, "1").shown():
                raise RuntimeError
        assert app.kinds()[-1] == "ended"
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(play())


def test_ticker_ends_after_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONGEST_SECONDS", 0.01)

    async def play() -> None:
        async with TurnProgress(Typing(), ANA, "1").shown():
            await until(lambda: len(asyncio.all_tasks()) == 1, "the ticker has ended")

    asyncio.run(play())


def test_drafts_contain_the_whole_text_so_far_and_name_the_message_to_replace() -> None:
    async def play() -> None:
        app = Typing()
        turn = TurnProgress(app, ANA, "1")
        async with turn.shown():
            for piece in ("Good ", "morning", "!"):
                await turn.add(piece)
            await until(
                lambda: any(update.text == "Good morning!" for update in app.shown),
                "the draft is complete",
            )
            assert "delta" not in app.kinds()
            assert await turn.last_draft() == "draft-1"
            drafts = app.kinds().count("draft")
            await turn.add(" More.")
            await asyncio.sleep(0.02)
            assert app.kinds().count("draft") == drafts  # nothing after the answer

    asyncio.run(play())


def test_adapter_without_drafts_gets_each_piece() -> None:
    async def play() -> None:
        app = Typing(draft_seconds=None)
        turn = TurnProgress(app, ANA, "1")
        async with turn.shown():
            await turn.add("a")
            await turn.add("b")
        assert [update.text for update in app.shown if update.kind == "delta"] == ["a", "b"]

    asyncio.run(play())


def test_streaming_can_be_turned_off_and_typing_stays() -> None:
    async def play() -> None:
        app = Typing()
        turn = TurnProgress(app, ANA, "1", streams=False)
        async with turn.shown():
            await turn.add("a")
            await until(lambda: "typing" in app.kinds(), "typing is shown")
        assert not {"draft", "delta"} & set(app.kinds())

    asyncio.run(play())


def test_show_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SHOW_SECONDS", 0.01)

    class Hanging(App):
        async def show(self, source: Source, shown: StreamUpdate) -> str | None:
            await asyncio.Event().wait()
            return None

    async def play() -> None:
        async with TurnProgress(Hanging(), ANA, "1").shown():
            pass

    asyncio.run(play())


def test_quick_answer_is_not_shown_as_a_draft() -> None:
    async def play() -> None:
        app = Typing()
        app.draft_delay_seconds = 60
        turn = TurnProgress(app, ANA, "1")
        async with turn.shown():
            await turn.add("quick")
            await asyncio.sleep(0.02)
            assert await turn.last_draft() is None
        assert "draft" not in app.kinds()

    asyncio.run(play())


def test_retried_turn_goes_on_with_the_draft_of_the_dead_process() -> None:
    class Finding(Typing):
        async def show(self, source: Source, shown: StreamUpdate) -> str | None:
            await super().show(source, shown)
            return "draft-0" if shown.is_retry else None

    async def play() -> None:
        turn = TurnProgress(Finding(), ANA, "1", is_retry=True)
        async with turn.shown():
            assert await turn.last_draft() == "draft-0"

    asyncio.run(play())


@pytest.mark.parametrize("is_wanted", [False, True])
def test_reasoning_reaches_adapters_that_want_it(where: str, is_wanted: bool) -> None:
    class Thoughtful(Echo):
        async def run(self, request: Request) -> AsyncGenerator[Event, None]:
            yield Thought("hm, ")
            yield Thought("well")
            async for event in super().run(request):
                yield event

    async def play() -> None:
        async with running_gateway(where, Thoughtful()) as node:
            app = node.apps["telegram"]
            app.shows_thoughts = is_wanted
            assert await node.hears("hello") == "re hello"
            thoughts = [update.text for update in app.shown if update.kind == "thought"]
            assert thoughts == (["hm, ", "well"] if is_wanted else [])

    asyncio.run(play())
