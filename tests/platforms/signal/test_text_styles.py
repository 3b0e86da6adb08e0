"""Formatted text as Signal's text styles: offsets in UTF-16, addresses after their texts."""

from __future__ import annotations

from hypothesis import given

from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import Span
from tertulia.platforms.signal.text_styles import MAX_BYTES, format_text, measure, styles_of
from tests.core.text.test_markdown import SOURCES


def test_offsets_count_utf16_units() -> None:
    (part,) = format_text("👩‍👩‍👧 **b 👋** `c`")
    encoded = part.text.encode("utf-16-le")
    pieces = []
    for style in styles_of(part.text, part.spans):
        start, length, kind = style.split(":")
        piece = encoded[2 * int(start) : 2 * (int(start) + int(length))].decode("utf-16-le")
        pieces.append((kind, piece))
    assert pieces == [("BOLD", "b 👋"), ("MONOSPACE", "c")]


def test_address_stands_after_its_text_and_moves_what_follows() -> None:
    (part,) = format_text("[a](https://b.c) **d** <https://e.f> [m@n.o](mailto:m@n.o)")
    assert part.text == "a (https://b.c) d https://e.f m@n.o"
    assert styles_of(part.text, part.spans) == ["16:1:BOLD"]


def test_style_around_a_link_contains_its_address() -> None:
    (part,) = format_text("**[a](https://b.c)** d")
    assert part.text == "a (https://b.c) d"
    assert styles_of(part.text, part.spans)[0].startswith("0:")


def test_kinds_without_a_style_have_none() -> None:
    spans = (Span("quote", 0, 1), Span("underline", 1, 2), Span("spoiler", 2, 3))
    assert styles_of("abc", spans) == ["2:1:SPOILER"]
    assert styles_of("abc", ()) == []


@given(SOURCES)
def test_parts_are_within_the_limit_and_styles_inside_their_text(source: str) -> None:
    parts = format_text(source, 100)
    for part in parts:
        assert measure(part) <= 100
        units = len(part.text.encode("utf-16-le", "surrogatepass")) // 2
        for style in styles_of(part.text, part.spans):
            start, length, _ = style.split(":")
            assert 0 <= int(start) <= int(start) + int(length) <= units
    text = "".join(part.text for part in parts)
    letters = iter(letter for letter in text if letter.isalnum())
    # In this order; the addresses of links stand in between.
    assert all(letter in letters for letter in parse(source).text if letter.isalnum())


def test_long_text_is_split_by_bytes() -> None:
    parts = format_text("**ñandú** " * 500)
    assert len(parts) > 1
    assert all(len(part.text.encode()) <= MAX_BYTES for part in parts)
