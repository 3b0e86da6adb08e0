"""An HTML mail as plain text. Quoted mails get "> " before each line; hidden text is left out."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "center", "dd", "div", "dl", "dt", "footer",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p",
    "pre", "section", "table", "tr", "ul",
})  # fmt: skip
_SKIPPED: Final = frozenset({"head", "script", "style", "template", "title", "object", "svg"})
_VOID: Final = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link",
                          "meta", "source", "track", "wbr"})  # fmt: skip
_QUOTES: Final = ("gmail_quote", "yahoo_quoted", "moz-cite-prefix", "protonmail_quote")
# Outlook and its relatives put what they quote after such an element, not into it.
_RULERS: Final = ("divrplyfwdmsg", "appendonsend", "mail-editor-reference-message-container")
ORIGINAL_LINE: Final = "-----Original Message-----"
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d]*[1-9])")
_BLANKS = re.compile(r"[ \t\r\f\v\n\u200b\u00ad]+")
_MAX_DEPTH: Final = 500


class _TextWriter(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[tuple[int, str]] = []
        self._line = ""
        self._open: list[str] = []
        self._skip_at: int | None = None
        self._quotes: list[int] = []
        self._pre = 0
        self._links: list[tuple[str, int]] = []

    # -- elements

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in _BLOCKS or tag == "br":
            self._end_line()
        if self._skip_at is None:
            self._begin(tag, values)
        if tag in _VOID or len(self._open) >= _MAX_DEPTH:
            return
        self._open.append(tag)
        is_hidden = _HIDDEN.search(values.get("style", "").lower()) or "hidden" in values
        if self._skip_at is None and (tag in _SKIPPED or is_hidden):
            self._skip_at = len(self._open)

    def _begin(self, tag: str, values: dict[str, str]) -> None:
        marks = f"{values.get('class', '')} {values.get('id', '')}".lower()
        if any(mark in marks for mark in _RULERS):
            self.lines.append((len(self._quotes), ORIGINAL_LINE))
        if tag == "blockquote" or (tag == "div" and any(mark in marks for mark in _QUOTES)):
            self._quotes.append(len(self._open) + 1)
        elif tag == "li":
            self._line = "- "
        elif tag == "pre":
            self._pre += 1
        elif tag == "a":
            self._links.append((values.get("href", ""), len(self._line)))
        elif tag in ("td", "th") and self._line.strip():
            self._line += " | "
        elif tag == "img" and values.get("alt", "").strip():
            self._line += f"[{values['alt'].strip()}]"

    def handle_endtag(self, tag: str) -> None:
        if tag not in self._open:
            return
        if self._skip_at is None:
            self._end(tag)
        while self._open:
            depth, last = len(self._open), self._open.pop()
            if self._skip_at is not None and depth <= self._skip_at:
                self._skip_at = None
            if self._quotes and self._quotes[-1] >= depth:
                self._end_line()
                self._quotes.pop()
            if last == tag:
                return

    def _end(self, tag: str) -> None:
        if tag == "a" and self._links:
            url, start = self._links.pop()
            label = self._line[start:].strip()
            if (
                url.startswith(("http://", "https://"))
                and label not in (url, "")
                and (label.rstrip("/") not in url)
            ):
                self._line += f" ({url})"
        if tag in _BLOCKS:
            self._end_line()
            if tag in ("p", "h1", "h2", "h3", "table", "ul", "ol", "blockquote", "pre"):
                self._end_paragraph()
        if tag == "pre":
            self._pre = max(0, self._pre - 1)

    def handle_data(self, data: str) -> None:
        if self._skip_at is not None:
            return
        if self._pre:
            first, *rest = data.split("\n")
            self._line += first
            for line in rest:
                self._end_line(is_blank_line=True)
                self._line = line
            return
        text = _BLANKS.sub(" ", data)
        self._line += text.lstrip(" ") if not self._line or self._line.endswith(" ") else text

    # -- lines

    def _end_line(self, *, is_blank_line: bool = False) -> None:
        if self._line.strip() or is_blank_line:
            self.lines.append((len(self._quotes), self._line.rstrip()))
        self._line = ""

    def _end_paragraph(self) -> None:
        if self.lines and self.lines[-1][1]:
            self.lines.append((len(self._quotes), ""))

    def text(self) -> str:
        self._end_line()
        lines = [f"{'> ' * depth}{line}".rstrip() for depth, line in self.lines]
        return "\n".join(lines).strip("\n")


def html_to_text(html: str) -> str:
    """Return the text that a person sees of an HTML mail."""
    writer = _TextWriter()
    writer.feed(html)
    # A tag or a comment without an end is not shown. To close the parser would show it as text, and
    # take minutes if there are many.
    if not writer.rawdata.startswith("<"):
        writer.close()
    return writer.text()
