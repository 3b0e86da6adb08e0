"""Make the pictures of the terminal for the README and the documentation, from the program itself.

    make pictures

The program runs in a pseudo-terminal and talks with a model server whose answers are fixed. The
screen becomes SVG: a still, and a film of an answer that is being written, each light and dark. A
test makes the text of every picture again and compares it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.platforms.pseudo_terminal import Terminal  # noqa: E402

FOLDER = ROOT / "docs/pictures"
COLUMNS = 78
_FIRST = "Will it rain in Sevilla tomorrow?"
_SECOND = "Then make me a plan for the tomatoes."
# The pieces of each answer, as the model sends them, and what is on the screen after each.
ANSWERS: dict[str, list[tuple[str, str]]] = {
    _FIRST: [
        ("No: **sunny, ", "No: "),
        ("24 °C**, ", "24 °C"),
        ("with a light ", "light"),
        ("wind in the ", "wind in"),
        ("evening.", "evening."),
    ],
    _SECOND: [
        ("Early is best, ", "best,"),
        ("before the sun ", "sun"),
        ("is on the leaves:\n\n", "on the leaves:"),
        ("| day | water | why |\n|---|---|---|\n| Tuesday | 2 l each | sun all day |\n", "all day"),
        ("| Thursday | 1 l each | clouds |\n", "clouds"),
        ("| Saturday | none | rain is likely |\n\n", "likely"),
        ("1. Water the **soil**, ", "soil"),
        ("never the leaves.\n", "never"),
        ("2. Look with a finger ", "a finger"),
        ("first: `2 cm` deep is enough.\n\n", "enough."),
        ("Shall I remind you ", "remind you"),
        ("on *Tuesday* at 7:00?", "7:00?"),
    ],
}

CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 16
SECONDS_PER_FRAME, PAUSE_SECONDS = 0.35, 4
PALETTES = {
    "light": {
        "background": "#ffffff", "default": "#1f2328", "dim": "#6e7781", "red": "#b62324",
        "green": "#116329", "brown": "#7d4e00", "blue": "#0550ae", "magenta": "#8250df",
        "cyan": "#1b7c83", "border": "#d0d7de",
    },
    "dark": {
        "background": "#0d1117", "default": "#e6edf3", "dim": "#8b949e", "red": "#ff7b72",
        "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff", "magenta": "#d2a8ff",
        "cyan": "#76e3ea", "border": "#30363d",
    },
}  # fmt: skip


class Run(NamedTuple):
    """Characters that stand together and look the same."""

    column: int
    text: str
    colour: str
    is_bold: bool
    is_italic: bool


Row = tuple[Run, ...]
Frame = tuple[Row, ...]


def row_text(row: Row) -> str:
    """Return the characters of a row, with the spaces between its runs."""
    text = ""
    for run in row:
        text = text.ljust(run.column) + run.text
    return text.rstrip()


def frame_text(frame: Frame) -> list[str]:
    """Return the rows of a frame as text."""
    return [row_text(row) for row in frame]


# -- the scene


class _Model(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that sends each piece of a fixed answer when it is allowed to."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        text = question if isinstance(question, str) else question[-1]["text"]
        answer = next((ANSWERS[key] for key in ANSWERS if key in text), [])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece, _ in answer:
            self.server.allowed.acquire()  # type: ignore[attr-defined]
            self._send({"choices": [{"index": 0, "delta": {"content": piece}}]})
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, chunk: dict[str, Any]) -> None:
        event = {"id": "x", "object": "chat.completion.chunk", "model": "gpt-5-mini", **chunk}
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@contextmanager
def _model() -> Iterator[tuple[str, threading.Semaphore]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    allowed = server.allowed = threading.Semaphore(0)  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", allowed
    finally:
        server.shutdown()
        server.server_close()


def play() -> list[Frame]:
    """Play the scene and return what was on the screen after each step."""
    frames: list[Frame] = []
    with tempfile.TemporaryDirectory() as name, _model() as (url, allowed):
        folder = Path(name)
        (folder / "tertulia.toml").write_text(
            f'[agent]\nkind = "openai"\nmodel = "gpt-5-mini"\nbase_url = "{url}"\n'
        )
        environ = {
            "HOME": name, "TERM": "xterm-256color", "TZ": "UTC", "PYTHONUTF8": "1",
            "LANG": "C.UTF-8", "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"),
        }  # fmt: skip
        command = [sys.executable, "-m", "tertulia", "chat", "--config", "tertulia.toml"]
        with Terminal([*command, "--store", "talk.db"], folder, environ, columns=COLUMNS) as talk:
            talk.sees("This is a new conversation.")
            talk.until(lambda: talk.text.endswith("›"), "the prompt")
            frames.append(_capture(talk))
            for question, answer in ANSWERS.items():
                talk.press(question)
                talk.sees(question)
                frames.append(_capture(talk))
                talk.press("\r")
                talk.sees(f"› {question}\n")
                for _, shown in answer:
                    allowed.release()
                    talk.sees(shown)
                    frames.append(_capture(talk))
                talk.until(lambda: "ctrl-C" not in talk.text, "the end of the answer")
                frames.append(_capture(talk))
    return frames


def _capture(talk: Terminal) -> Frame:
    rows = []
    for characters in talk.rows:
        runs: list[Run] = []
        column = 0
        looks = [(c, _colour(c), bool(c.bold), bool(c.italics)) for c in characters]
        for look, group in groupby(looks, key=lambda item: item[1:]):
            text = "".join(item[0].data for item in group)
            if text.strip():
                start = column + len(text) - len(text.lstrip())
                runs.append(Run(start, text.strip(), *look))
            column += len(text)
        rows.append(tuple(runs))
    return tuple(_fix_status(row) for row in rows)


def _fix_status(row: Row) -> Row:
    """Return the status row with one spinner and one time, which depend on the machine's load."""
    return tuple(
        run._replace(text=re.sub(r"^\S (\w+) · \d+ s", r"⠹ \1 · 1 s", run.text))
        if "ctrl-C" in run.text
        else run
        for run in row
    )


