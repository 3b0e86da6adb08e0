"""A strict reader of the exported HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser

ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "header", "h1", "dl", "div", "dt", "dd"),
    *("main", "p", "time", "article", "h2", "bdi", "em", "a", "details", "summary", "span", "pre"),
    *("code", "figure", "figcaption", "img", "ul", "li", "strong"),
}


ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "dir", "id", "href", "datetime"),
    *("open", "src", "alt"),
}


VOID = {"meta", "img"}


class Reader(HTMLParser):
    """Reads a page as a browser does, and refuses whatever does not belong there."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.attributes: list[tuple[str, str, str | None]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, name
            if name == "href":
                assert re.fullmatch(r"#m\d+|[\w.-]+\.html", value or ""), value
            if name == "src":
                assert re.match(r"data:image/(png|jpeg|gif|webp);base64,", value or ""), value
            self.attributes.append((tag, name, value))
        self.tags.append(tag)
        if tag not in VOID:
            self.stack.append(tag)
            classes = dict(attrs).get("class")
            self.texts.setdefault(classes or tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag, f"</{tag}> closes what it did not open"

    def handle_data(self, data: str) -> None:
        assert self.stack or not data.strip()

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")
