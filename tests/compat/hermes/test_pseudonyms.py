"""Redacted prompts use the pseudonyms of their installation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.compat.hermes.config import GatewayConfig, HomeChannel, Platform, PlatformConfig
from tertulia.compat.hermes.session import (
    SessionSource,
    SessionStore,
    build_session_context,
    build_session_context_prompt,
)

PROGRAM = """
from tertulia.compat.hermes.config import GatewayConfig, Platform
from tertulia.compat.hermes.session import *
source = SessionSource(Platform.SIGNAL, "1", user_id="+12025550123")
config = CONFIG
context = build_session_context(source, config) if config else SessionContext(source, [], {})
print(build_session_context_prompt(context, redact_pii=True))
"""


def connected() -> GatewayConfig:
    home = HomeChannel(Platform.TELEGRAM, "12025550123", "Family")
    return GatewayConfig(
        platforms={
            Platform.TELEGRAM: PlatformConfig(True, "token", home_channel=home),
            Platform.DISCORD: PlatformConfig(True, "token"),
        }
    )


class TestRedactedPrompt:
    def test_phone_numbers_are_redacted(self) -> None:
        source = SessionSource(
            Platform.WHATSAPP, "12025550123@s.whatsapp.net", user_id="12025550123",
            user_name="+1 202-555-0123",
        )  # fmt: skip
        context = build_session_context(source, connected())
        plain = build_session_context_prompt(context)
        redacted = build_session_context_prompt(context, redact_pii=True)
        assert "202-555-0123" in plain
        assert "555-0123" not in redacted
        assert "2025550123" not in redacted
        assert re.search(r"user_[0-9a-f]{12}", redacted)
        assert redacted == build_session_context_prompt(context, redact_pii=True)

    def test_ids_needed_for_mentions_are_kept(self) -> None:
        source = SessionSource(Platform.DISCORD, "9", user_id="777777777777777777")
        context = build_session_context(source, GatewayConfig())
        assert "777777777777777777" in build_session_context_prompt(context, redact_pii=True)

    def test_pseudonyms_belong_to_the_installation(self, tmp_path: Path) -> None:
        source = SessionSource(Platform.SIGNAL, "1", user_id="+12025550123")
        config = GatewayConfig(sessions_dir=tmp_path / "here")

        def prompt() -> str:
            return build_session_context_prompt(
                build_session_context(source, config), redact_pii=True
            )

        before = prompt()
        with SessionStore(tmp_path / "here", config):
            within = prompt()
        assert within == before, "the same before the first store was opened"
        assert prompt() == within, "also after it was closed, by where the configuration points"
        with SessionStore(tmp_path / "there", config):
            assert prompt() != within

    @pytest.mark.check
    @pytest.mark.parametrize("with_config", [True, False])
    def test_two_programs_of_one_installation_agree(
        self, tmp_path: Path, with_config: bool
    ) -> None:
        """Also before any store was opened, and for a context that was built by hand."""
        config = "GatewayConfig()" if with_config else "None"
        program = PROGRAM.replace("CONFIG", config)
        home = {**os.environ, "HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)}
        (tmp_path / ".hermes").mkdir()
        command = [sys.executable, "-c", program]
        one, two = (
            subprocess.run(command, env=home, capture_output=True, text=True, check=True).stdout
            for _ in range(2)
        )
        assert re.search(r"user_[0-9a-f]{12}", one)
        assert one == two

    def test_where_there_is_no_installation_nothing_is_made(self, tmp_path: Path) -> None:
        config = GatewayConfig(sessions_dir=tmp_path / "nobody" / "sessions")
        source = SessionSource(Platform.SIGNAL, "1", user_id="+12025550123")
        context = build_session_context(source, config)
        prompt = build_session_context_prompt(context, redact_pii=True)
        assert prompt == build_session_context_prompt(context, redact_pii=True)
        assert not (tmp_path / "nobody").exists()
