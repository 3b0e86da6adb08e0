"""Markdown pages in which no text takes effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from markdown_it import MarkdownIt

from tertulia import Source, Store
from tertulia.core.text.display_safe import display_text
from tertulia.transfer.exporters.export import document
from tertulia.transfer.exporters.markdown import escape as escape_markdown
from tertulia.transfer.exporters.page import split_code
from tests.transfer.exporters.hostile_texts import (
    awkward,
    every_attack,
    everywhere,
    on_one_store,
    page,
    texts,
)


class TestMarkdown:
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    plain = ("paragraph", "inline", "text", "softbreak", "hardbreak", "fence", "blockquote")

    def tokens(self, written: str) -> Iterator[Any]:
        for token in self.parser.parse(written):
            yield token
            yield from token.children or ()

    @every_attack
    @on_one_store
    @given(text=texts | awkward)
    def test_no_message_becomes_markdown(self, store: Store, text: str) -> None:
        written = page(store, everywhere(text), "markdown", user_name=text, chat_name=text)
        headings = 0
        inside = 0
        for token in self.tokens(written):
            name = token.type.removesuffix("_open").removesuffix("_close")
            inside += token.nesting if name == "blockquote" else 0
            if name == "heading":
                assert not inside
                headings += token.nesting == 1
            elif inside:
                assert name in (*self.plain, "text_special"), name
            else:
                assert name in (*self.plain, "text_special", "bullet_list", "list_item"), name
        assert headings == 1 + 7

    @every_attack
    @settings(max_examples=300)
    @given(text=texts | awkward)
    def test_text_reads_as_written(self, text: str) -> None:
        given_ = display_text(text)
        shown = []
        for token in self.tokens(escape_markdown(given_)):
            if token.type in ("text", "text_special"):
                shown.append(token.content)
            else:
                assert token.type.startswith(("paragraph", "inline", "softbreak", "hardbreak"))
        assert visible("".join(shown)) == visible(given_)

    @settings(max_examples=300)
    @given(text=texts | awkward)
    def test_split_code_loses_nothing(self, text: str) -> None:
        blocks = list(split_code(text))
        kept = "".join(block.text + block.label for block in blocks)
        fences = re.findall(r"(?m)^ {0,3}(?:`{3,}|~{3,})[ \t]*[^`\n]*$", text)
        left = text
        for fence in fences:
            left = left.replace(fence, re.sub("^[ ]*[`~]+", "", fence), 1)
        assert sorted(visible(kept).replace("`", "").replace("~", "")) == sorted(
            visible(left).replace("`", "").replace("~", "")
        )

    def test_line_breaks_are_kept(self) -> None:
        assert escape_markdown("one\ntwo\n\nthree") == "one  \ntwo\n\nthree"


def visible(text: str) -> str:
    return "".join(text.split())


def test_messages_are_counted_without_those_taken_back(store: Store) -> None:
    session = store.sessions.open(Source("telegram", "1", user_id="1"))
    transcript = store.transcript(session.id)
    for text in ("one", "two", "three"):
        with store.turn(Source("telegram", "1", user_id="1"), text) as turn:
            turn.add_assistant("yes")
        if text == "two":
            transcript.undo()
    written = "\n".join(document(store, session.id, "markdown"))
    assert re.findall(r"(?m)^## (\d)\. ", written) == ["1", "2", "3", "4"]
