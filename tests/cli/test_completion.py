"""`tertulia completion`: the script of each shell, and session ids with their names."""

from __future__ import annotations

import pytest

from tests.cli.conftest import CommandLine, Demo, run


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_prints_the_script_of_a_shell(self, shell: str) -> None:
        script = CommandLine(None)("completion", shell).stdout
        assert f"_TERTULIA_COMPLETE={shell}_complete" in script

    def test_unknown_shell_is_refused(self) -> None:
        assert CommandLine(None)("completion", "csh", expect=2).stderr.startswith("error: ")

    def test_completes_ids_with_names(self, demo: Demo) -> None:
        found = run(
            env={
                "_TERTULIA_COMPLETE": "zsh_complete",
                "COMP_WORDS": f"tertulia sessions show --store {demo.path} {demo.old[:8]}",
                "COMP_CWORD": "5",
            }
        )
        assert found.stdout.splitlines() == ["plain", demo.old, "Viaje a Lisboa"]

    def test_completion_without_a_store_is_silent(self) -> None:
        done = run(
            env={
                "_TERTULIA_COMPLETE": "bash_complete",
                "COMP_WORDS": "tertulia sessions show 2",
                "COMP_CWORD": "3",
            }
        )
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
