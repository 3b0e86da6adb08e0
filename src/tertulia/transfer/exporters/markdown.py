"""A session as a Markdown page.

Messages are block quotes, so that they cannot pass for a heading of the page, and are escaped, so
that they read as written: no HTML, link, image or list in them takes effect. Fenced code stays
code. Only a bare web address may become a link in a reader's program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from tertulia.core.text import format, prompt_safe
from tertulia.core.text.display_safe import display_line
from tertulia.transfer.exporters.page import PageBlock, PageEntry, SessionPage

# Characters that Markdown interprets anywhere.
_ACTIVE = re.compile(r"[\\`*\[\]<>~|$]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
# Characters that Markdown interprets only at the beginning of a line.
_LEADING = re.compile(r"^(?:(#{1,6}|[-+=])|(\d{1,9})([.)]))")
_INDENT = re.compile(r"^ +")


def markdown_lines(page: SessionPage) -> Iterator[str]:
    """Yield the lines of the page."""
    yield f"# {_name(page.title)}"
    yield ""
    for label, value in page.facts:
        yield f"- {label}: {_name(value)}"
    # Count here: the numbers of the store have gaps where messages were undone.
    for number, entry in enumerate(page.entries, 1):
        yield ""
        yield from _entry(number, entry, page)


def contents_lines(title: str, links: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the lines of a table of contents; a link is (file, title, description)."""
    yield f"# {_name(title)}"
    yield ""
    for file, name, note in links:
        yield f"- [{_name(name)}]({file}) {_name(note)}"


def escape(text: str) -> str:
    """Return a text that Markdown shows literally, with its line breaks."""
    lines = [_line(line) for line in text.split("\n")]
    broken = [f"{line}  " if line and after else line for line, after in pairwise(lines)]
    return "\n".join([*broken, lines[-1]])


def fence(text: str, label: str = "") -> list[str]:
    """Return a fenced block whose fence does not occur in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    language = label.partition(" ")[0]
    return [
        marks + (language if re.fullmatch(r"[\w+#.-]{1,30}", language) else ""),
        *text.split("\n"),
        marks,
    ]


def _entry(number: int, entry: PageEntry, page: SessionPage) -> Iterator[str]:
    kind = f" ({entry.kind})" if entry.kind else ""
    speaker = _name(f"{entry.speaker}{kind}")
    yield f"## {number}. {speaker}, {format.format_time(entry.at, page.zone)}"
    for block in entry.blocks:
        yield ""
        yield from (f"> {line}" if line else ">" for line in _block(block))


def _block(block: PageBlock) -> list[str]:
    if block.kind == "words":
        return escape(block.text).split("\n")
    if block.kind == "thought":
        return fence(f"(thought) {block.text}")
    if block.kind == "call":
        return fence(f"→ {block.label}({block.text})")
    if block.kind == "media":
        return [escape(display_line(block.text))]
    return fence(block.text, block.label)


def _line(line: str) -> str:
    escaped = _ACTIVE.sub(lambda match: f"\\{match[0]}", line.rstrip())
    # Four ordinary spaces would start a code block; no-break spaces do not.
    escaped = _INDENT.sub(lambda match: "\u00a0" * len(match[0]), escaped)
    return _LEADING.sub(lambda m: f"\\{m[1]}" if m[1] else f"{m[2]}\\{m[3]}", escaped)


def _name(text: str) -> str:
    return prompt_safe.clean_for_prompt(text)
