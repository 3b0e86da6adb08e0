"""What Tab offers: commands, paths of files, and a file whose path was pasted."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tertulia.platforms.base import MenuEntry
from tertulia.platforms.terminal.input_completer import InputCompleter, pasted_file

MENU = (MenuEntry("attach", "send files"), MenuEntry("new", "begin"), MenuEntry("next", "go on"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("plan.txt", "plums.pdf", "a plan.md", ".hidden"):
        (tmp_path / name).write_text("x")
    (tmp_path / "garden").mkdir()
    (tmp_path / "garden" / "beans.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def offered(text: str, pasted: str = "") -> list[str]:
    """Return the input after each offered completion."""
    completer = InputCompleter(lambda: MENU)
    completer.pasted = pasted
    document = Document(text, len(text))
    return [
        text[: len(text) + completion.start_position] + completion.text
        for completion in completer.get_completions(document, CompleteEvent())
    ]


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("/ne", ["/new", "/next"]),
        ("/NEW", ["/new"]),
        ("/new ", []),
        ("hello /ne", []),
        ("/attach pl", ["/attach plan.txt", "/attach plums.pdf"]),
        ("/attach plan.txt plu", ["/attach plan.txt plums.pdf"]),
        ("/attach ga", ["/attach garden/"]),
        ("/attach garden/", ["/attach garden/beans.txt"]),
        ("/attach a", ['/attach "a plan.md"']),
        ('/attach "a p', ['/attach "a plan.md"']),
        ("/attach ~/plu", ["/attach ~/plums.pdf"]),
        ("/attach .h", ["/attach .hidden"]),
        ("/export pla", ["/export plan.txt"]),
        ("what says @pl", ["what says @plan.txt", "what says @plums.pdf"]),
        ("what says @a", ['what says @"a plan.md"']),
        ("@garden/b", ["@garden/beans.txt"]),
        ("me@pl", []),
        ("@plan.txt and", []),
        ("@none/", []),
        ("/attach none/", []),
    ],
)
def test_completions(text: str, results: list[str]) -> None:
    assert offered(text) == results


def test_folder_is_listed_without_hidden_files() -> None:
    assert offered("@") == ['@"a plan.md"', "@garden/", "@plan.txt", "@plums.pdf"]


def test_pasted_path_is_offered_as_an_attachment(folder: Path) -> None:
    path = str(folder / "plan.txt")
    assert offered(f"look: {path}", pasted=path) == [f"look: @{path} "]
    assert offered(f"look: {path} and", pasted=path) == []


def test_paths_are_recognised_in_every_form_that_terminals_paste(folder: Path) -> None:
    path = str(folder / "a plan.md")
    escaped = path.replace(" ", "\\ ")
    address = f"file://{path.replace(' ', '%20')}"
    for text in (path, f"'{path}'", f'"{path}" ', escaped, address, "~/a plan.md"):
        assert pasted_file(text) in (path, "~/a plan.md")
    for text in ("plan.txt", "/none", f"{path}\n{path}", "it's", str(folder), ""):
        assert pasted_file(text) is None
