"""Lines of code with the styles of a syntax highlighter. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tertulia.platforms.terminal.wrap import Row, Segment

_MAX_CHARACTERS = 20_000  # a longer block is shown without colours, so that it costs no time


def highlight_lines(code: str, language: str) -> list[Row]:
    """Return one row for each line of the code; an unknown language has one style."""
    lexer = _lexer(language) if len(code) <= _MAX_CHARACTERS else None
    if lexer is None:
        return [(Segment("code", line),) if line else () for line in code.splitlines()]
    rows: list[list[Segment]] = [[]]
    for kind, text in lexer.get_tokens(code):
        for index, piece in enumerate(text.split("\n")):
            if index:
                rows.append([])
            if piece:
                rows[-1].append(Segment(_style(kind), piece))
    # The lexer ends the code with a line feed of its own.
    return [tuple(row) for row in rows[: len(code.splitlines())]]


@lru_cache(maxsize=16)
def _lexer(language: str) -> Any:
    """Return the lexer of a language, or None."""
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=True)
    except ClassNotFound:
        return None


def _style(kind: object) -> str:
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    for group, style in (
        (Comment, "code-comment"),
        (Keyword, "code-keyword"),
        (Operator.Word, "code-keyword"),
        (String, "code-string"),
        (Number, "code-number"),
        (Name.Function, "code-name"),
        (Name.Class, "code-name"),
        (Name.Decorator, "code-name"),
        (Name.Tag, "code-keyword"),
    ):
        if kind in group:
            return style
    return "code"
