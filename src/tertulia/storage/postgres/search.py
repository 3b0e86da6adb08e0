"""Search in PostgreSQL: the words of a text with their places, made here.

The server's own parser takes web addresses, numbers and hyphens apart in its own way; with the same
words as SQLite's index has, both databases find the same messages.
"""

from __future__ import annotations

import re
from collections import defaultdict

from tertulia.core.text.search_terms import Phrase

# A tsvector has places up to 16,383, words below 2 KB, and a size below 1 MB.
_PLACES = 16_383
_WORD_SIZE = 200
_WORDS = 60_000

_WORD = re.compile(r"\w+")


def entry(text: str) -> str:
    """A folded text as a tsvector."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, found in enumerate(_WORD.findall(text)[:_WORDS], 1):
        kept = places[found[:_WORD_SIZE]]
        if len(kept) < 255 and place <= _PLACES:
            kept.append(place)
    return " ".join(
        f"{_quoted(word)}:{','.join(map(str, at))}" if at else _quoted(word)
        for word, at in places.items()
    )


def question(phrases: list[Phrase]) -> str:
    """Phrases as a tsquery: each word of a phrase follows the one before, and all must be there."""
    found = []
    for phrase, is_prefix in phrases:
        words = [_quoted(word[:_WORD_SIZE]) for word in _WORD.findall(phrase)]
        if words:
            words[-1] += ":*" if is_prefix else ""
            found.append(f"({' <-> '.join(words)})")
    return " & ".join(found)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