def _colour(character: Any) -> str:
    return "dim" if character.blink else str(character.fg)


# -- SVG


def still(frame: Frame, theme: str) -> str:
    """Return a frame as an SVG picture."""
    rows = "\n".join(_row(row, y, theme) for y, row in enumerate(frame) if row)
    return _document(rows, len(frame), theme)


def film(frames: Sequence[Frame], theme: str) -> str:
    """Return frames as one SVG that plays them in a loop; a row is drawn once while it lasts."""
    height = max(map(len, frames))
    seconds = len(frames) * SECONDS_PER_FRAME + PAUSE_SECONDS
    clock = (
        f'<rect width="0" height="0"><animate id="t" attributeName="x" from="0" to="0" '
        f'dur="{seconds:.2f}s" begin="0s;t.end"/></rect>'
    )
    parts = [clock]
    for y in range(height):
        for first, last, row in _spans([frame[y] if y < len(frame) else () for frame in frames]):
            if row:
                begin = first * SECONDS_PER_FRAME
                end = seconds if last == len(frames) - 1 else (last + 1) * SECONDS_PER_FRAME
                parts.append(
                    f'<g visibility="hidden" data-first="{first}" data-last="{last}">'
                    f'<set attributeName="visibility" to="visible" begin="t.begin+{begin:.2f}s" '
                    f'dur="{end - begin:.2f}s"/>{_row(row, y, theme)}</g>'
                )
    return _document("\n".join(parts), height, theme)


def _spans(rows: Sequence[Row]) -> Iterator[tuple[int, int, Row]]:
    """Yield each row with the first and the last frame in which it stays the same."""
    first = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or rows[at] != rows[first]:
            yield first, at - 1, rows[first]
            first = at


def _row(row: Row, y: int, theme: str) -> str:
    palette = PALETTES[theme]
    spans = []
    for run in row:
        style = f' fill="{palette.get(run.colour, palette["default"])}"'
        style += ' font-weight="bold"' if run.is_bold else ""
        style += ' font-style="italic"' if run.is_italic else ""
        x = MARGIN + run.column * CELL_WIDTH
        length = len(run.text) * CELL_WIDTH
        spans.append(
            f'<tspan x="{x:.1f}" textLength="{length:.1f}" data-column="{run.column}"{style}>'
            f"{escape(run.text)}</tspan>"
        )
    return f'<text y="{MARGIN + (y + 1) * CELL_HEIGHT - 5}" data-row="{y}">{"".join(spans)}</text>'


def _document(body: str, rows: int, theme: str) -> str:
    palette = PALETTES[theme]
    width, height = COLUMNS * CELL_WIDTH + 2 * MARGIN, rows * CELL_HEIGHT + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img" aria-label="tertulia chat">\n'
        f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1}" rx="8" '
        f'fill="{palette["background"]}" stroke="{palette["border"]}"/>\n'
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="14" xml:space="preserve">\n{body}\n</g>\n</svg>\n'
    )


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    frames = play()
    for theme in PALETTES:
        (FOLDER / f"terminal-{theme}.svg").write_text(still(frames[-1], theme), "utf-8")
        (FOLDER / f"terminal-film-{theme}.svg").write_text(film(frames, theme), "utf-8")


if __name__ == "__main__":
    main()
