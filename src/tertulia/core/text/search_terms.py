"""What a search index is given, and how a question to it is written.

Both sides go through `folded`, so that a word is found however it was typed: compatibility forms
are unified, case and accents dropped, and each character of a script that writes no spaces stands
alone, since in such a script a word is a phrase of characters.
"""

from __future__ import annotations

import re
import unicodedata

# Raise it when `folded` gives other words than before: the index is then made anew.
RULE = 1

SNIPPET = 160

# Words that stand together, and whether the last of them is only a beginning.
Phrase = tuple[str, bool]

_ALONE = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)
_MARKS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_WORD = re.compile(r"\w")
_TERM = re.compile(r'"([^"]*)"|(\S+)')


def folded(text: str) -> str:
    """The words of a text in the form they are indexed and asked for."""
    if text.isascii():
        return text.lower()
    whole = _SURROGATES.sub(" ", text)
    bare = _MARKS.sub("", unicodedata.normalize("NFKD", whole))
    return _ALONE.sub(r" \1 ", unicodedata.normalize("NFKC", bare).casefold())


def terms(question: str) -> list[Phrase]:
    """The phrases of a question, each with whether its last word is only a beginning."""
    found = []
    for quoted, bare in _TERM.findall(question):
        is_prefix = bare.endswith("*")
        phrase = " ".join(folded(quoted or bare).replace('"', " ").split())
        if _WORD.search(phrase):
            found.append((phrase.rstrip("*"), is_prefix))
    return found


def snippet(text: str, phrases: list[Phrase], *, size: int = SNIPPET) -> str:
    """The part of a text around the first phrase that stands in it, on one line."""
    line = " ".join(text.split())
    if len(line) <= size:
        return line
    low = line.lower()
    places = (low.find(phrase.replace(" ", "") if _ALONE.search(phrase) else phrase)
              for phrase, _ in phrases)  # fmt: skip
    at = min((place for place in places if place >= 0), default=0)
    start = max(0, min(at - size // 3, len(line) - size))
    cut = line[start : start + size]
    return ("…" if start else "") + cut + ("…" if start + size < len(line) else "")
