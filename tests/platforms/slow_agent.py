"""A program as an agent that takes its time: a word, and the rest when a file says so."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    text = json.loads(sys.stdin.readline())["text"]
    print(json.dumps({"type": "delta", "text": "Thinking of "}), flush=True)
    parent = os.getppid()
    while not Path(sys.argv[1]).exists():
        if os.getppid() != parent:
            return  # who asked was killed, and nobody else would end this program
        time.sleep(0.02)
    print(json.dumps({"type": "delta", "text": text}), flush=True)
    print(json.dumps({"type": "step", "text": f"Thinking of {text}"}), flush=True)


main()
