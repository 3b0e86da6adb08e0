"""How many tokens a text will be, near enough to keep a budget.

What an API reported is the truth; this is for what was not sent yet. Dividing characters by four is
wrong by half for Chinese and for JSON, so classes of characters are counted apart: words of Latin
letters, digits, marks, and the scripts in which nearly each character is a token. They are told
apart by their length in UTF-8, which takes a few microseconds and no table.
"""

from __future__ import annotations

import string

# Role, separators and the wrapping of one message.
PER_MESSAGE = 4
# What providers charge for an image of unknown size, roughly.
PER_IMAGE = 800

_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_SPACE = b" \t\r\n\v\f"
_ASCII = bytes(range(128))


def estimate(text: str) -> int:
    """The tokens of a text."""
    raw = text.encode("utf-8", "surrogatepass")
    foreign = raw.translate(None, _ASCII)
    plain = len(raw) - len(foreign)
    letters = plain - len(raw.translate(None, _LETTERS)) + len(foreign)
    digits = plain - len(raw.translate(None, _DIGITS)) + len(foreign)
    spaces = plain - len(raw.translate(None, _SPACE)) + len(foreign)
    marks = plain - letters - digits - spaces
    words = len(raw.split())
    # A space goes with its word; more of them, as in indented code, are tokens of their own.
    loose = max(0, spaces - words)
    total = max(words, letters / 5.2) + digits / 2.4 + marks * 0.7 + loose * 0.25
    return round(total + _foreign(len(text) - plain, len(foreign)))


def _foreign(characters: int, size: int) -> float:
    """Other alphabets have two bytes to a character, Chinese or Thai three, emoji four."""
    dense = max(0, size - 2 * characters)
    return (characters - min(dense, characters)) * 0.45 + dense * 1.1
