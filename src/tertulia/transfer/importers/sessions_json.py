"""A `sessions.json`: which session is current for which key.

It is read whole, for it is small, and to its last sound entry where it is cut off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tertulia.transfer.importers.safe_files import (
    SafeFolder,
    is_nothing,
    parsed,
)

_BOM = "\ufeff"
_SPACE = re.compile(r"\s*")

Entry = dict[str, Any]


class _Pairs(list[tuple[str, Any]]):
    """An object as it stands in the file, with keys that occur twice."""


def read_index(folder: SafeFolder, file: str) -> list[tuple[str, Any]]:
    """The entries of an index in their order; of a key that stands there twice the last."""
    if not folder.exists(file):
        return []
    raw = folder.read(file)
    if raw is None:
        return []
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        told = "bytes that are no text were replaced by U+FFFD"
        folder.findings.add(file, None, "invalid_utf8", told)
        text = raw.decode("utf-8", "replace")
    if text.startswith(_BOM):
        folder.findings.add(file, None, "bom", "the file begins with a byte order mark")
        text = text.removeprefix(_BOM)
    if not text.strip():
        folder.findings.add(file, None, "empty_file", "there is nothing in it")
        return []
    return _unique(folder, file, _entries(folder, file, text))


def _entries(folder: SafeFolder, file: str, text: str) -> list[tuple[str, Any]]:
    try:
        found = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as problem:
        whole = list(_whole_entries(text))
        told = f"not JSON ({problem}); {len(whole)} entries were read"
        folder.findings.add(file, None, "index_invalid_json", told)
        return whole
    if not isinstance(found, _Pairs):
        folder.findings.add(file, None, "index_invalid_json", "it is no object")
        return []
    return [(key, _plain(value)) for key, value in found]


def _whole_entries(text: str) -> Iterator[tuple[str, Any]]:
    """The entries before the place where the file is cut off or damaged."""
    decoder = json.JSONDecoder()
    place = _after_space(text, 0)
    if text[place : place + 1] != "{":
        return
    place += 1
    while True:
        try:
            key, place = decoder.raw_decode(text, _after_space(text, place))
            place = _after_space(text, place)
            if not isinstance(key, str) or text[place : place + 1] != ":":
                return
            value, place = decoder.raw_decode(text, _after_space(text, place + 1))
        except (ValueError, RecursionError):
            return
        yield key, value
        place = _after_space(text, place)
        if text[place : place + 1] != ",":
            return
        place += 1


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _unique(folder: SafeFolder, file: str, entries: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for key, value in entries:
        if key in found:
            told = f"the key {key} stands there twice; the last one counts"
            folder.findings.add(file, None, "duplicate_json_key", told)
        found[key] = value
    return list(found.items())


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {key: _plain(inner) for key, inner in value}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def json_of(value: object) -> Any:
    """What a column of JSON holds, or the text itself where it is none."""
    if not isinstance(value, str):
        return value
    found = parsed(value)
    return value if is_nothing(found) else found
