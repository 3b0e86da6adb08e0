"""Text for the search index, and the parsing of search queries.

Both go through `fold_text`, so that a search finds a word in every spelling: compatibility forms
are unified, case and accents removed, and each character of a script without spaces becomes a word
of its own, because in such a script a word is a phrase of characters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from tertulia.core.text.excerpt import one_line

# Increase it when `fold_text` gives other words than before: the index is then rebuilt.
RULE_VERSION = 1

SNIPPET = 160

# Adjacent words, and whether the last of them is a prefix.
Phrase = tuple[str, bool]

_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ASCII = bytes(range(128))
# More than all marks that people and models write.
_REMEMBERED_CHARACTERS = 1024
# The text is read once more for each different mark.
_MAX_DIFFERENT_MARKS = 16
_WORD = re.compile(r"\w")
_TERM = re.compile(r'"([^"]*)"|(\S+)')


def fold_text(text: str) -> str:
    """Return the words of a text in the form that is indexed and searched for."""
    if text.isascii():
        return text.lower()
    folded = _fold_marks(text)
    return _fold_any(text) if folded is None else folded.lower()


def _fold_any(text: str) -> str:
    """Fold a text of any scripts."""
    valid = _SURROGATES.sub(" ", text)
    unaccented = _ACCENTS.sub("", unicodedata.normalize("NFKD", valid))
    return _UNSPACED.sub(r" \1 ", unicodedata.normalize("NFKC", unaccented).casefold())


def _fold_marks(text: str) -> str | None:
    """Return a text of ASCII and a few marks with the marks folded; None for another text.

    Many answers of models are such texts, with dashes and quotation marks. `_fold_any` takes four
    times as long for them.
    """
    try:
        others = text.encode().translate(None, _ASCII)
    except UnicodeEncodeError:
        return None  # an unpaired surrogate
    if len(others) * 8 > len(text):
        return None
    # In UTF-8 no byte of such a character is one of ASCII, so these bytes are the characters.
    marks = set(others.decode())
    if len(marks) > _MAX_DIFFERENT_MARKS:
        return None
    for char in marks:
        folded = _fold_mark(char)
        if folded is None:
            return None
        if folded != char:
            text = text.replace(char, folded)
    return text


@lru_cache(_REMEMBERED_CHARACTERS)
def _fold_mark(char: str) -> str | None:
    """Return a mark or symbol, folded; None for another character.

    What is beside it makes no difference: only accents and letters are ever joined with the
    character before them.
    """
    is_mark = unicodedata.category(char)[0] in "PS"
    return _fold_any(char) if is_mark else None


def parse_query(query: str) -> list[Phrase]:
    """Return the phrases of a query, each with whether its last word is a prefix."""
    phrases = []
    for quoted, bare in _TERM.findall(query):
        is_prefix = bare.endswith("*")
        phrase = " ".join(fold_text(quoted or bare).replace('"', " ").split())
        if _WORD.search(phrase):
            phrases.append((phrase.rstrip("*"), is_prefix))
    return phrases


def snippet(text: str, phrases: list[Phrase], *, size: int = SNIPPET) -> str:
    """Return the part of a text around the first phrase that it contains, on one line."""
    line = one_line(text)
    if len(line) <= size:
        return line
    lower_line = line.lower()
    texts = (
        phrase.replace(" ", "") if _UNSPACED.search(phrase) else phrase for phrase, _ in phrases
    )
    positions = [lower_line.find(text) for text in texts]
    first = min((position for position in positions if position >= 0), default=0)
    start = max(0, min(first - size // 3, len(line) - size))
    cut = line[start : start + size]
    return ("…" if start else "") + cut + ("…" if start + size < len(line) else "")
