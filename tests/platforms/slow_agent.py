"""A program as an agent that takes its time: a word, and the rest when a file says so."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    text = json.loads(sys.stdin.readline())["text"]
    print(json.dumps({"type": "delta", "text": "Thinking of "}), flush=True)
    while not Path(sys.argv[1]).exists():
        time.sleep(0.02)
    print(json.dumps({"type": "delta", "text": text}), flush=True)
    print(json.dumps({"type": "step", "text": f"Thinking of {text}"}), flush=True)


main()
