"""How many tokens a text will be, near enough to keep a budget.

What an API reported is the truth; this is for what was not sent yet. Dividing characters by four is
wrong by half for Chinese and by two thirds for numbers, so classes of characters are counted apart:
letters, digits, marks, and the scripts by the first byte of their characters in UTF-8, which needs
no table and takes a few microseconds. The weights were fitted to the vocabulary of OpenAI's newer
models (o200k), a little above it: a history that is shorter than it could be does less harm than
one that is refused. Older vocabularies make up to twice as many tokens of scripts that are not
Latin, so leave a margin there.
"""

from __future__ import annotations

import string

# Role, separators and the wrapping of one message.
PER_MESSAGE = 4
# What providers charge for an image of unknown size, roughly.
PER_IMAGE = 800
# No text has more characters to a token than this, by the estimate.
MOST_CHARACTERS = 7

_ASCII = bytes(range(128))
_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_SPACE = b" \t\r\n\v\f"

# A piece is what stands between spaces and marks. Words are shorter than this; base64 is not.
_LONG_PIECE = 10

# Tokens to a character, by the first bytes of it.
_SCRIPTS = (
    (bytes(range(0xC2, 0xC6)), 0.9),  # Latin letters with accents: each breaks its word
    (bytes(range(0xC6, 0xE0)), 0.43),  # Greek, Cyrillic, Hebrew, Arabic
    (b"\xe0", 0.5),  # the scripts of India, Thai
    (b"\xe1\xe2", 0.75),  # typographic marks, Georgian, Burmese, Khmer
    (bytes(range(0xE3, 0xF0)), 0.9),  # Chinese, Japanese, Korean
    (bytes(range(0xF0, 0xF8)), 2.2),  # emoji
)


def estimate(text: str) -> int:
    """The tokens of a text."""
    if not text:
        return 0
    raw = text.encode("utf-8", "surrogatepass")
    words = len(raw.split())
    # Each class is taken out of what the one before left, so that every step has less to do.
    others = raw.translate(None, _LETTERS)
    letters = len(raw) - len(others)
    unspaced = others.translate(None, _SPACE)
    spaces = len(others) - len(unspaced)
    rest = unspaced.translate(None, _DIGITS)
    digits = len(unspaced) - len(rest)
    foreign = b"" if text.isascii() else rest.translate(None, _ASCII)
    marks = len(rest) - len(foreign)
    # Between letters a mark often goes with its word, between digits it is a token of its own.
    total = letters * 0.29 + digits * 0.65 + marks * (0.5 + 0.4 * digits / (letters + digits + 1))
    # A space goes with its word; more of them, as in indented code, are tokens of their own.
    total += max(0, spaces - words) * 0.18
    # Base64 and the like are no words, and fall into far smaller tokens.
    total += max(0, letters - _LONG_PIECE * (words + marks)) * 0.5
    if foreign:
        return int(total + _foreign(foreign)) + 1
    return int(max(total, words)) + 1


def _foreign(foreign: bytes) -> float:
    total = 0.0
    for first_bytes, weight in _SCRIPTS:
        rest = foreign.translate(None, first_bytes)
        total += (len(foreign) - len(rest)) * weight
        foreign = rest
    return total
