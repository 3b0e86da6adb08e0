"""A long answer, piece by piece, on a screen that a person would read: no word waits for the next.

No time is measured: each piece of the answer is given only when the words so far can be read.
"""

from __future__ import annotations

import asyncio
import re

import pytest
from prompt_toolkit.input import create_pipe_input

from tertulia.core.source import Source
from tertulia.platforms.base import Outgoing, StreamUpdate, Update
from tertulia.platforms.terminal.adapter import TerminalAdapter
from tertulia.platforms.terminal.live import LiveView
from tertulia.platforms.terminal.markdown_rows import render, row_width
from tertulia.platforms.terminal.screen import BatchedOutput
from tertulia.platforms.terminal.wrap import row_text
from tests.platforms.terminal.read_screen import ReadScreen

pytestmark = pytest.mark.check
SLOW = pytest.mark.slow  # the same at other widths

TOKEN = 5  # characters
PATIENCE = 120


def answer_of_600_words() -> str:
    """Return Markdown with every kind of block; its words are numbered."""
    numbers = iter(range(600))

    def words(count: int) -> list[str]:
        return [f"w{next(numbers):03}" for _ in range(count)]

    def paragraph(count: int) -> str:
        text = words(count)
        text[count // 3] = f"**{text[count // 3]}"
        text[count // 3 + 3] += "**"
        text[count // 2 + 4] = f"`{text[count // 2 + 4]}`"
        return " ".join(text)

    def table(rows: int) -> str:
        lines = [f"| {' | '.join(words(4))} |" for _ in range(rows)]
        return "\n".join([lines[0], "|---|---|---|---|", *lines[1:]])

    def code(lines: int) -> str:
        return "\n".join(["```python", *(f"    {'('.join(words(3))}" for _ in range(lines)), "```"])

    blocks = [
        f"# {' '.join(words(4))}", paragraph(130),
        "\n".join(f"- {' '.join(words(6 + 5 * item))}" for item in range(5)),
        code(12), paragraph(104),
        "\n".join(f"{item}. {' '.join(words(9))}" for item in range(1, 6)),
        table(15), f"> {' '.join(words(35))}", paragraph(106),
    ]  # fmt: skip
    return "\n\n".join([*blocks, " ".join(f"w{number:03}" for number in numbers)])


ANSWER = answer_of_600_words()


def _update(kind: str, text: str = "") -> StreamUpdate:
    return StreamUpdate(kind=kind, turn="1", text=text)  # type: ignore[arg-type]


async def _until_shown(screen: ReadScreen, word: str) -> None:
    """Wait for a word without giving the terminal anything more to show."""
    while not screen.shows(word):  # noqa: ASYNC110  a screen has no event
        await asyncio.sleep(0)


async def _receive(update: Update) -> None:
    pass


async def _stream(screen: ReadScreen, widths: list[int]) -> None:
    """Give the answer piece by piece, each when the words before it are shown."""
    source = Source.local()
    with create_pipe_input() as keys:
        output = BatchedOutput(screen, lambda: screen.size)  # type: ignore[arg-type]
        output.enable_cpr = False
        adapter = TerminalAdapter(terminal=(keys, output))
        assert isinstance(adapter._view, LiveView)
        app = adapter._view._screen._app
        listening = asyncio.create_task(adapter.listen(_receive))
        while not app.is_running:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await adapter.show(source, _update("began"))
        pieces = [ANSWER[start : start + TOKEN] for start in range(0, len(ANSWER), TOKEN)]
        for number, piece in enumerate(pieces):
            await adapter.show(source, _update("delta", piece))
            so_far = ANSWER[: (number + 1) * TOKEN]
            complete = re.findall(r"w\d{3}(?=\W)", so_far)
            if complete:
                await _until_shown(screen, complete[-1])
            if number == len(pieces) // (len(widths) + 1) and widths:
                screen.resize(widths.pop(0))
                app._on_resize()
        await adapter.show(source, _update("ended"))
        await adapter.send(Outgoing(delivery="d", chat_id="cli", text=ANSWER))
        keys.send_text("\x04")
        await listening


def _stream_answer(columns: int, *widths: int) -> list[str]:
    screen = ReadScreen(columns)
    asyncio.run(asyncio.wait_for(_stream(screen, list(widths)), PATIENCE))
    rows = screen.rows
    while rows and not rows[-1]:
        rows.pop()
    return rows


@pytest.mark.parametrize("columns", [60, *(pytest.param(n, marks=SLOW) for n in (90, 200))])
def test_scrollback_is_the_rendered_answer(columns: int) -> None:
    expected = [row_text(row).rstrip() for row in render(ANSWER, row_width(columns))]
    assert _stream_answer(columns) == expected


@pytest.mark.parametrize(
    ("columns", "after"),
    [(200, 60), *(pytest.param(*sizes, marks=SLOW) for sizes in ((60, 90), (90, 200), (90, 60)))],
)
def test_resize_loses_and_repeats_nothing(columns: int, after: int) -> None:
    rows = _stream_answer(columns, after)
    text = "".join("".join(rows).split())
    words = re.findall(r"w\d{3}", text)
    assert words == [f"w{number:03}" for number in range(600)]
    assert "ctrl-C" not in text
