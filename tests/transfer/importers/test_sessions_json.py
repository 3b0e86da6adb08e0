"""An index is read to its last valid entry, whatever its state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.transfer.importers.report import Findings
from tertulia.transfer.importers.safe_files import SafeFolder
from tertulia.transfer.importers.sessions_json import _valid_entries, json_of, read_index


def read(tmp_path: Path, content: bytes) -> tuple[list[tuple[str, object]], list[str]]:
    (tmp_path / "sessions.json").write_bytes(content)
    findings = Findings()
    entries = read_index(SafeFolder(tmp_path, findings), "sessions.json")
    return entries, [problem.kind for problem in findings.all()]


@pytest.mark.parametrize(
    ("content", "entries", "kinds"),
    [
        (b'{"a": 1, "b": {"c": [2]}}', [("a", 1), ("b", {"c": [2]})], []),
        (b'{"a": 1, "b": 2, "a": 3}', [("a", 3), ("b", 2)], ["duplicate_json_key"]),
        (b"\xef\xbb\xbf" + b'{"a": 1}', [("a", 1)], ["bom"]),
        (b'{"a": "\xff"}', [("a", "\ufffd")], ["invalid_utf8"]),
        (b'{"a": 1, "b": {"c"', [("a", 1)], ["index_invalid_json"]),
        (b"[1]", [], ["index_invalid_json"]),
        (b" \n", [], ["empty_file"]),
    ],
)
def test_index_is_read_as_far_as_it_is_valid(
    tmp_path: Path, content: bytes, entries: list[tuple[str, object]], kinds: list[str]
) -> None:
    assert read(tmp_path, content) == (entries, kinds)


def test_missing_index_is_empty_and_no_problem(tmp_path: Path) -> None:
    findings = Findings()
    assert read_index(SafeFolder(tmp_path, findings), "sessions.json") == []
    assert findings.all() == ()


@given(
    st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans()), min_size=1),
    st.data(),
)
def test_cut_index_gives_a_prefix_of_its_entries(
    index: dict[str, object], data: st.DataObject
) -> None:
    text = json.dumps(index)
    cut = data.draw(st.integers(0, len(text)))
    entries = list(_valid_entries(text[:cut]))
    whole = list(index.items())
    # A number that is cut off is still a number: only the last entry may differ.
    assert [key for key, _ in entries] == [key for key, _ in whole[: len(entries)]]
    assert entries[:-1] == whole[: max(len(entries) - 1, 0)]


@pytest.mark.parametrize("depth", [600, 100_000])
def test_deeply_nested_index_is_reported(tmp_path: Path, depth: int) -> None:
    content = b'{"a": 1, "b": ' + b"[" * depth + b"]" * depth + b"}"
    entries, kinds = read(tmp_path, content)
    assert entries[0] == ("a", 1)
    assert kinds == ["index_invalid_json"]


def test_json_column_is_decoded_if_it_is_json() -> None:
    assert json_of('{"a": 1}') == {"a": 1}
    assert json_of("null") is None
    assert json_of("plain text") == "plain text"
    assert json_of(7) == 7
