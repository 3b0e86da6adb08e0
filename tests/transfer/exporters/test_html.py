"""HTML pages in which no text takes effect."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given

from tertulia import Source, Store
from tertulia.core.text.display_safe import display_text
from tertulia.transfer.exporters.export import document
from tertulia.transfer.exporters.html import escape
from tests.transfer.exporters.hostile_texts import (
    awkward,
    every_attack,
    everywhere,
    on_one_store,
    page,
    texts,
)
from tests.transfer.exporters.html_reader import VOID, Reader
from tests.transfer.filled_stores import ANA, GROUP, opened, talk


class Words(Reader):
    """What is read in each element of a class, its children included."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted = wanted
        self._within = 0
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if self._within:
            self._within += tag not in VOID
        elif self._wanted in (tag, dict(attrs).get("class")):
            self._within = 1
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        self._within -= self._within > 0

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if self._within:
            self.found[-1] += data


class TestHtml:
    @every_attack
    @on_one_store
    @given(text=texts | awkward)
    def test_no_text_becomes_markup_or_script(self, store: Store, text: str) -> None:
        written = page(store, everywhere(text), "html", user_name=text, chat_name=text)
        reader = Reader()
        reader.feed(written)
        reader.close()
        assert reader.stack == []
        assert reader.tags.count("article") == 7
        assert reader.tags.count("style") == 1
        written.encode()

    @every_attack
    @on_one_store
    @given(text=texts | awkward)
    def test_every_text_is_readable(self, store: Store, text: str) -> None:
        written = page(store, [{"role": "tool", "content": f"<{text}>"}], "html")
        words = Words("pre")
        words.feed(written)
        # A newline that a <pre> begins with is not part of it, by the rules of HTML.
        assert words.found == ["\n" + display_text(f"<{text}>")]

    def test_no_text_ends_an_attribute(self) -> None:
        assert escape("\"'<&>") == "&quot;&#x27;&lt;&amp;&gt;"

    def test_content_security_policy_allows_only_its_style(self, store: Store) -> None:
        written = page(store, [{"role": "user", "content": "hi"}], "html")
        style = re.search(r"<style>(.*?)</style>", written, re.DOTALL)
        assert style is not None
        digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', written)
        assert policy is not None
        rules = [rule.strip() for rule in policy[1].split(";")]
        assert rules == [
            "default-src 'none'",
            f"style-src 'sha256-{digest}'",
            "img-src data:",
            "base-uri 'none'",
        ]
        assert written.index("Content-Security-Policy") < written.index("<style>")

    def test_page_is_one_file_for_every_screen(self, store: Store) -> None:
        written = page(store, [{"role": "user", "content": "hi"}], "html")
        assert 'name="viewport" content="width=device-width, initial-scale=1"' in written
        assert "prefers-color-scheme: dark" in written
        assert "url(" not in written
        assert "@import" not in written
        assert "<script" not in written
        assert "http" not in written.replace("http-equiv", "")

    def test_only_valid_images_are_embedded(self, store: Store) -> None:
        addresses = [
            "data:image/png;base64,iVBORw0KGgo=",
            "data:image/svg+xml;base64,PHN2Zz4=",
            "data:text/html;base64,PHN2Zz4=",
            'data:image/png;base64,x" onerror="alert(1)',
            "https://tracker.example/x.png",
            "javascript:alert(1)",
        ]
        parts = [{"type": "image_url", "image_url": {"url": one}} for one in addresses]
        reader = Reader()
        reader.feed(page(store, [{"role": "user", "content": parts}], "html"))
        assert [v for tag, name, v in reader.attributes if name == "src"] == addresses[:1]

    def test_code_reasoning_calls_and_results_are_marked_up(self, store: Store) -> None:
        session = talk(store, ANA, "see `x`:\n```python\nprint(1)\n```")
        written = "\n".join(document(store, session, "html"))
        for tag in ("figure.code", "details.thought", "details.call", "details.result"):
            name, kind = tag.split(".")
            assert f'<{name} class="{kind}"' in written
        assert "<figcaption>python</figcaption>" in written
        assert "<code>x</code>" in written

    def test_new_day_has_a_heading(self, tmp_path: Path) -> None:
        from tertulia.testing import FakeClock

        clock = FakeClock()
        with opened(tmp_path / "days.db", clock) as store:
            session = talk(store, GROUP, "one")
            clock.forward(hours=13)
            store.transcript(session).append({"role": "user", "content": "two"})
            written = "\n".join(document(store, session, "html"))
        assert written.count('<p class="day">') == 2

    @pytest.mark.parametrize("name", ["Eve", "assistant", None])
    def test_authors_in_a_group_are_shown(self, store: Store, name: str | None) -> None:
        eve = Source("telegram", "-9", chat_type="group", user_id="5", user_name=name)
        words = Words("who")
        words.feed("\n".join(document(store, talk(store, eve, "hi"), "html")))
        assert words.found == [f"user {name or 5}", "assistant", "tool", "assistant"]
