"""The screens of a conversation, whole, at several widths and with a resize during an answer."""
# ruff: noqa: E501  the screens are as wide as they are

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from textwrap import dedent

import pytest
from prompt_toolkit.input import create_pipe_input

import tertulia
from tertulia import Policies, ResetPolicy, Settings, Source
from tertulia.cli.terminal_chat import greeting_rows
from tertulia.config.load import ConfigReader, Origin
from tertulia.platforms.base import Outgoing, StreamUpdate, Update
from tertulia.platforms.terminal.adapter import TerminalAdapter
from tertulia.platforms.terminal.live import LiveView
from tertulia.platforms.terminal.markdown_rows import row_width
from tertulia.platforms.terminal.screen import BatchedOutput
from tertulia.platforms.terminal.wrap import row_text
from tertulia.testing import FakeClock
from tests.platforms.terminal.read_screen import ReadScreen

QUESTION = "Will it rain in Sevilla tomorrow, and should I water the tomatoes in the greenhouse?"
NOTICE = "New conversation: you had not written for 3 days. Go back: /resume 1"
TOOLS = (
    ("weather", 'weather(city="Sevilla") · 0.8 s'),
    ("read_file", 'read_file(path="plan.md") · failed: no such file'),
)
ANSWER = (
    "No, it will be **sunny**, 24 °C. The tomatoes want a litre each in the morning, and none at"
    " noon.\n\n- Monday: nothing\n- Tuesday: the beans behind the house\n"
)
TYPED = "and on Sund"

GREETING = {
    60: """\
        Tertulia · gpt-5-mini (openai) · talk.db
        /help, ctrl-D leaves
        Continuing "Garden" (2 messages, 2 h ago)
          › and the beans?
          Beans need no water: rain is enough. Beans need no water:
          rain is enough. Beans need no water: rain is enough.
          Beans need no water: rain is enough.
        """,
    90: """\
        Tertulia · gpt-5-mini (openai) · talk.db                   /help, ctrl-D leaves
        Continuing "Garden" (2 messages, 2 h ago)
          › and the beans?
          Beans need no water: rain is enough. Beans need no water: rain is enough. Beans need no
          water: rain is enough. Beans need no water: rain is enough.
        """,
    200: """\
        Tertulia · gpt-5-mini (openai) · talk.db                   /help, ctrl-D leaves
        Continuing "Garden" (2 messages, 2 h ago)
          › and the beans?
          Beans need no water: rain is enough. Beans need no water: rain is enough. Beans need no water:
          rain is enough. Beans need no water: rain is enough.
        """,
}
CONVERSATION = {
    60: """\
        › Will it rain in Sevilla tomorrow, and should I water the
          tomatoes in the greenhouse?
        · New conversation: you had not written for 3 days. Go
          back: /resume 1
        ▸ weather(city="Sevilla") · 0.8 s
        ▸ read_file(path="plan.md") · failed: no such file
        No, it will be sunny, 24 °C. The tomatoes want a litre each
        in the morning, and none at noon.

        • Monday: nothing
        • Tuesday: the beans behind the house
        """,
    90: """\
        › Will it rain in Sevilla tomorrow, and should I water the tomatoes in the greenhouse?
        · New conversation: you had not written for 3 days. Go back: /resume 1
        ▸ weather(city="Sevilla") · 0.8 s
        ▸ read_file(path="plan.md") · failed: no such file
        No, it will be sunny, 24 °C. The tomatoes want a litre each in the morning, and none at
        noon.

        • Monday: nothing
        • Tuesday: the beans behind the house
        """,
    200: """\
        › Will it rain in Sevilla tomorrow, and should I water the tomatoes in the greenhouse?
        · New conversation: you had not written for 3 days. Go back: /resume 1
        ▸ weather(city="Sevilla") · 0.8 s
        ▸ read_file(path="plan.md") · failed: no such file
        No, it will be sunny, 24 °C. The tomatoes want a litre each in the morning, and none at noon.

        • Monday: nothing
        • Tuesday: the beans behind the house
        """,
}
WIDTHS = tuple(CONVERSATION)


def _expected(screens: dict[int, str], columns: int) -> list[str]:
    return dedent(screens[columns]).rstrip().splitlines()


