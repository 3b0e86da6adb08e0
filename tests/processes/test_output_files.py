"""Output is readable whatever a program writes, and uses bounded memory and disk."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.processes import supervisor
from tertulia.processes.output_files import READABLE_LENGTH, OutputFiles, to_readable
from tests.processes.process_fixtures import Conversation

# 40 MB as fast as it can, each line with its number.
FLOOD = """
import sys
for block in range(400):
    sys.stdout.write("".join(f"{block * 1000 + n:099d}\\n" for n in range(1000)))
"""


def write_output(folder: Path, data: bytes) -> OutputFiles:
    (folder / f"{supervisor.OUTPUT}{0:018}").write_bytes(data)
    return OutputFiles(str(folder), is_final=False)


def test_flood_uses_bounded_disk_and_memory(conversation: Conversation) -> None:
    process = conversation.registry.get(conversation.spawn([sys.executable, "-c", FLOOD]))
    conversation.wait_for_end(process.id)
    output = OutputFiles(process.folder, is_final=True)
    assert output.total() == 40_000_000
    disk_size = sum(entry.stat().st_size for entry in os.scandir(process.folder))
    assert disk_size <= 2 * supervisor.SEGMENT + 4096
    tracemalloc.start()
    newest = conversation.registry.log(process.id).output
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * READABLE_LENGTH * 4
    assert newest.text.splitlines()[-1] == f"{399_999:099d}"
    assert newest.total - newest.oldest == READABLE_LENGTH


def test_whole_output_is_read_page_by_page(conversation: Conversation) -> None:
    process = conversation.spawn("seq 1 60000")  # more than can be read
    conversation.wait_for_end(process)
    pages, before = [], None
    while True:
        piece = conversation.registry.log(process, before=before).output
        if not piece.text:
            break
        pages.append(piece.text)
        before = piece.start
    whole = "".join(reversed(pages))
    everything = "".join(f"{n}\n" for n in range(1, 60001))
    assert whole == everything[-READABLE_LENGTH:]
    forward, after = "", 0
    while piece := conversation.registry.log(process, after=after).output:
        if not piece.text:
            break
        forward, after = forward + piece.text, piece.end
    assert forward == whole


def test_megabyte_without_a_newline(conversation: Conversation) -> None:
    process = conversation.spawn([sys.executable, "-c", "print('x' * 1_000_000, end='!')"])
    assert conversation.wait_for_end(process).endswith("xxx!")


def test_prompt_without_a_newline_is_readable_at_once(conversation: Conversation) -> None:
    process = conversation.spawn("printf 'your name? '; read name; echo \"hello $name\"")
    conversation.wait_for_output(process, "your name? ")
    conversation.registry.submit(process, "Ana")
    assert conversation.wait_for_end(process) == "your name? hello Ana\n"


def test_half_a_character_waits_for_its_other_half(conversation: Conversation) -> None:
    process = conversation.spawn(r"printf 'a\303'; read; printf '\251b'")
    conversation.wait_for_output(process, "a")
    assert conversation.output(process) == "a"
    conversation.registry.submit(process)
    assert conversation.wait_for_end(process) == "aéb"


def test_half_a_character_at_the_end_is_replaced(conversation: Conversation) -> None:
    assert conversation.wait_for_end(conversation.spawn(r"printf 'a\303'")) == "a\ufffd"


def test_binary_output_becomes_readable(conversation: Conversation) -> None:
    process = conversation.spawn("head -c 3000 /dev/urandom; printf '\\000\\001end'")
    text = conversation.wait_for_end(process)
    assert text.endswith("␀␁end")
    assert not [c for c in text if ord(c) < 32 and c not in "\n\t"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x1b(Bplain", "plain"),
        ("bell\x07", "bell␇"),
    ],
)
def test_escape_sequences_are_removed(raw: str, shown: str) -> None:
    assert to_readable(raw) == shown


@given(data=st.binary(max_size=200), cut=st.integers(1, 50))
def test_pages_join_to_the_whole_output(
    data: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("output")
    output = write_output(folder, data)
    final = OutputFiles(str(folder), is_final=True)
    at = 0
    while (piece := final.since(at, cut)).end > at:
        assert piece.start == at
        at = piece.end
    assert at == len(data)
    before = len(data)
    while (piece := final.newest(cut, before=before)).start < before:
        assert piece.end == before
        before = piece.start
    assert before == 0
    shown = output.newest(1000).text
    assert not [c for c in shown if 0xD800 <= ord(c) < 0xE000 or (c < " " and c not in "\n\t")]


def test_segment_that_is_deleted_meanwhile_costs_no_other_one(tmp_path: Path) -> None:
    (tmp_path / f"{supervisor.OUTPUT}{900:018}").write_bytes(b"newest")
    for begin in range(0, 900, 100):  # listed, and gone when their size is read
        (tmp_path / f"{supervisor.OUTPUT}{begin:018}").symlink_to(tmp_path / "deleted")
    output = OutputFiles(str(tmp_path), is_final=False)
    assert output.total() == 906
    assert output.newest(100).text == "newest"
