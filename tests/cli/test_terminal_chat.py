"""The terminal: its greeting, and waiting until everything that was typed is answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tertulia import Settings, Source, aio
from tertulia import open as open_store
from tertulia.cli.terminal_chat import greeting_rows, has_unfinished_work
from tertulia.config.schema import Config
from tertulia.platforms.terminal.wrap import row_text


def test_work_that_moves_between_queries_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look() -> bool:
        async with aio.open(str(tmp_path / "talk.db"), settings=Settings(zone="UTC")) as store:
            await store.inbox.put(Source.local(), "one", message_id="1")
            find = store.inbox.find

            async def find_and_move(**asked: Any) -> Any:
                found = await find(**asked)
                await store.inbox.claim()
                return found

            monkeypatch.setattr(store.inbox, "find", find_and_move)
            return await has_unfinished_work(store)

    assert asyncio.run(look())


@pytest.mark.parametrize("width", [60, 89, 100])
def test_greeting_shows_the_last_exchange_and_how_to_see_the_rest(
    tmp_path: Path, width: int
) -> None:
    answer = "\n".join(f"- row {number}" for number in range(12))
    with open_store(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        with store.turn(Source.local(), "and the **beans**?", message_id="1") as turn:
            turn.add_assistant(answer)
        rows = [row_text(row) for row in greeting_rows(store, Config(), width)]
    assert rows[-6:] == [
        "  › and the **beans**?",
        "  • row 0",
        "  • row 1",
        "  • row 2",
        "  … (9 more rows: /last)",
        "",
    ]


def test_greeting_says_what_is_unanswered(tmp_path: Path) -> None:
    with open_store(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        store.inbox.put(Source.local(), "one", message_id="1")

        def greeting() -> str:
            return " ".join(row_text(row) for row in greeting_rows(store, Config(), 100)).strip()

        notice = "Your last message was not answered. The answer comes now."
        assert greeting().endswith(notice)
        store.inbox.claim()
        assert notice not in greeting()
        assert "Waiting for the answer to your last message:" in greeting()
        assert "within 60 s." in greeting()


def test_greeting_of_an_empty_conversation_shows_no_id(tmp_path: Path) -> None:
    with open_store(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        session = store.sessions.open(Source.local())
        rows = [row_text(row) for row in greeting_rows(store, Config(), 90)]
        assert rows[-2] == "This is a new conversation."
        store.sessions.rename(session.id, "Garden")
        rows = [row_text(row) for row in greeting_rows(store, Config(), 90)]
        assert rows[-2] == 'Continuing "Garden" (0 messages, just now)'


def test_greeting_names_the_platforms_that_are_served(tmp_path: Path) -> None:
    with open_store(tmp_path / "talk.db", settings=Settings(zone="UTC")) as store:
        rows = greeting_rows(store, Config(), 90, ["telegram", "telegram", "slack"])
    texts = [row_text(row) for row in rows]
    assert "Serving telegram, slack, and this terminal. State: tertulia platforms list" in texts
