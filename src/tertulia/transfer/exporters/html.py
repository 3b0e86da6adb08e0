"""A session as one HTML file: it loads nothing and runs nothing; light and dark, wide and narrow.

Every text passes `escape`, in the body and in attributes alike. Should a bug ever let something
through, the page's content security policy still forbids all scripts, forms, frames and addresses;
it allows only the style below, by its hash, and images embedded in the page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from datetime import date, datetime
from importlib import resources

from tertulia.core.message import ASSISTANT, TOOL, USER
from tertulia.core.text.display_safe import display_text
from tertulia.core.text.excerpt import one_line
from tertulia.transfer.exporters.page import PageBlock, PageEntry, SessionPage

_STYLE = resources.files("tertulia.transfer.exporters").joinpath("page.css").read_text("utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; base-uri 'none'"
_SIDES = {USER: "person", ASSISTANT: "agent", TOOL: "tool"}
_INLINE_CODE = re.compile(r"`([^`\n]+)`")
# Results of tools with more characters are collapsed.
_LONGEST_OPEN_RESULT = 400
_PREVIEW_CHARACTERS = 90


def html_lines(page: SessionPage) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _head(page.title)
    yield '<header class="top">'
    yield f'<h1 dir="auto">{escape(page.title)}</h1>'
    yield "<dl>"
    for label, value in page.facts:
        yield f'<div><dt>{escape(label)}</dt><dd dir="auto">{escape(value)}</dd></div>'
    yield "</dl></header>"
    yield "<main>"
    yield from _entries(page)
    yield "</main></body></html>"


def contents_lines(title: str, links: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the lines of a table of contents; a link is (file, title, description)."""
    yield from _head(title)
    yield f'<header class="top"><h1 dir="auto">{escape(title)}</h1></header>'
    yield '<main><ul class="contents">'
    for file, name, note in links:
        label = f"<strong>{escape(name)}</strong> <span>{escape(note)}</span>"
        yield f'<li dir="auto"><a href="{escape(file)}">{label}</a></li>'
    yield "</ul></main></body></html>"


def escape(text: str) -> str:
    """Escape a text for an element or a quoted attribute."""
    return html.escape(display_text(text), quote=True)


def _head(title: str) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield '<meta name="referrer" content="no-referrer"><meta name="robots" content="noindex">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{_STYLE}</style></head><body>"


def _entries(page: SessionPage) -> Iterator[str]:
    day: date | None = None
    for entry in page.entries:
        local = entry.at.astimezone(page.zone)
        if local.date() != day:
            day = local.date()
            label = f"{day.day} {day:%B %Y}"
            yield f'<p class="day"><time datetime="{day.isoformat()}">{label}</time></p>'
        yield from _entry(entry, local)


def _entry(entry: PageEntry, local: datetime) -> Iterator[str]:
    side = _SIDES.get(entry.role, "other")
    mark = f' <em class="kind">{escape(entry.kind)}</em>' if entry.kind else ""
    yield f'<article class="{side}" id="m{entry.seq}">'
    moment = f'<time datetime="{local.isoformat()}">{local:%H:%M}</time>'
    yield f'<h2><bdi class="who">{escape(entry.speaker)}</bdi>{mark}'
    yield f'<a href="#m{entry.seq}">{moment}</a></h2>'
    for block in entry.blocks:
        yield _block(block)
    yield "</article>"


def _block(block: PageBlock) -> str:
    if block.kind == "words":
        return f'<p class="words" dir="auto">{_inline_code(block.text)}</p>'
    if block.kind == "media":
        return _image(block)
    if block.kind == "code":
        label = f"<figcaption>{escape(block.label)}</figcaption>" if block.label else ""
        return f'<figure class="code">{label}<pre><code>{escape(block.text)}</code></pre></figure>'
    label = f"→ {block.label}" if block.kind == "call" else block.kind
    is_open = block.kind == "result" and len(block.text) <= _LONGEST_OPEN_RESULT
    return _details(block.kind, label, block.text, is_open=is_open)


def _image(block: PageBlock) -> str:
    if block.picture is None:
        return f'<p class="media" dir="auto">{escape(block.text)}</p>'
    return f'<p class="media"><img src="{escape(block.picture)}" alt="{escape(block.text)}"></p>'


def _inline_code(text: str) -> str:
    """Escape a text, then mark up what is between backticks on one line as code."""
    return _INLINE_CODE.sub(r"<code>\1</code>", escape(text))


def _details(name: str, label: str, text: str, *, is_open: bool) -> str:
    preview = one_line(text[: 4 * _PREVIEW_CHARACTERS], _PREVIEW_CHARACTERS)
    state = " open" if is_open else ""
    return (
        f'<details class="{name}"{state}><summary><span>{escape(label)}</span> '
        f'<bdi class="preview">{escape(preview)}</bdi></summary>'
        f'<pre dir="auto">\n{escape(text)}</pre></details>'
    )
