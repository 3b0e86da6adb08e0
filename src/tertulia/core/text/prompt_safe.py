"""Text that strangers chose, made harmless.

Names, topics, titles, file names and ids are written by people nobody has vouched for, and they are
put before a model. `inert` turns such a text into one quoted line. Of what stands between the
quotes this holds, whatever came in:

1. It has no line break, control or invisible character, and no half of a surrogate pair.
2. It has no double quote, nothing that looks like one, and no backslash: the quotes cannot be left.
3. No Markdown (CommonMark, GitHub's) and no HTML comes alive in it. Active characters become
   look-alikes, so that it still reads as it was meant; an underscore inside a word is not active
   and stays. A web address stays an address.
4. It has at most `limit` characters, the ellipsis of a cut included.
5. Made inert again it stays the same.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import dropwhile

LIMIT = 240
# Nothing further behind can come into view, and a huge text should cost no more than a long one.
REACH = 16 * LIMIT

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
# Letters and symbols that show nothing: the Hangul fillers and the empty Braille cell.
_BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
# Marks that show nothing. Variation selectors can carry a hidden text behind any character.
_HIDDEN = frozenset(
    map(chr, (0x034F, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)))
) | frozenset(map(chr, range(0xE0100, 0xE01F0)))

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_UNKNOWN_RUN = re.compile(f"{_UNKNOWN}{{2,}}")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_SPOILER = re.compile(r"\|{2,}")
_UNDERSCORES = re.compile("_+")


def inert(text: str, limit: int = LIMIT) -> str:
    """The text as one quoted line that can neither leave its quotes nor format or add anything."""
    return f'"{plain(text, limit)}"'


def plain(text: str, limit: int = LIMIT) -> str:
    """What `inert` puts between the quotes."""
    line, is_cut = clean(text[:REACH]), len(text) > REACH
    if len(line) > limit or is_cut:
        line = line[: limit - 1].rstrip() + "…"
    # A cut can lay bare an underscore that stood inside a word, so these come last.
    return _UNDERSCORES.sub(_underscores, line)


def clean(text: str) -> str:
    """One line without anything hidden or active, of any length and with its underscores."""
    # Composed first, because a few characters compose to a backtick or another active one; and
    # again after what stood between a letter and its accent has gone.
    shown = "".join(map(_shown, unicodedata.normalize("NFC", text)))
    line = unicodedata.normalize("NFC", " ".join(shown.split()))
    line = _UNKNOWN_RUN.sub(_UNKNOWN, line)
    line = _SPOILER.sub(lambda found: "¦" * len(found[0]), _ENTITY.sub("& ", line))
    # An accent with no letter before it would stand on the opening quote.
    return "".join(dropwhile(_has_no_base, line))


@lru_cache(maxsize=4096)
def _shown(char: str) -> str:
    if char in _LOOKALIKES:
        return _LOOKALIKES[char]
    if char.isspace() or char in _BLANKS:
        return " "
    category = unicodedata.category(char)
    if category in ("Cc", "Cf") or char in _HIDDEN:
        return ""
    # Surrogates, private use and unassigned: something stood there, nobody can say what.
    return _UNKNOWN if category in ("Cs", "Co", "Cn") else char


def _has_no_base(char: str) -> bool:
    return char == " " or unicodedata.category(char).startswith("M")


def _underscores(found: re.Match[str]) -> str:
    before, after = found.string[: found.start()][-1:], found.string[found.end() :][:1]
    return found[0] if before.isalnum() and after.isalnum() else "ˍ" * len(found[0])
