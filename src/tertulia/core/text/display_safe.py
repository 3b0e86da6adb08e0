"""Text made safe to display: on a terminal, in a page, in JSON.

`prompt_safe.quote_text` makes one line for a model; here line breaks and all visible characters
stay.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tertulia.core.text.excerpt import one_line

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Legal in JSON but not safe on a terminal: C1 has control sequences of one byte.
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f{_BIDIRECTIONAL}\u2028\u2029\ud800-\udfff]")
_REMOVED = re.compile(f"[{_BIDIRECTIONAL}]")

# Control characters are replaced by visible symbols, so that a reader sees where they were.
_REPLACEMENTS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), "\N{REPLACEMENT CHARACTER}"),
    0x2028: "\n",
    0x2029: "\n",
    ord("\t"): "    ",
}


def display_text(text: str) -> str:
    """Return the text safe for a terminal or a page: lines stay, control characters do not."""
    if text.isprintable():  # no control, separator, surrogate or direction character is
        return text
    lines = text.replace("\r\n", "\n").translate(_REPLACEMENTS)
    return _REMOVED.sub("", lines)


def display_line(text: str, limit: int | None = None) -> str:
    """Return the text safe for display, on one line and cut at `limit` characters."""
    return one_line(display_text(text), limit)


def display_json(value: Any, *, indent: int | None = 2) -> str:
    """Return readable JSON that is safe to display."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
