"""Pages for people: whatever strangers wrote is text in them, and nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tertulia import Source, Store
from tertulia.core.text.display_safe import harmless
from tertulia.transfer.exporters.export import (
    Form,
    document,
    export_to,
)
from tertulia.transfer.exporters.html import escape
from tertulia.transfer.exporters.markdown import escape as escape_markdown
from tertulia.transfer.exporters.page import split_code
from tests.transfer.scene import ANA, GROUP, opened, talk

ATTACKS = [
    "<script>alert(1)</script>",
    "</pre></code></details></article><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- --><svg onload=alert(1)>",
    "&lt;script&gt; &amp; &#x3c;script&#x3e;",
    "[click](javascript:alert(1)) ![x](http://tracker.example/x.png) <http://a.example>",
    "# heading\n## 2. assistant\n- list\n1. list\n> quote\n***\n---\n===\n| a | b |\n|---|---|",
    "```html\n<script>alert(1)</script>\n```\n~~~\n</style>",
    "``` \n never closed",
    "`<b>` ``x`` *a* _b_ __c__ ~~d~~ $e$ a_b_c \\* \\",
    "    four spaces\n\ttab\n\n\n  # two",
    "line\u2028separator\x0b\x0c\x85\x1b[31m\x9b31m \u202eevil\u2066",
    "[ref]: http://x.example\n[^1]: note\n\n[ref]",
    "<style>body{display:none}</style><base href=http://x.example><meta http-equiv=refresh>",
    "half \ud83d pair \x00 nul",
]
texts = st.sampled_from(ATTACKS) | st.text(max_size=60)
awkward = st.lists(
    st.sampled_from([*"`*_~<>[]()!&#|\\-+=.:1 \n\t\"'$^{}", "```", "~~~", "<a>", "&lt;", "x", "é"]),
    max_size=24,
).map("".join)

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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "talk.db") as made:
        made._indexer.stop()
        yield made


def page(store: Store, messages: list[dict[str, Any]], form: Form, **source: Any) -> str:
    who = Source("telegram", "42", **{"user_id": "42", **source})
    session = store.sessions.open(who, force_new=True)
    store.transcript(session.id).extend(messages)
    return "\n".join(document(store, session.id, form)) + "\n"


def everywhere(text: str) -> list[dict[str, Any]]:
    """The text in every place of a message that a stranger or a model can fill."""
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
    return [
        {"role": "user", "content": text, "name": text},
        {"role": "user", "content": [{"type": "text", "text": text}, {"type": text}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]},
        {"role": "user", "content": "see", "media": [text, {"path": text, "type": text}]},
        {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": text, "content": text},
        {"role": text or "x", "content": {"odd": text}},
    ]


on_one_store = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def every_attack(test: Any) -> Any:
    for attack in ATTACKS:
        test = example(text=attack)(test)
    return test


class TestHtml:
    @every_attack
    @on_one_store
    @given(text=texts | awkward)
    def test_nothing_comes_alive(self, store: Store, text: str) -> None:
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
    def test_everything_is_there_to_read(self, store: Store, text: str) -> None:
        written = page(store, [{"role": "tool", "content": f"<{text}>"}], "html")
        words = Words("pre")
        words.feed(written)
        # A newline that a <pre> begins with is not part of it, by the rules of HTML.
        assert words.found == ["\n" + harmless(f"<{text}>")]

    def test_no_text_leaves_the_quotes_of_an_attribute(self) -> None:
        assert escape("\"'<&>") == "&quot;&#x27;&lt;&amp;&gt;"

    def test_its_policy_allows_its_own_style_and_nothing_else(self, store: Store) -> None:
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

    def test_it_is_one_file_for_wide_and_narrow_light_and_dark(self, store: Store) -> None:
        written = page(store, [{"role": "user", "content": "hi"}], "html")
        assert 'name="viewport" content="width=device-width, initial-scale=1"' in written
        assert "prefers-color-scheme: dark" in written
        assert "url(" not in written
        assert "@import" not in written
        assert "<script" not in written
        assert "http" not in written.replace("http-equiv", "")

    def test_pictures_stand_in_the_page_if_they_are_pictures(self, store: Store) -> None:
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

    def test_code_thoughts_calls_and_results_look_like_themselves(self, store: Store) -> None:
        session = talk(store, ANA, "see `x`:\n```python\nprint(1)\n```")
        written = "\n".join(document(store, session, "html"))
        for tag in ("figure.code", "details.thought", "details.call", "details.result"):
            name, kind = tag.split(".")
            assert f'<{name} class="{kind}"' in written
        assert "<figcaption>python</figcaption>" in written
        assert "<code>x</code>" in written

    def test_a_new_day_is_told(self, tmp_path: Path) -> None:
        from tertulia.testing import FakeClock

        clock = FakeClock()
        with opened(tmp_path / "days.db", clock) as store:
            session = talk(store, GROUP, "one")
            clock.forward(hours=13)
            store.transcript(session).append({"role": "user", "content": "two"})
            written = "\n".join(document(store, session, "html"))
        assert written.count('<p class="day">') == 2

    @pytest.mark.parametrize("name", ["Eve", "assistant", None])
    def test_who_wrote_in_a_group(self, store: Store, name: str | None) -> None:
        eve = Source("telegram", "-9", chat_type="group", user_id="5", user_name=name)
        words = Words("who")
        words.feed("\n".join(document(store, talk(store, eve, "hi"), "html")))
        assert words.found == [f"user {name or 5}", "assistant", "tool", "assistant"]


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
    def test_nothing_said_comes_alive(self, store: Store, text: str) -> None:
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
    def test_words_read_as_they_were_written(self, text: str) -> None:
        given_ = harmless(text)
        shown = []
        for token in self.tokens(escape_markdown(given_)):
            if token.type in ("text", "text_special"):
                shown.append(token.content)
            else:
                assert token.type.startswith(("paragraph", "inline", "softbreak", "hardbreak"))
        assert visible("".join(shown)) == visible(given_)

    @settings(max_examples=300)
    @given(text=texts | awkward)
    def test_nothing_gets_lost_between_words_and_code(self, text: str) -> None:
        blocks = list(split_code(text))
        kept = "".join(block.text + block.label for block in blocks)
        fences = re.findall(r"(?m)^ {0,3}(?:`{3,}|~{3,})[ \t]*[^`\n]*$", text)
        left = text
        for fence in fences:
            left = left.replace(fence, re.sub("^[ ]*[`~]+", "", fence), 1)
        assert sorted(visible(kept).replace("`", "").replace("~", "")) == sorted(
            visible(left).replace("`", "").replace("~", "")
        )

    def test_lines_stay_lines(self) -> None:
        assert escape_markdown("one\ntwo\n\nthree") == "one  \ntwo\n\nthree"


def visible(text: str) -> str:
    return "".join(text.split())


class TestContents:
    @pytest.mark.parametrize("form", ["markdown", "html"])
    def test_a_folder_has_a_page_that_leads_to_all(
        self, store: Store, tmp_path: Path, form: str
    ) -> None:
        ending = {"markdown": "md", "html": "html"}[form]
        names = [talk(store, source, "hi") for source in (ANA, GROUP)]
        store.sessions.rename(names[0], "[x](javascript:alert(1)) <b>")
        export_to(store, form, tmp_path / "out")
        assert set(os.listdir(tmp_path / "out")) == {
            f"index.{ending}",
            *(f"{n}.{ending}" for n in names),
        }
        index = (tmp_path / "out" / f"index.{ending}").read_text("utf-8")
        if form == "html":
            reader = Reader()
            reader.feed(index)
            links = [value for _, name, value in reader.attributes if name == "href"]
        else:
            tokens = cast(Any, MarkdownIt("commonmark").parse(index))
            children = [child for token in tokens for child in token.children or ()]
            links = [child.attrGet("href") for child in children if child.type == "link_open"]
        assert links == [f"{name}.{ending}" for name in names]
