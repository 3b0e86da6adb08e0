"""The manual page and the completion scripts in share/ are what the program says today."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.cli.entry_point import main
from tertulia.cli.man_page import man_page
from tests.cli.conftest import CommandLine
from tests.docs.markdown import ROOT

PAGE = ROOT / "share/man/man1/tertulia.1"
SCRIPTS = {
    "bash": ROOT / "share/bash-completion/completions/tertulia",
    "zsh": ROOT / "share/zsh/site-functions/_tertulia",
    "fish": ROOT / "share/fish/vendor_completions.d/tertulia.fish",
}


def test_page_is_what_the_program_writes() -> None:
    expected = man_page()
    assert PAGE.read_text("utf-8") == expected, (
        "run: python -m tertulia.cli.man_page > share/man/man1/tertulia.1"
    )


def test_page_has_every_command() -> None:
    text = PAGE.read_text("ascii")
    for name in main.commands:
        assert f".SS tertulia {name}" in text


@pytest.mark.parametrize("shell", SCRIPTS)
def test_completion_script_is_what_the_program_prints(shell: str) -> None:
    printed = CommandLine(None)("completion", shell).stdout
    assert SCRIPTS[shell].read_text("utf-8") == printed, (
        f"run: tertulia completion {shell} > {SCRIPTS[shell].relative_to(ROOT)}"
    )


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_formatter_accepts_the_page() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Tutf8", str(PAGE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


BASH = """
COMP_WORDS=(tertulia sess) COMP_CWORD=1
_tertulia_completion tertulia
echo $COMPREPLY
"""
ZSH = """
whence -f _tertulia_completion >/dev/null &&
COMP_WORDS='tertulia sess' COMP_CWORD=1 _TERTULIA_COMPLETE=zsh_complete tertulia
"""


@pytest.mark.check
@pytest.mark.parametrize(
    ("shell", "program"), [("bash", BASH), ("fish", "complete -C 'tertulia sess'"), ("zsh", ZSH)]
)
def test_shell_completes_a_command(shell: str, program: str, tmp_path: Path) -> None:
    interpreter = shutil.which(shell)
    if interpreter is None:
        pytest.skip(f"{shell} is not installed")
    source = SCRIPTS[shell]
    before = "autoload -Uz compinit; compinit -u\n" if shell == "zsh" else ""
    done = subprocess.run(
        [interpreter, "-c", f"{before}source {source}\n{program}"],
        capture_output=True,
        text=True,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)},
        check=False,
    )
    assert "sessions" in done.stdout.split(), done.stderr
    if shell == "fish":
        assert "List, show, search and change sessions." in done.stdout
