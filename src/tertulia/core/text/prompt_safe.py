"""Text chosen by strangers, made safe for a prompt.

Names, topics, titles, file names and ids are written by untrusted people, and they are put into the
prompt of a model. `quote_text` turns such a text into one quoted line. For any input, the text
between the quotes has these properties:

1. It has no line break, no control or invisible character, and no unpaired surrogate.
2. It has no double quote, nothing that looks like one, and no backslash: it cannot end the quotes.
3. It contains no active Markdown (CommonMark, GitHub's) and no HTML. Active characters become
   look-alikes, so that it stays readable; an underscore inside a word is not active and stays. A
   web address stays an address.
4. It has at most `limit` characters, including the ellipsis if it was cut.
5. Cleaning it again changes nothing.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import dropwhile

from tertulia.core.text.excerpt import one_line, shorten

LIMIT = 240
# Only this many characters are read, so that a huge text costs no more than a long one.
MAX_INPUT = 16 * LIMIT

_QUOTES = '"«»ʺˮ˝״“”„‟″‴‶‷⁗❝❞❠⹂〃〝〞〟＂\U0001f676\U0001f677\U0001f678'
_LOOKALIKES = {
    **dict.fromkeys(_QUOTES, "'"),
    "`": "'",
    "\\": "∖",
    "*": "∗",
    "~": "∼",
    "<": "‹",
    ">": "›",
    "[": "(",
    "]": ")",
}
# Letters and symbols that look blank: the Hangul fillers and the empty Braille cell.
_BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
# Invisible marks. Variation selectors can carry a hidden text after any character.
_HIDDEN = frozenset(
    map(chr, (0x034F, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)))
) | frozenset(map(chr, range(0xE0100, 0xE01F0)))

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_UNKNOWN_RUN = re.compile(f"{_UNKNOWN}{{2,}}")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_SPOILER = re.compile(r"\|{2,}")
_UNDERSCORES = re.compile("_+")


def quote_text(text: str, limit: int = LIMIT) -> str:
    """Return the text as one quoted line that cannot end its quotes or format anything."""
    return f'"{clean_for_prompt(text, limit)}"'


def clean_for_prompt(text: str, limit: int = LIMIT) -> str:
    """Return the text that `quote_text` puts between the quotes."""
    if text.isascii() and text.isalnum() and len(text) <= limit:
        return text  # as most ids and many names are
    line = shorten(clean_line(text[:MAX_INPUT]), limit, is_cut=len(text) > MAX_INPUT)
    # A cut can expose an underscore that was inside a word, so underscores are replaced last.
    return _UNDERSCORES.sub(_replace_underscores, line)


def clean_line(text: str) -> str:
    """Return one line without hidden or active characters; any length, underscores stay."""
    # Composed first, because a few characters compose to a backtick or another active one; and
    # again after hidden characters between a letter and its accent were removed.
    visible = "".join(map(_visible, unicodedata.normalize("NFC", text)))
    line = unicodedata.normalize("NFC", one_line(visible))
    line = _UNKNOWN_RUN.sub(_UNKNOWN, line)
    line = _SPOILER.sub(lambda match: "¦" * len(match[0]), _ENTITY.sub("& ", line))
    # An accent with no letter before it would combine with the opening quote.
    return "".join(dropwhile(_has_no_base, line))


@lru_cache(maxsize=4096)
def _visible(char: str) -> str:
    if char in _LOOKALIKES:
        return _LOOKALIKES[char]
    if char.isspace() or char in _BLANKS:
        return " "
    category = unicodedata.category(char)
    if category in ("Cc", "Cf") or char in _HIDDEN:
        return ""
    # Surrogates, private use and unassigned characters have no known meaning.
    return _UNKNOWN if category in ("Cs", "Co", "Cn") else char


def _has_no_base(char: str) -> bool:
    return char == " " or unicodedata.category(char).startswith("M")


def _replace_underscores(match: re.Match[str]) -> str:
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    return match[0] if before.isalnum() and after.isalnum() else "ˍ" * len(match[0])
