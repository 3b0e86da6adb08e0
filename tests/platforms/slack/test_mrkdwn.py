"""Texts of Slack: read, and written as the Markdown that Slack shows."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tertulia.core.text.markdown import parse
from tertulia.core.text.spans import WORD_JOINER
from tertulia.platforms.slack.mrkdwn import (
    MAX_MARKDOWN,
    format_text,
    plain_of,
    read_text,
    to_markdown,
    to_text,
    unescape,
)

MARKDOWN = st.text(alphabet="ab _*~`[]()#>-+.!<@&|\\\n1:/", max_size=80)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a &lt;b&gt; &amp;lt; c", "a <b> &lt; c"),
        ("<@UBOT> hi", "@tertulia hi"),
        ("<@UANA> and <@UBEN|ben>", "<@UANA> and <@UBEN>"),
        ("<#C1|general> <#C2>", "#general <#C2>"),
        ("<!here> <!channel|channel> <!subteam^S1|@team>", "@here @channel @team"),
        ("<!date^1700000000^{date}|14 Nov>", "14 Nov"),
        ("<https://a.example/?x=1&amp;y=2>", "https://a.example/?x=1&y=2"),
        ("<https://a.example|a.example>", "https://a.example"),
        ("<https://a.example|the page>", "the page (https://a.example)"),
        ("<mailto:a@b.example|a@b.example>", "a@b.example"),
        ("1 < 2", "1 < 2"),
    ],
)
def test_text_that_people_wrote(text: str, expected: str) -> None:
    assert read_text(text, own_id="UBOT", own_name="tertulia") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("**bold** and *italic* and ~~gone~~", "**bold** and _italic_ and ~~gone~~"),
        ("# Title\n\ntext", "# Title\n\ntext"),
        ("`a` and ``b ` c``", "`a` and ``b ` c``"),
        ("```py\nprint(1)\n```", "```py\nprint(1)\n```"),
        ("````\n```\n````", "````\n```\n````"),
        ("[the page](https://a.example/x)", "[the page](https://a.example/x)"),
        ("> a\n> b\n\nc", "> a\n> b\n\nc"),
        ("snake_case and 2 * 3", "snake_case and 2 \\* 3"),
        ("\\*not bold\\*", "\\*not bold\\*"),
        ("\\# not a title", "\\# not a title"),
        ("```a,b\nprint(1)\n```", "```\nprint(1)\n```"),
        ("[x](<https://a.example/a b(c)>)", "[x](https://a.example/a%20b%28c%29)"),
    ],
)
def test_markdown_that_slack_reads(source: str, expected: str) -> None:
    formatted = parse(source)
    assert to_markdown(formatted.text, formatted.spans) == expected


@pytest.mark.parametrize("mention", ["<!channel>", "<@UANA>", "<#C1>", "<!subteam^S1>"])
@pytest.mark.parametrize("form", ["{}", "**{}**", "`{}`", "```\n{}\n```", "> {}"])
def test_no_mention_survives(mention: str, form: str) -> None:
    (part,) = format_text(form.format(mention))
    text = to_markdown(part.text, part.spans)
    assert mention not in text
    assert f"<{WORD_JOINER}" in text
    assert "<" not in plain_of(part.text, part.spans)


@pytest.mark.parametrize("name", ["@here", "@channel", "@everyone"])
def test_no_name_is_a_mention(name: str) -> None:
    (part,) = format_text(f"hey {name}")
    assert name not in to_markdown(part.text, part.spans)


def test_long_answer_is_split_within_the_limit() -> None:
    source = (
        "# Title\n\n" + "some *words* in_a row. " * 1500 + "\n\n```\n" + "code\n" * 3000 + "```"
    )
    parts = format_text(source)
    assert len(parts) > 2
    assert all(len(to_markdown(part.text, part.spans)) <= MAX_MARKDOWN for part in parts)
    assert MAX_MARKDOWN < 12_000  # Slack's limit


@given(MARKDOWN)
def test_rendered_markdown_says_what_the_source_said(source: str) -> None:
    """Read again, the Markdown has the same words: nothing is lost, nothing becomes markup."""
    formatted = parse(source)
    rendered = to_markdown(formatted.text, formatted.spans)
    again = parse(rendered)

    def letters(text: str) -> str:
        return "".join(letter for letter in text if letter.isalnum())

    assert letters(again.text) == letters(formatted.text)
    assert not any(mark in rendered for mark in ("<!", "<@", "<#"))
    MarkdownIt("commonmark").render(rendered)


@given(st.text(max_size=60))
@example("&lt;!channel&gt; &amp;amp;")
def test_plain_text_arrives_as_it_is(text: str) -> None:
    assert unescape(to_text(text)) == text
    assert not {"<", ">"} & {*to_text(text)}
