"""The local environment: variables and folders of programs."""

from __future__ import annotations

import os

import pytest

from tertulia.errors import AccessDenied, NotFound
from tests.processes.process_fixtures import Conversation


class TestLaunch:
    def test_only_named_variables_reach_a_program(
        self, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_TOKEN", "hush")
        output = conversation.wait_for_end(conversation.spawn("env", variables={"COLOUR": "blue"}))
        assert "COLOUR=blue" in output
        assert "PATH=" in output
        assert "hush" not in output

    def test_programs_run_in_the_folder(self, conversation: Conversation) -> None:
        work = os.path.realpath(os.path.join(conversation.registry._folder, "work"))
        assert conversation.wait_for_end(conversation.spawn("pwd; mkdir -p deep")) == f"{work}\n"
        assert conversation.wait_for_end(conversation.spawn("pwd", cwd="deep")) == f"{work}/deep\n"

    @pytest.mark.parametrize("cwd", ["..", "/", "deep/../..", "link"])
    def test_folder_outside_is_refused(self, conversation: Conversation, cwd: str) -> None:
        conversation.wait_for_end(conversation.spawn("mkdir -p deep; ln -sfn / link"))
        with pytest.raises(AccessDenied, match="outside"):
            conversation.spawn("pwd", cwd=cwd)

    def test_missing_folder_is_named(self, conversation: Conversation) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            conversation.spawn("pwd", cwd="nowhere")
