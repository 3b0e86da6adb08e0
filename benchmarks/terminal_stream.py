"""How long a word of a streamed answer waits before it can be read in the terminal.

Run it by hand:

    python -m benchmarks.terminal_stream [--columns 90] [--tokens 20]

`tertulia chat` runs in a pseudo-terminal and talks with a program that writes an answer of 600
words (paragraphs, lists, a table, code) at a number of tokens a second. A word counts as sent when
the token behind it was written, and as shown when it stands on the screen.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tertulia.platforms.terminal.markdown_rows import render, row_width
from tertulia.platforms.terminal.wrap import row_text
from tests.platforms.pseudo_terminal import PROMPT, Terminal, tertulia
from tests.platforms.terminal.test_streamed_answer import ANSWER, TOKEN

_AGENT = """
import json, sys, time
answer, token, pause = json.loads(sys.argv[1])
sys.stdin.readline()
with open(sys.argv[2], "w") as log:
    for start in range(0, len(answer), token):
        time.sleep(pause)
        print(json.dumps({"type": "delta", "text": answer[start : start + token]}), flush=True)
        log.write(f"{time.monotonic()}\\n")
print(json.dumps({"type": "step", "text": answer}), flush=True)
"""


def main() -> None:
    """Measure once and print the result."""
    parser = argparse.ArgumentParser(description="Delay of words in the terminal.")
    parser.add_argument("--columns", type=int, default=90)
    parser.add_argument("--tokens", type=float, default=20.0, help="tokens a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _configure(folder, 1 / options.tokens)
        with tertulia(folder, "chat", columns=options.columns) as terminal:
            terminal.sees(PROMPT.strip())
            shown = _ask(terminal)
            screen, written = terminal.text, len(terminal.written.encode())
        sent = _sent_times(folder / "sent.log")
    waits = [1000 * (shown[word] - sent[word]) for word in sent]
    tokens = -(-len(ANSWER) // TOKEN)
    rows = [row_text(row).rstrip() for row in render(ANSWER, row_width(options.columns))]
    is_equal = "\n".join(rows).rstrip() in screen
    print(f"{len(waits)} words, {tokens} tokens at {options.tokens:g}/s, {options.columns} columns")
    print(f"a word waits {statistics.median(waits):.0f} ms (median), {max(waits):.0f} ms at most")
    print(f"{written / tokens:.0f} bytes a token")
    print(f"the scrollback {'equals' if is_equal else 'DIFFERS FROM'} the rendered answer")


def _configure(folder: Path, pause: float) -> None:
    agent, answer = folder / "agent.py", json.dumps([ANSWER, TOKEN, pause])
    agent.write_text(_AGENT)
    command = [sys.executable, str(agent), answer, str(folder / "sent.log")]
    settings = folder / "home/.config/tertulia"
    settings.mkdir(parents=True)
    section = f'[agent]\nkind = "command"\ncommand = {json.dumps(command)}\n'
    (settings / "config.toml").write_text(section)


def _ask(terminal: Terminal) -> dict[str, float]:
    """Ask for the answer; return when each word stood on the screen first."""
    shown: dict[str, float] = {}
    terminal.press("go\r")

    def is_complete() -> bool:
        for word in re.findall(r"w\d{3}(?!\d)", terminal.text):
            shown.setdefault(word, time.monotonic())
        return len(shown) == 600 and "writing" not in terminal.text

    deadline = time.monotonic() + 600
    while not is_complete():
        assert terminal.read(1.0), "the program ended"
        assert time.monotonic() < deadline, "the answer did not end"
    return shown


def _sent_times(path: Path) -> dict[str, float]:
    """Return when each word was sent, with the token behind it."""
    times = [float(line) for line in path.read_text().split()]
    return {
        match.group(): times[min(match.end() // TOKEN, len(times) - 1)]
        for match in re.finditer(r"w\d{3}", ANSWER)
    }


if __name__ == "__main__":
    main()
