"""Search in PostgreSQL: the words of a text with their positions, split here.

The server's own parser splits web addresses, numbers and hyphens in its own way; with the same
words as SQLite's index has, both databases find the same messages.
"""

from __future__ import annotations

import re
from collections import defaultdict

from tertulia.core.text.search_terms import Phrase

# A tsvector has positions up to 16,383 (255 for each word), words below 2 KB, a size below 1 MB.
_LAST_POSITION = 16_383
_POSITIONS_PER_WORD = 255
_WORD_SIZE = 200
_WORD_LIMIT = 60_000

_WORD = re.compile(r"\w+")


def to_tsvector(text: str) -> str:
    """Return a folded text as a tsvector."""
    positions: dict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(_WORD.findall(text)[:_WORD_LIMIT], 1):
        of_word = positions[word[:_WORD_SIZE]]
        if len(of_word) < _POSITIONS_PER_WORD and position <= _LAST_POSITION:
            of_word.append(position)
    return " ".join(
        f"{_quote(word)}:{','.join(map(str, of_word))}" if of_word else _quote(word)
        for word, of_word in positions.items()
    )


def to_tsquery(phrases: list[Phrase]) -> str:
    """Return phrases as a tsquery that matches if all are there, each with its words in order."""
    terms = []
    for phrase, is_prefix in phrases:
        words = [_quote(word[:_WORD_SIZE]) for word in _WORD.findall(phrase)]
        if words:
            words[-1] += ":*" if is_prefix else ""
            terms.append(f"({' <-> '.join(words)})")
    return " & ".join(terms)


def _quote(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
