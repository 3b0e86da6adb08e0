"""Conversations as other systems keep them, as many as wanted, for the importers.

    python -m benchmarks.elsewhere FOLDER --megabytes 1000 --sessions 1

writes a folder of nanobot with so much text in so many sessions, one message of a person, one call
of a tool with its result and one answer to a turn.
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
# Texts that differ; the rest of a large folder repeats them.
_TURNS = 2_000


def talk(turns: list[list[Message]], first: int) -> Iterator[list[dict[str, Any]]]:
    """Turns of one session, without end, each message with its time."""
    for number in itertools.count(first):
        at = BEGAN + timedelta(minutes=number)
        yield [
            {**message, "timestamp": (at + timedelta(seconds=place)).isoformat()}
            for place, message in enumerate(turns[number % len(turns)])
        ]


def write_nanobot(folder: Path, *, sessions: int, size: int) -> int:
    """Write sessions of `size` bytes each; how many messages there are."""
    place = folder / "workspace" / "sessions"
    place.mkdir(parents=True)
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
        with (place / f"telegram_{1_000 + number}.jsonl").open("w", encoding="utf-8") as file:
            written = file.write(json.dumps(head) + "\n")
            for turn in talk(turns, number * 7):
                lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in turn)
                written += sum(map(file.write, lines))
                count += len(turn)
                if written >= size:
                    break
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=30.0)
    parser.add_argument("--sessions", type=int, default=1)
    given = parser.parse_args()
    size = int(given.megabytes * 1_000_000 / given.sessions)
    count = write_nanobot(given.folder, sessions=given.sessions, size=size)
    print(f"{count:,} messages in {given.sessions:,} sessions under {given.folder}")


if __name__ == "__main__":
    main()
