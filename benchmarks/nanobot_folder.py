"""A generated nanobot folder of any size, for the importers.

    python -m benchmarks.nanobot_folder FOLDER --megabytes 1000 --sessions 1

writes a folder as nanobot does, with the given amount of text in the given number of sessions. Each
turn has a user message, a tool call with its result, and an answer.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.corpus import Corpus, Message

BEGAN = datetime(2026, 3, 1, 9, 0)
# The number of different turns; a larger folder repeats them.
_TURNS = 2_000


def session_turns(turns: list[list[Message]], first: int) -> Iterator[list[dict[str, Any]]]:
    """Yield turns of one session without end, each message with its time."""
    for number in itertools.count(first):
        at = BEGAN + timedelta(minutes=number)
        yield [
            {**message, "timestamp": (at + timedelta(seconds=index)).isoformat()}
            for index, message in enumerate(turns[number % len(turns)])
        ]


def write_nanobot(folder: Path, *, sessions: int, size: int) -> int:
    """Write sessions of `size` bytes each and return the number of messages."""
    sessions_folder = folder / "workspace" / "sessions"
    sessions_folder.mkdir(parents=True)
    turns = Corpus().turns(_TURNS)
    count = 0
    for number in range(sessions):
        head = {
            "_type": "metadata",
            "key": f"telegram:{1_000 + number}",
            "created_at": BEGAN.isoformat(),
            "updated_at": BEGAN.isoformat(),
            "metadata": {},
            "last_consolidated": 0,
        }
        path = sessions_folder / f"telegram_{1_000 + number}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            size_written = file.write(json.dumps(head) + "\n")
            for turn in session_turns(turns, number * 7):
                lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in turn)
                size_written += sum(map(file.write, lines))
                count += len(turn)
                if size_written >= size:
                    break
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=30.0)
    parser.add_argument("--sessions", type=int, default=1)
    options = parser.parse_args()
    size = int(options.megabytes * 1_000_000 / options.sessions)
    count = write_nanobot(options.folder, sessions=options.sessions, size=size)
    print(f"{count:,} messages in {options.sessions:,} sessions under {options.folder}")


if __name__ == "__main__":
    main()
