"""Read a `sessions.json`: the index that says which session is current for which key.

The file is small, so it is read whole; if it is cut off, up to its last valid entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tertulia.transfer.importers.safe_files import SafeFolder, is_invalid, parse_json

_BOM = "\ufeff"
_SPACE = re.compile(r"\s*")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as written in the file: duplicate keys are kept."""


def read_index(folder: SafeFolder, file: str) -> list[tuple[str, Any]]:
    """Return the entries of an index in file order; for a duplicate key the last one."""
    if not folder.exists(file):
        return []
    raw = folder.read(file)
    if raw is None:
        return []
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        detail = "invalid UTF-8 was replaced by U+FFFD"
        folder.findings.add(file, None, "invalid_utf8", detail)
        text = raw.decode("utf-8", "replace")
    if text.startswith(_BOM):
        folder.findings.add(file, None, "bom", "the file begins with a byte order mark")
        text = text.removeprefix(_BOM)
    if not text.strip():
        folder.findings.add(file, None, "empty_file", "the file is empty")
        return []
    return _last_of_each_key(folder, file, _entries(folder, file, text))


def _entries(folder: SafeFolder, file: str, text: str) -> list[tuple[str, Any]]:
    try:
        index = json.loads(text, object_pairs_hook=_Pairs)
        if isinstance(index, _Pairs):
            return [(key, _without_pairs(value)) for key, value in index]
    except (ValueError, RecursionError) as problem:
        entries = list(_valid_entries(text))
        detail = f"not JSON ({problem}); {len(entries)} entries were read"
        folder.findings.add(file, None, "index_invalid_json", detail)
        return entries
    detail = "the file does not hold a JSON object"
    folder.findings.add(file, None, "index_invalid_json", detail)
    return []


def _valid_entries(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries before the point where the file is cut off or damaged."""
    decoder = json.JSONDecoder()
    position = _after_space(text, 0)
    if text[position : position + 1] != "{":
        return
    position += 1
    while True:
        try:
            key, position = decoder.raw_decode(text, _after_space(text, position))
            position = _after_space(text, position)
            if not isinstance(key, str) or text[position : position + 1] != ":":
                return
            value, position = decoder.raw_decode(text, _after_space(text, position + 1))
        except (ValueError, RecursionError):
            return
        yield key, value
        position = _after_space(text, position)
        if text[position : position + 1] != ",":
            return
        position += 1


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _last_of_each_key(
    folder: SafeFolder, file: str, entries: list[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    by_key: dict[str, Any] = {}
    for key, value in entries:
        if key in by_key:
            detail = f"the key {key} occurs twice; the last entry is used"
            folder.findings.add(file, None, "duplicate_json_key", detail)
        by_key[key] = value
    return list(by_key.items())


def _without_pairs(value: Any) -> Any:
    """Return the value with dicts in place of pairs; raise RecursionError if it is too deep."""
    if isinstance(value, _Pairs):
        return {key: _without_pairs(inner) for key, inner in value}
    return [_without_pairs(inner) for inner in value] if isinstance(value, list) else value


def json_of(value: object) -> Any:
    """Return the JSON value in a column, or the text itself if it is not JSON."""
    if not isinstance(value, str):
        return value
    decoded = parse_json(value)
    return value if is_invalid(decoded) else decoded
