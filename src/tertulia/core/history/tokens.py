"""An estimate of the tokens of a text, accurate enough for a budget.

The count that an API reports is exact; the estimate is for text that was not sent yet. Dividing
characters by four is wrong by half for Chinese and by two thirds for numbers, so classes of
characters are counted separately: letters, digits, marks, and the scripts by the first byte of
their characters in UTF-8, which needs no table and takes a few microseconds. The weights were
fitted to the vocabulary of OpenAI's newer models (o200k), a little above it: a history that is
shorter than necessary does less harm than one that is refused. Older vocabularies need up to twice
as many tokens for scripts other than Latin, so leave a margin there.
"""

from __future__ import annotations

import string

# The role, separators and wrapping of one message.
PER_MESSAGE = 4
# Roughly the tokens that providers charge for an image of unknown size.
PER_IMAGE = 800
# By the estimate, no text has more characters per token than this.
MAX_CHARACTERS_PER_TOKEN = 7

_ASCII = bytes(range(128))
_LETTERS = string.ascii_letters.encode()
_DIGITS = string.digits.encode()
_SPACE = b" \t\r\n\v\f"
# Each space becomes " ", and each other byte "x": a word begins at " x".
_WORD_SHAPE = bytes(ord(" ") if byte in _SPACE else ord("x") for byte in range(256))

# The length of a text between spaces and marks above which it is no word but for example base64.
_MAX_WORD = 10

# Tokens per character, by its first byte.
_SCRIPTS = (
    (bytes(range(0xC2, 0xC6)), 0.9),  # Latin letters with accents: each splits its word
    (bytes(range(0xC6, 0xE0)), 0.43),  # Greek, Cyrillic, Hebrew, Arabic
    (b"\xe0", 0.5),  # the scripts of India, Thai
    (b"\xe1\xe2", 0.75),  # typographic marks, Georgian, Burmese, Khmer
    (bytes(range(0xE3, 0xF0)), 0.9),  # Chinese, Japanese, Korean
    (bytes(range(0xF0, 0xF8)), 2.2),  # emoji
)


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text."""
    if not text:
        return 0
    raw = text.encode("utf-8", "surrogatepass")
    # As many as `len(raw.split())`, without making the words.
    words = (b" " + raw.translate(_WORD_SHAPE)).count(b" x")
    # Each class is removed from the rest of the previous step, so that every step has less to do.
    others = raw.translate(None, _LETTERS)
    letters = len(raw) - len(others)
    unspaced = others.translate(None, _SPACE)
    spaces = len(others) - len(unspaced)
    rest = unspaced.translate(None, _DIGITS)
    digits = len(unspaced) - len(rest)
    non_ascii = b"" if text.isascii() else rest.translate(None, _ASCII)
    marks = len(rest) - len(non_ascii)
    # Between letters a mark is often part of the word, between digits it is a token of its own.
    total = letters * 0.29 + digits * 0.65 + marks * (0.5 + 0.4 * digits / (letters + digits + 1))
    # One space is part of the next word; further ones, as in indented code, are tokens.
    total += max(0, spaces - words) * 0.18
    # Base64 and similar texts consist of far shorter tokens than words.
    total += max(0, letters - _MAX_WORD * (words + marks)) * 0.5
    if non_ascii:
        return int(total + _count_non_ascii(non_ascii)) + 1
    return int(max(total, words)) + 1


def _count_non_ascii(non_ascii: bytes) -> float:
    total = 0.0
    for first_bytes, weight in _SCRIPTS:
        rest = non_ascii.translate(None, first_bytes)
        total += (len(non_ascii) - len(rest)) * weight
        non_ascii = rest
    return total
