"""Heads: the lines in brackets by which our own texts tell a model who wrote, when, and what it is.

Only a rendering may write one. `guard_heads` makes a head in any other text inert, at any position:
its bracket becomes a parenthesis. A head is recognised as a reader would see it: after Unicode's
compatibility normalisation (NFKC), without invisible characters, accents and spaces, whatever the
case, and with letters that look like Latin ones (Cyrillic, Greek, small capitals …) read as these.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

TIME_HEAD: Final = "[Message Time: "
AUTHOR_HEAD: Final = "[From: "
SUMMARY_HEAD: Final = "[Summary of the conversation so far]"
DELIVERY_HEAD: Final = "[You had written this before, unasked]"
IMAGES_HEAD: Final = "[Images of the tool results above]"

# The beginnings that are guarded, folded as `_fold` folds them.
_GUARDED: Final = (
    "from:",
    'from"',
    "messagetime:",
    "messagetime2",
    "summaryoftheconversationsofar",
    "youhadwrittenthisbefore",
    "imagesofthetoolresults",
)
_BEGINNINGS: Final = {head[:length] for head in _GUARDED for length in range(len(head) + 1)}

# Everything that looks like an opening square bracket. A test compares it with Unicode's names.
BRACKETS: Final = (
    "[\u2045\u23a1\u23a2\u23a3\u2772\u27e6\u27ec\u298b\u298d\u298f\u2997\u2e22\u2e24\u2e55"
    "\u2e57\u300c\u300e\u3010\u3014\u3016\u3018\u301a\ufe17\ufe39\ufe3b\ufe41\ufe43\ufe47"
    "\ufe5d\uff3b\uff62"
)
_BRACKET: Final = re.compile(f"[{re.escape(BRACKETS)}]")

# Characters that look like a Latin letter, a colon or a quote, after NFKC and in lower case.
_LOOKALIKES: Final = {
    "a": "аɑαᴀ⍺ꓮꭺ",
    "b": "ьʙβвᏼꓐ",
    "c": "сϲᴄꓛꮯⲥ",
    "d": "ԁɗᴅꓓꭰ",
    "e": "еҽєεᴇ℮ɛꓰꭼⲉ",
    "f": "ꜰƒϝꞙꓝғք",
    "g": "ɡցɢꓖ",
    "h": "һнʜհꓧꮋ",
    "i": "іıιɩɪӏꓲ",
    "k": "кκᴋꓗ",
    "l": "ʟɭꓡ|",
    "m": "мᴍɱꓟꮇꭑ",
    "n": "пոɴηꓠи",
    "o": "оοօᴏөσ0〇ⲟꓳס○◯○",
    "p": "рρᴘꓑ",
    "r": "гʀᴦꭇɼꓣя",
    "s": "ѕꜱʂꓢꮪ",
    "t": "тτᴛƭꓔꭲ",
    "u": "υսᴜʋꓴц",
    "v": "ѵνᴠꓦ",
    "w": "ѡԝաᴡɯꓪ",
    "y": "уүγʏყꓬ",
    ":": "\ua789\u02d0\u2236\u05c3\u0589\u0703\u0704\u16ec\ufe30\u1803\u1809\u205a\ua4fd",
    '"': "'«»ʺˮ˝״“”„‟″‴‶‷⁗❝❞❠⹂〃〝〞〟`´‘’‚‛′",
}
_FOLDED: Final = {char: letter for letter, chars in _LOOKALIKES.items() for char in chars}
# Letters in circles and squares, and the letters of flags, which NFKC leaves as they are.
_ALPHABETS: Final = (0x1F150, 0x1F170, 0x1F1E6)
_BLANKS: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800")


def guard_heads(text: str) -> str:
    """Return the text with the bracket of each head replaced by a parenthesis."""
    if "[" not in text and (text.isascii() or _BRACKET.search(text) is None):
        return text  # as nearly all texts are
    chars = list(text)
    for match in _BRACKET.finditer(text):
        if _is_head(text, match.end()):
            chars[match.start()] = "("
    return "".join(chars)


def _is_head(text: str, start: int) -> bool:
    """Return whether a head goes on at `start`, after its bracket.

    It reads on only while the text could still become a head, and over what is invisible: so each
    character is read for one bracket at most.
    """
    folded = ""
    for position in range(start, len(text)):
        folded += _fold(text[position])
        if folded.startswith(_GUARDED):
            return True
        if folded not in _BEGINNINGS:
            return False
    return False


@lru_cache(maxsize=4096)
def _fold(char: str) -> str:
    """Return the lower-case letters that a character looks like; nothing for an invisible one."""
    if char in _FOLDED:
        return _FOLDED[char]
    for first in _ALPHABETS:
        if first <= ord(char) < first + 26:
            return chr(ord("a") + ord(char) - first)
    folded = []
    for part in unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", char).casefold()):
        if part.isspace() or part in _BLANKS or unicodedata.category(part)[0] in "MC":
            continue  # an accent, a space, or a character without a look of its own
        folded.append(_FOLDED.get(part, part))
    return "".join(folded)
