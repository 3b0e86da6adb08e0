"""What the README and the docs show is run as it is written.

- The blocks of a page run in order, in an empty folder and with an empty home. Its `python` blocks
  share one namespace, as they would when pasted into one file.
- Then they run again, with the files and stores of the first time: whoever tries something tries it
  twice. Only the configuration is removed before, because no real model can be asked here.
- Of a `console` block, the lines that begin with `$ tertulia`, or that pipe into it, are run and
  must succeed; `$ cd` and `$ export` hold for all that follows.
- `<!-- not run: reason -->` on the line before excuses a block.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tertulia.platforms.registry import PLATFORMS
from tests.docs.markdown import ROOT, Block, blocks, pages

pytestmark = pytest.mark.check

README = ROOT / "README.md"
LONGEST_COMMAND_SECONDS = 120

# A command of the program, also at the end of a pipe.
_COMMAND = re.compile(r"\$ (((echo|printf) .* \| )?tertulia(\s|$)|(cd|export) )")

# Other words for the languages that are run. A block under one of them would be left out unseen.
ALIASES = {"py", "python3", "pycon", "py3", "shell-session", "shellsession", "sh-session"}


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, a home and an environment in which nothing was ever set up."""
    for name in list(os.environ):
        if name.startswith(("TERTULIA_", "XDG_")):
            monkeypatch.delenv(name)
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NO_COLOR", "1")
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    monkeypatch.setenv("TERTULIA_STORE", "")  # to be restored if a page exports it
    monkeypatch.delenv("TERTULIA_STORE")
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the platforms that a page registers."""
    monkeypatch.setattr(PLATFORMS, "_loaded", dict(PLATFORMS._loaded))


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("page", pages(), ids=_name)
def test_page_runs_as_written(page: Path, empty_place: Path) -> None:
    text = page.read_text("utf-8")
    run_page(text, _name(page))
    shutil.rmtree(empty_place.parent / "home/.config", ignore_errors=True)
    os.environ.pop("TERTULIA_STORE", None)
    os.chdir(empty_place)
    run_page(text, _name(page))


@pytest.mark.usefixtures("empty_place")
def test_first_programs_run_in_one_folder() -> None:
    """Whoever tries one of them tries the next one beside it, on the same store."""
    for name in ("README.md", "docs/index.md", "README.md"):
        namespace: dict[str, Any] = {"__name__": "__main__"}
        block = next(
            block
            for block in blocks((ROOT / name).read_text("utf-8"))
            if block.language == "python" and not block.not_run
        )
        _run_python(block, name, namespace)


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_blocks_are_labelled_so_that_they_are_run(page: Path) -> None:
    labels = {block.language.lower() for block in blocks(page.read_text("utf-8"))}
    assert not labels & ALIASES, "call them `python` and `console`"


@pytest.mark.skipif(not README.exists(), reason="there is no README yet")
def test_the_readme_shows_python_that_runs() -> None:
    shown = blocks(README.read_text("utf-8"))
    assert any(block.language == "python" and not block.not_run for block in shown)


def run_page(markdown: str, name: str) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(markdown):
        if block.not_run:
            continue
        if block.language == "python":
            _run_python(block, name, namespace)
        elif block.language == "console":
            for command in commands(block.text):
                _run_command(command, f"{name}:{block.line}")


def commands(console: str) -> list[str]:
    """The lines that are run; one that ends in a backslash goes on in the next."""
    joined = re.sub(r"\\\n(> )?", "", console)
    return [line[2:] for line in joined.splitlines() if _COMMAND.match(line)]


def _run_python(block: Block, name: str, namespace: dict[str, Any]) -> None:
    # The empty lines before make a traceback name the line of the page.
    text = "\n" * (block.line - 1) + block.text
    exec(compile(text, name, "exec", dont_inherit=True), namespace)


def _run_command(command: str, place: str) -> None:
    changes_shell = command.startswith(("cd ", "export "))
    done = subprocess.run(
        f'{command}\npwd\necho "$TERTULIA_STORE"' if changes_shell else command,
        shell=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (
        f"{place}: `{command}` ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    if changes_shell:
        folder, store = done.stdout.splitlines()
        os.chdir(folder)
        if store:
            os.environ["TERTULIA_STORE"] = store


class TestTheRunner:
    """The runner itself, since a runner that runs nothing would be content with everything."""

    pytestmark = pytest.mark.usefixtures("empty_place")

    def test_python_blocks_share_a_namespace_and_a_folder(self, empty_place: Path) -> None:
        first = "```python\nfrom pathlib import Path\nn = 1\n```\n"
        indented = "- text\n\n  ```python\n  Path('n').write_text(str(n))\n  ```\n"
        run_page(first + indented, "page.md")
        assert (empty_place / "n").read_text() == "1"

    def test_an_error_names_the_line_of_the_page(self) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            run_page("# Title\n\n```python\n1 / 0\n```\n", "page.md")
        assert caught.traceback[-1].lineno == 3  # counted from 0
        assert str(caught.traceback[-1].path).endswith("page.md")

    def test_an_excuse_needs_a_reason(self) -> None:
        run_page("<!-- not run: needs a key -->\n\n```python\n1 / 0\n```\n", "page.md")
        with pytest.raises(ZeroDivisionError):
            run_page("<!-- not run:  -->\n```python\n1 / 0\n```\n", "page.md")

    def test_an_excuse_holds_for_one_block(self) -> None:
        block = "```python\n1 / 0\n```\n"
        with pytest.raises(ZeroDivisionError):
            run_page(f"<!-- not run: needs a key -->\n{block}{block}", "page.md")

    def test_a_block_that_shows_a_block_is_not_run(self) -> None:
        run_page("````markdown\n```python\n1 / 0\n```\n````\n", "page.md")

    def test_an_open_block_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="line 2 is never closed"):
            run_page("\n```python\n1 / 0\n", "page.md")

    def test_commands_of_a_console_block(self) -> None:
        shown = "$ pip install x\n$ tertulia a\noutput\n$ tertulia b \\\n> --c\n$ tertuliana\n"
        assert commands(f"{shown}$ tertulia") == ["tertulia a", "tertulia b --c", "tertulia"]

    def test_folder_and_store_hold_for_what_follows(self, empty_place: Path) -> None:
        shown = "$ mkdir below\n$ cd below   # here\n$ export TERTULIA_STORE=$PWD/x.db\n"
        (empty_place / "below").mkdir()
        run_page(f"```console\n{shown}$ tertulia store migrate\n```\n", "page.md")
        assert (empty_place / "below/x.db").exists()

    def test_a_failing_command_is_an_error(
        self, empty_place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = empty_place / "tertulia"
        fake.write_text('#!/bin/sh\necho "ran $1"\ntest "$1" = well\n')
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", str(empty_place), prepend=os.pathsep)
        run_page("```console\n$ tertulia well\n```\n", "page.md")
        with pytest.raises(AssertionError, match=r"(?s)page.md:2: `tertulia badly`.*ran badly"):
            run_page("```console\n$ tertulia badly\n```\n", "page.md")
