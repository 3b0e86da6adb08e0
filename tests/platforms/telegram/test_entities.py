"""Formatted text as Telegram's entities: offsets in UTF-16, code without other formatting."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import Span, break_mentions
from tertulia.platforms.telegram.entities import MAX_TEXT, entities_of, format_text, measure
from tests.core.text.test_markdown import SOURCES
from tests.servers.telegram import check_entities, pinged_names


def test_offsets_count_utf16_units() -> None:
    formatted = parse("👩‍👩‍👧 **b 👋** `c`")
    entities = entities_of(formatted.text, formatted.spans)
    encoded = formatted.text.encode("utf-16-le")

    def piece(entity: dict[str, Any]) -> str:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        return encoded[2 * start : 2 * end].decode("utf-16-le")

    assert [(e["type"], piece(e)) for e in entities] == [("bold", "b 👋"), ("code", "c")]


def test_code_has_no_other_formatting() -> None:
    formatted = parse("**a `b` c** [`d`](https://e.f)")
    kinds = [(e["type"], e["offset"]) for e in entities_of(formatted.text, formatted.spans)]
    assert kinds == [("bold", 0), ("bold", 3), ("code", 2), ("text_link", 6)]


def test_values_of_links_and_code() -> None:
    spans = (Span("link", 0, 1, "https://a.b"), Span("pre", 1, 2, "py"), Span("heading", 2, 3, "1"))
    assert entities_of("abc", spans) == [
        {"type": "text_link", "offset": 0, "length": 1, "url": "https://a.b"},
        {"type": "pre", "offset": 1, "length": 1, "language": "py"},
        {"type": "bold", "offset": 2, "length": 1},
    ]


@given(SOURCES)
def test_server_accepts_every_formatting_and_sees_no_name(source: str) -> None:
    for part in format_text(source, 100):
        assert measure(part) <= 100
        entities = entities_of(part.text, part.spans)
        assert check_entities(part.text, entities) == []
        assert pinged_names(part.text, entities) == []


def test_long_answer_is_split_within_the_limit_of_telegram() -> None:
    parts = format_text("**bold** 👋 text\n\n" * 800)
    assert len(parts) > 2
    assert all(measure(part) <= MAX_TEXT for part in parts)
    assert break_mentions(parts[0]) == parts[0]
