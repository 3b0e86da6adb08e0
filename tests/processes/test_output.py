"""Whatever a program writes can be read, and costs a bounded amount of memory and disk."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.processes import supervisor
from tertulia.processes.output_files import (
    ROLLING,
    OutputFiles,
    readable,
)
from tests.processes.scene import Scene, until

# 40 MB as fast as it can, each line with its number.
FLOOD = """
import sys
for block in range(400):
    sys.stdout.write("".join(f"{block * 1000 + n:099d}\\n" for n in range(1000)))
"""


def written(folder: Path, data: bytes) -> OutputFiles:
    (folder / f"{supervisor.OUTPUT}{0:018}").write_bytes(data)
    return OutputFiles(str(folder), is_final=False)


def test_a_flood_costs_bounded_disk_and_memory(scene: Scene) -> None:
    process = scene.registry.get(scene.spawn([sys.executable, "-c", FLOOD]))
    scene.finished(process.id)
    output = OutputFiles(process.folder, is_final=True)
    assert output.total() == 40_000_000
    kept = sum(entry.stat().st_size for entry in os.scandir(process.folder))
    assert kept <= 2 * supervisor.SEGMENT + 4096
    tracemalloc.start()
    newest = scene.registry.log(process.id).output
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * ROLLING * 4
    assert newest.text.splitlines()[-1] == f"{399_999:099d}"
    assert newest.total - newest.oldest == ROLLING


def test_the_keeper_stays_small_in_a_flood(scene: Scene) -> None:
    import psutil

    process = scene.registry.get(scene.spawn("yes 'a line of text that goes on and on'"))
    kept = psutil.Process(process.keeper_pid)
    output = OutputFiles(process.folder, is_final=False)
    before = kept.memory_info().rss
    target = 60_000_000
    until(lambda: output.total() > target, "it has written much")
    assert kept.memory_info().rss - before < 8_000_000


def test_all_of_it_is_read_page_by_page(scene: Scene) -> None:
    process = scene.spawn("seq 1 60000")  # more than can be read
    scene.finished(process)
    pages, before = [], None
    while True:
        piece = scene.registry.log(process, before=before).output
        if not piece.text:
            break
        pages.append(piece.text)
        before = piece.start
    whole = "".join(reversed(pages))
    everything = "".join(f"{n}\n" for n in range(1, 60001))
    assert whole == everything[-ROLLING:]
    forward, after = "", 0
    while piece := scene.registry.log(process, after=after).output:
        if not piece.text:
            break
        forward, after = forward + piece.text, piece.end
    assert forward == whole


def test_a_megabyte_without_a_newline(scene: Scene) -> None:
    process = scene.spawn([sys.executable, "-c", "print('x' * 1_000_000, end='!')"])
    assert scene.finished(process).endswith("xxx!")


def test_a_prompt_without_a_newline_is_seen_while_it_runs(scene: Scene) -> None:
    process = scene.spawn("printf 'your name? '; read name; echo \"hello $name\"")
    scene.shows(process, "your name? ")
    scene.registry.submit(process, "Ana")
    assert scene.finished(process) == "your name? hello Ana\n"


def test_half_a_character_waits_for_its_other_half(scene: Scene) -> None:
    process = scene.spawn(r"printf 'a\303'; read; printf '\251b'")
    scene.shows(process, "a")
    assert scene.text(process) == "a"
    scene.registry.submit(process)
    assert scene.finished(process) == "aéb"


def test_half_a_character_at_the_end_is_marked(scene: Scene) -> None:
    assert scene.finished(scene.spawn(r"printf 'a\303'")) == "a\ufffd"


def test_binary_output_is_readable_and_can_be_told(scene: Scene) -> None:
    process = scene.spawn("head -c 3000 /dev/urandom; printf '\\000\\001end'")
    text = scene.finished(process)
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
def test_what_moves_a_cursor_is_left_out(raw: str, shown: str) -> None:
    assert readable(raw) == shown


@given(data=st.binary(max_size=200), cut=st.integers(1, 50))
def test_pages_join_to_the_whole(
    data: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("output")
    output = written(folder, data)
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
