"""Reading Markdown, as far as the tests of the documentation need it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>[^`]*)")
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*\S) -->")


class Block(NamedTuple):
    language: str
    text: str
    line: int
    """The number of the first line of its text in the file."""
    not_run: str
    """Why it is not run; empty where it is."""


def pages() -> list[Path]:
    """The README, and everything under docs/."""
    return [
        path for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if path.exists()
    ]


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a text, in order."""
    lines = markdown.splitlines()
    at, before = 0, ""
    while at < len(lines):
        opened = _FENCE.fullmatch(lines[at])
        if opened is None:
            before = lines[at].strip() or before
            at += 1
            continue
        start = at + 1
        at = _closing(lines, start, opened["fence"])
        indent = len(opened["indent"])
        inside = [
            line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in lines[start:at]
        ]
        excuse = _NOT_RUN.fullmatch(before)
        language = (opened["info"].split() or [""])[0]
        yield Block(language, "\n".join(inside), start + 1, excuse["reason"] if excuse else "")
        at, before = at + 1, ""


def prose(markdown: str) -> str:
    """A text without its fenced blocks and code spans."""
    lines = markdown.splitlines()
    for block in blocks(markdown):
        for at in range(block.line - 1, block.line - 1 + len(block.text.splitlines())):
            lines[at] = ""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", "\n".join(lines))


def _closing(lines: list[str], start: int, fence: str) -> int:
    for at in range(start, len(lines)):
        if re.fullmatch(rf"{re.escape(fence[0])}{{{len(fence)},}}", lines[at].strip()):
            return at
    raise ValueError(f"the block that opens in line {start} is never closed")
