"""An agent's Markdown as HTML that is safe to show: no HTML of its own, no pictures, plain links.

The parser escapes everything; nh3 then removes what is not on a short list. Both would have to fail
for a text to become more than text.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from tertulia.core.text.display_safe import display_text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MAX_LENGTH: Final = 16_384
# The parser's time grows with the square of their number.
_MAX_BRACKETS: Final = 500
_MAX_NESTING: Final = 20
_TAGS: Final = frozenset(
    (
        *("a", "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li"),
        *("h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
    )
)
_BOLD: Final = re.compile(r"\*\*([^*\n]+)\*\*")
_SCHEMES: Final = frozenset(("http", "https", "mailto"))


async def render_texts(texts: Sequence[str]) -> list[Markup]:
    """Return texts as HTML, made in a thread: a long one may take some milliseconds."""
    return await asyncio.to_thread(lambda: [markdown_html(text) for text in texts])


@lru_cache(maxsize=2_000)
def markdown_html(source: str) -> Markup:
    """Return Markdown as HTML; a text that is too large or too deep as plain text."""
    import nh3

    text = display_text(source)
    if len(text) > _MAX_LENGTH or text.count("[") + text.count("*") > _MAX_BRACKETS:
        return plain_html(text)
    tokens = _parser().parse(text)
    if any(token.level >= _MAX_NESTING for token in tokens):
        return plain_html(text)
    for token in tokens:
        if token.tag in ("h1", "h2"):  # the page has its own
            token.tag = "h3"
    html = _parser().renderer.render(tokens, _parser().options, {})
    return Markup(  # noqa: S704
        nh3.clean(
            html,
            tags=set(_TAGS),
            attributes={"a": {"href", "title"}, "ol": {"start"}},
            url_schemes=set(_SCHEMES),
            link_rel="noopener noreferrer nofollow",
            set_tag_attribute_values={"a": {"target": "_blank"}},
        )
    )


def plain_html(text: str) -> Markup:
    """Return a text as HTML in which its lines stay."""
    return Markup('<p class="plain">{}</p>').format(escape(display_text(text)))


def bold_html(text: str) -> Markup:
    """Return a text as HTML in which its lines stay; of Markdown only bold words are shown."""
    parts = _BOLD.split(display_text(text))
    strong = Markup("<strong>{}</strong>")
    words = [strong.format(part) if index % 2 else part for index, part in enumerate(parts)]
    return Markup('<p class="plain">{}</p>').format(Markup("").join(words))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": _MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    return parser.disable(["lheading", "reference", "html_block", "html_inline", "image"])