@pytest.mark.parametrize("columns", WIDTHS)
def test_greeting(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clock = FakeClock()
    agent = {"kind": "openai", "model": "gpt-5-mini", "api_key": "x"}
    config = ConfigReader(Origin("", {})).config({"agent": agent})
    with tertulia.open("talk.db", clock=clock) as store:
        with store.turn(Source.local(), "and the beans?") as turn:
            turn.add_assistant(" ".join(["Beans need no water: rain is enough."] * 4))
        store.sessions.rename(turn.session.id, "Garden")
        clock.forward(hours=2)
        rows = [row_text(row).rstrip() for row in greeting_rows(store, config, row_width(columns))]
    assert rows == [*_expected(GREETING, columns), ""]


@pytest.mark.parametrize("mode", [None, "daily"])
def test_greeting_asks_the_policy(mode: str | None, tmp_path: Path) -> None:
    """By itself the conversation of the terminal never ends; the greeting says so if it did."""
    clock = FakeClock()
    policies = Policies(platforms={"local": ResetPolicy("daily")}) if mode else Policies()
    settings = Settings(zone="UTC", policies=policies)
    config = ConfigReader(Origin("", {})).config({})
    with tertulia.open(tmp_path / "talk.db", clock=clock, settings=settings) as store:
        with store.turn(Source.local(), "and the beans?") as turn:
            turn.add_assistant("No water.")
        clock.forward(days=3)
        text = " ".join(row_text(row) for row in greeting_rows(store, config, 200))
        assert ("Continuing" in text) == (mode is None)
        assert ("has ended (daily). Your next message starts a new" in text) == (mode == "daily")
        is_same = store.sessions.open(Source.local()).id == turn.session.id
        assert is_same == (mode is None)


class Conversation:
    """A live view on a screen that is read as a whole."""

    def __init__(self, columns: int) -> None:
        self.screen = ReadScreen(columns)

    def run(self, *widths: int) -> list[list[str]]:
        """Play the conversation; return the screen before each resize, and at the end."""
        return asyncio.run(asyncio.wait_for(self._play(list(widths)), 60))

    async def _play(self, widths: list[int]) -> list[list[str]]:
        screens = []
        with create_pipe_input() as keys:
            output = BatchedOutput(self.screen, lambda: self.screen.size)  # type: ignore[arg-type]
            output.enable_cpr = False
            self.adapter = TerminalAdapter(terminal=(keys, output))
            assert isinstance(self.adapter._view, LiveView)
            app = self.adapter._view._screen._app
            listening = asyncio.create_task(self.adapter.listen(self._receive))
            while not app.is_running:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            keys.send_text(f"{QUESTION}\r")
            await self._until("greenhouse?")
            await self._answer_begins()
            keys.send_text(TYPED)
            await self._until(f"› {TYPED}")
            pieces = re.findall(r"\S+\s*", ANSWER)
            for number, piece in enumerate(pieces):
                await self._update("delta", piece)
                if widths and number == len(pieces) // 2:
                    await self._until("morning,")
                    screens.append(self._rows())
                    self.screen.resize(widths.pop(0))
                    app._on_resize()
            await self._until("behind the house")
            screens.append(self._rows())
            await self._update("ended")
            await self.adapter.send(Outgoing(delivery="d", chat_id="cli", text=ANSWER))
            keys.send_text("\x15\x04")
            await listening
        return [*screens, self._rows()]

    async def _answer_begins(self) -> None:
        await self._update("began")
        await self._update("notice", NOTICE)
        for name, call in TOOLS:
            await self._update("tool", name)
            await self._until(f"{name} · ")
            await self._update("result", call)

    async def _update(self, kind: str, text: str = "") -> None:
        update = StreamUpdate(kind=kind, turn="1", text=text)  # type: ignore[arg-type]
        await self.adapter.show(Source.local(), update)

    async def _until(self, text: str) -> None:
        while not self.screen.shows(text):  # noqa: ASYNC110  a screen has no event
            await asyncio.sleep(0.001)

    async def _receive(self, update: Update) -> None:
        pass

    def _rows(self) -> list[str]:
        """Return the rows of scrollback and screen; the clock in the status row stands still."""
        rows = [
            re.sub(r"^[\u2800-\u28ff] (\w+) · \d+ s", r"⠋ \1 · 0 s", row)
            for row in self.screen.rows
        ]
        while rows and not rows[-1]:
            rows.pop()
        return rows


@pytest.mark.check
@pytest.mark.parametrize("columns", WIDTHS)
def test_conversation(columns: int) -> None:
    live, end = Conversation(columns).run()
    expected = _expected(CONVERSATION, columns)
    assert live == [*expected, "⠋ writing · 0 s · ctrl-C stops", f"› {TYPED}"]
    assert end == expected


@pytest.mark.check
@pytest.mark.parametrize(("before", "after"), [(90, 60), (200, 60), (60, 200), (60, 90)])
def test_resize_during_the_answer(before: int, after: int) -> None:
    first, live, end = Conversation(before).run(after)
    status = ["⠋ writing · 0 s · ctrl-C stops", f"› {TYPED}"]
    answer_row = next(row for row, text in enumerate(first) if text.startswith("No, it"))
    assert first[:answer_row] == _expected(CONVERSATION, before)[:answer_row]
    assert first[-2:] == status
    # What is final stays; the terminal itself breaks the rows that do not fit any more.
    final = [
        row[start : start + after].rstrip()
        for row in first[:answer_row]
        for start in range(0, len(row), after)
    ]
    # The answer stands there once. In all these cases its first row ends as at 60 columns.
    expected = [*final, *_expected(CONVERSATION, 60)[-5:]]
    assert live == [*expected, *status]
    assert end == expected
