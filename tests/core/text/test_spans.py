"""Text with spans: slices, HTML, plain text, UTF-16 offsets, names that ping nobody."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import (
    WORD_JOINER,
    FormattedText,
    Span,
    break_mentions,
    to_html,
    to_plain,
    utf16_offsets,
)
from tests.core.text.test_markdown import SOURCES, assert_nested

TAGS = {"strong", "em", "u", "del", "code", "pre", "blockquote", "a", "br", "span",
        "h1", "h2", "h3", "h4", "h5", "h6"}  # fmt: skip


class StrictReader(HTMLParser):
    """Reads HTML and checks that every tag is allowed and is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= {"href", "class", "data-mx-spoiler"}
        if tag == "br":
            self.text += "\n"
        else:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@given(SOURCES)
def test_html_has_the_same_text_and_only_allowed_tags(source: str) -> None:
    formatted = parse(source)
    reader = StrictReader()
    reader.feed(to_html(formatted))
    reader.close()
    assert not reader.open
    assert reader.text == formatted.text


@given(SOURCES, st.data())
def test_slices_together_are_the_whole(source: str, data: st.DataObject) -> None:
    formatted = parse(source)
    cut = data.draw(st.integers(0, len(formatted.text)))
    head, tail = formatted.slice(0, cut), formatted.slice(cut, len(formatted.text))
    assert head.text + tail.text == formatted.text
    assert_nested(head)
    assert_nested(tail)

    def formats(part: FormattedText) -> list[set[tuple[str, str | None]]]:
        return [
            {(span.kind, span.data) for span in part.spans if span.start <= at < span.end}
            for at in range(len(part.text))
        ]

    assert formats(head) + formats(tail) == formats(formatted)


@given(SOURCES)
def test_names_are_broken_and_nothing_else_changes(source: str) -> None:
    formatted = parse(source)
    broken = break_mentions(formatted)
    assert broken.text.replace(WORD_JOINER, "") == formatted.text.replace(WORD_JOINER, "")
    assert_nested(broken)
    assert len(broken.spans) == len(formatted.spans)
    for before, after in zip(formatted.spans, broken.spans, strict=True):
        old = formatted.text[before.start : before.end].replace(WORD_JOINER, "")
        new = broken.text[after.start : after.end].replace(WORD_JOINER, "")
        assert (before.kind, before.data, old) == (after.kind, after.data, new)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("@ana, (@bob) **@eva**", "@|ana, (@|bob) @|eva"),
        ("@@ana", "@@|ana"),
        ("ana@example.org", "ana@example.org"),
        ("`@ana`", "@ana"),
        ("@ ana", "@ ana"),
    ],
)
def test_name_after_an_at_sign_is_broken(source: str, text: str) -> None:
    assert break_mentions(parse(source)).text == text.replace("|", WORD_JOINER)


@given(st.text())
def test_utf16_offsets_count_code_units(text: str) -> None:
    encoded = [
        len(text[:end].encode("utf-16-le", "surrogatepass")) // 2 for end in range(len(text) + 1)
    ]
    assert utf16_offsets(text) == encoded


def test_html_of_every_kind() -> None:
    formatted = FormattedText(
        "<b>", (Span("quote", 0, 3), Span("link", 0, 3, 'https://a.b/"x'), Span("bold", 0, 1))
    )
    assert to_html(formatted) == (
        '<blockquote><a href="https://a.b/&quot;x"><strong>&lt;</strong>b&gt;</a></blockquote>'
    )
    code = FormattedText("a\nb", (Span("pre", 0, 3, "py"),))
    assert to_html(code) == '<pre><code class="language-py">a\nb</code></pre>'
    assert to_html(FormattedText("a", (Span("pre", 0, 1, '"><b'),))) == "<pre><code>a</code></pre>"
    assert to_html(FormattedText("a", (Span("spoiler", 0, 1),))) == (
        "<span data-mx-spoiler>a</span>"
    )


def test_plain_text_has_the_addresses_of_links() -> None:
    source = "[a **b**](https://c.d) <https://e.f> <g@h.i>"
    assert to_plain(parse(source)) == "a b (https://c.d) https://e.f g@h.i"
