"""A session as a Markdown page.

What was said stands in quotes, so that it cannot pass for a heading of the page, and is escaped, so
that it reads as it was written: no HTML, link, picture or list comes alive in it. Code between
fences stays code. A bare web address is all that a reader may make a link of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from tertulia.core.text import (
    format,
    prompt_safe,
)
from tertulia.core.text.display_safe import one_line
from tertulia.transfer.exporters.page import (
    Block,
    Page,
    PageEntry,
)

# Active wherever they stand.
_ACTIVE = re.compile(r"[\\`*\[\]<>~|$]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
# Active only at the beginning of a line.
_LEADING = re.compile(r"^(?:(#{1,6}|[-+=])|(\d{1,9})([.)]))")
_INDENT = re.compile(r"^ +")


def markdown(page: Page) -> Iterator[str]:
    """The lines of the page."""
    yield f"# {_name(page.title)}"
    yield ""
    for label, value in page.facts:
        yield f"- {label}: {_name(value)}"
    for entry in page.entries:
        yield ""
        yield from _entry(entry, page)


def contents(title: str, links: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    """A page that leads to others: (file, title, what is to be known of it)."""
    yield f"# {_name(title)}"
    yield ""
    for file, name, note in links:
        yield f"- [{_name(name)}]({file}) {_name(note)}"


def escaped(text: str) -> str:
    """A text that Markdown shows as it stands, with its lines."""
    lines = [_line(line) for line in text.split("\n")]
    ended = [f"{line}  " if line and after else line for line, after in pairwise(lines)]
    return "\n".join([*ended, lines[-1]])


def fenced(text: str, label: str = "") -> list[str]:
    """A block that the text itself cannot close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    word = label.partition(" ")[0]
    return [
        fence + (word if re.fullmatch(r"[\w+#.-]{1,30}", word) else ""),
        *text.split("\n"),
        fence,
    ]


def _entry(entry: PageEntry, page: Page) -> Iterator[str]:
    kind = f" ({entry.kind})" if entry.kind else ""
    speaker = _name(f"{entry.speaker}{kind}")
    yield f"## {entry.seq}. {speaker}, {format.stamp(entry.at, page.zone)}"
    for block in entry.blocks:
        yield ""
        yield from (f"> {line}" if line else ">" for line in _block(block))


def _block(block: Block) -> list[str]:
    if block.kind == "words":
        return escaped(block.text).split("\n")
    if block.kind == "thought":
        return fenced(f"(thought) {block.text}")
    if block.kind == "call":
        return fenced(f"→ {block.label}({block.text})")
    if block.kind == "media":
        return [escaped(one_line(block.text))]
    return fenced(block.text, block.label)


def _line(line: str) -> str:
    active = _ACTIVE.sub(lambda found: f"\\{found[0]}", line.rstrip())
    # Four spaces would make code of it; these do not.
    active = _INDENT.sub(lambda found: "\u00a0" * len(found[0]), active)
    return _LEADING.sub(lambda f: f"\\{f[1]}" if f[1] else f"{f[2]}\\{f[3]}", active)


def _name(text: str) -> str:
    return prompt_safe.plain(text)
