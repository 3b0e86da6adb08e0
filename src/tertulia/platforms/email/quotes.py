"""What a person wrote in a mail, apart from the quoted mails before it and the signature.

Nothing is thrown away: `split_quotes` returns both halves. If it is unclear what was quoted, the
text stays: better a quote too many than a sentence of the person lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from tertulia.platforms.email.html_text import ORIGINAL_LINE

# The line before a quote: "On Monday, Ana wrote:", in the languages of the common programs.
_ATTRIBUTION = re.compile(
    r"^\s*(?:on|am|le|el|il|em|op|den|w dniu|dne|dnia|pe|på|va?n)\b.{3,400}?"
    r"(?:wrote|schrieb|écrit|escribió|ha scritto|escreveu|schreef|skrev|napisał\(?a?\)?|napsala?)"
    r"[^\n:]{0,200}:\s*$",
    re.I | re.S,
)
_ORIGINAL = re.compile(
    r"^\s*(?:_{10,}|-{2,}\s*(?:original message|ursprüngliche nachricht|message d'origine"
    r"|mensaje original|mensagem original|messaggio originale|oorspronkelijk bericht)\s*-{2,})"
    r"\s*$",
    re.I,
)
_HEADER_LINE = re.compile(r"^\s*\*?(?:from|von|de|da|van|fra|från|od)\s*:\*?\s.*\S", re.I)
_SECOND_LINE = re.compile(
    r"^\s*\*?(?:sent|date|to|subject|gesendet|datum|an|betreff|envoyé|à|objet|enviado|para|asunto"
    r"|inviato|a|oggetto|verzonden|aan|onderwerp)\s*:\*?\s",
    re.I,
)
_SIGNATURE = re.compile(r"^--\s?$")
_DEVICE = re.compile(
    r"^\s*(?:sent from (?:my |outlook|yahoo|proton)|get outlook for|gesendet von|von meinem \w+"
    r" gesendet|envoyé de mon|enviado desde|enviado do meu|inviato da|verzonden vanaf)"
    r".{0,60}$",
    re.I,
)
_MAX_ATTRIBUTION: Final = 4


class SplitText(NamedTuple):
    """A text of a person, and what their mail program added to it."""

    text: str
    quoted: str


def split_quotes(text: str, *, is_reply: bool = True, is_forwarded: bool = False) -> SplitText:
    """Return what the person wrote, and the rest. A forwarded mail is what they want to show.

    A mail that replies to nothing has no quotes of earlier ones, only a signature.
    """
    whole = text.strip("\n").rstrip()
    lines = whole.split("\n")
    if is_forwarded:
        return SplitText(whole, "")
    end = _own_text_end(lines) if is_reply else _signature_start(lines, len(lines))
    start = _start_of_own_text(lines[:end]) if is_reply else 0
    own = "\n".join(lines[start:end]).strip("\n").rstrip()
    if not own.strip():
        return SplitText(whole, "")  # a mail of quotes alone: the person means them
    rest = [*lines[:start], *lines[end:]]
    return SplitText(own, "\n".join(rest).strip("\n"))


def _own_text_end(lines: Sequence[str]) -> int:
    """Return the line at which the signature or the quoted mail at the end begins."""
    end = _original_line(lines)
    end = _without_blank_end(lines, end)
    # Quotes at the end go; quotes with text after them are answered line by line, and stay.
    block = end
    while block > 0 and (_is_quote(lines[block - 1]) or not lines[block - 1].strip()):
        block -= 1
    if any(_is_quote(line) for line in lines[block:end]):
        end = _before_attribution(lines, block)
    return _signature_start(lines, end)


def _signature_start(lines: Sequence[str], end: int) -> int:
    """Return the line at which the signature begins."""
    for number in range(end):
        if _SIGNATURE.match(lines[number]) and not any(map(_is_quote, lines[number:end])):
            end = number
            break
    end = _without_blank_end(lines, end)
    if end > 1 and _DEVICE.match(lines[end - 1]):
        end -= 1
    return _without_blank_end(lines, end)


def _original_line(lines: Sequence[str]) -> int:
    """Return the line of "Original Message", or of the header that Outlook puts before it."""
    for number, line in enumerate(lines):
        if _ORIGINAL.match(line) or line == ORIGINAL_LINE:
            is_header = any(_HEADER_LINE.match(text) for text in lines[number + 1 : number + 4])
            if is_header or line.strip().startswith("-"):
                return number
        if number and not lines[number - 1].strip() and _HEADER_LINE.match(line):
            following = lines[number + 1 : number + 4]
            if sum(_SECOND_LINE.match(text) is not None for text in following) >= 2:
                return number
    return len(lines)


def _start_of_own_text(lines: Sequence[str]) -> int:
    """Return the line after a quote at the beginning, if it is the only one."""
    number = 0
    for start in range(min(_MAX_ATTRIBUTION, len(lines))):
        if _ATTRIBUTION.match("\n".join(lines[: start + 1])):
            number = start + 1
            break
    while number < len(lines) and not lines[number].strip():
        number += 1
    first = number
    while number < len(lines) and (_is_quote(lines[number]) or not lines[number].strip()):
        number += 1
    if first == number or any(_is_quote(line) for line in lines[number:]):
        return 0
    return number


def _before_attribution(lines: Sequence[str], end: int) -> int:
    """Return the line at which the attribution before a quote begins; it may be broken."""
    end = _without_blank_end(lines, end)
    for size in range(1, _MAX_ATTRIBUTION + 1):
        start = end - size
        if start >= 0 and _ATTRIBUTION.match("\n".join(lines[start:end])):
            return start
    return end


def _without_blank_end(lines: Sequence[str], end: int) -> int:
    while end > 0 and not lines[end - 1].strip():
        end -= 1
    return end


def _is_quote(line: str) -> bool:
    return line.lstrip().startswith(">")
