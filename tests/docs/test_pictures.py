"""The pictures of the terminal show today's program: their text is made again and compared."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.docs.markdown import ROOT, pages

pytestmark = pytest.mark.check

FOLDER = ROOT / "docs/pictures"
SVG = "{http://www.w3.org/2000/svg}"
THEMES = ("light", "dark")


@pytest.fixture(scope="module")
def make_pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_pictures", ROOT / "scripts/make_pictures.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def frames(make_pictures: ModuleType) -> list[list[str]]:
    return [make_pictures.frame_text(frame) for frame in make_pictures.play()]


def read_row(text: ElementTree.Element) -> str:
    row = ""
    for span in text.iter(f"{SVG}tspan"):
        row = row.ljust(int(span.attrib["data-column"])) + (span.text or "")
    return row


def read_frame(name: str, number: int | None = None) -> list[str]:
    """Return the rows of a still, or those of a film that one frame shows."""
    root = ElementTree.parse(FOLDER / name).getroot()
    rows: dict[int, str] = {}
    groups = [root] if number is None else list(root.iter(f"{SVG}g"))
    for group in groups:
        first, last = group.get("data-first"), group.get("data-last")
        if number is None or (first and last and int(first) <= number <= int(last)):
            for text in group.iter(f"{SVG}text"):
                rows[int(text.attrib["data-row"])] = read_row(text)
    return [rows.get(y, "") for y in range(max(rows, default=-1) + 1)]


@pytest.mark.parametrize("theme", THEMES)
def test_still_shows_the_program(frames: list[list[str]], theme: str) -> None:
    expected = [row.rstrip() for row in frames[-1]]
    assert read_frame(f"terminal-{theme}.svg") == expected, "run: make pictures"


@pytest.mark.parametrize("theme", THEMES)
def test_film_shows_the_program(frames: list[list[str]], theme: str) -> None:
    """The frames are compared where the program was at rest: elsewhere one may come between."""
    name = f"terminal-film-{theme}.svg"
    assert read_frame(name, 0) == frames[0], "run: make pictures"
    assert read_frame(name, len(frames) - 1) == frames[-1], "run: make pictures"
    assert read_frame(name, len(frames)) == []


def test_every_picture_that_a_page_shows_exists_light_and_dark() -> None:
    shown = set()
    for page in pages():
        for name in re.findall(r"pictures/([\w.-]+\.(?:svg|png))", page.read_text("utf-8")):
            assert (FOLDER / name).is_file(), f"{page.name}: {name}"
            shown.add(name)
    assert {"terminal-film-light.svg", "terminal-film-dark.svg"} <= shown
