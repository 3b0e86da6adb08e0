"""Text of several lines that does nothing where it is shown: on a terminal, in a page, in JSON.

`inert` makes one line for a model; here the lines stay, and so does everything that can be seen.
"""

from __future__ import annotations

import json
import re
from typing import Any

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# What is legal within JSON but not safe on a terminal: C1 holds control sequences of one byte.
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f{_BIDIRECTIONAL}\u2028\u2029\ud800-\udfff]")
_GONE = re.compile(f"[{_BIDIRECTIONAL}]")

# Control characters are shown by their pictures: something stood there, and now does nothing.
_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), "\N{REPLACEMENT CHARACTER}"),
    0x2028: "\n",
    0x2029: "\n",
    ord("\t"): "    ",
}


def harmless(text: str) -> str:
    """The text as a terminal or a page may have it: lines stay, nothing else in it acts."""
    lines = text.replace("\r\n", "\n").translate(_PICTURES)
    return _GONE.sub("", lines)


def one_line(text: str, limit: int | None = None) -> str:
    """The same on one line, and cut at `limit` characters."""
    line = " ".join(harmless(text).split())
    return line if limit is None or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON that reads well and is safe to show."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
