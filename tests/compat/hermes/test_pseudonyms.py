"""Redacted prompts use the pseudonyms of their installation."""

from __future__ import annotations

import re
from pathlib import Path

from tertulia.compat.hermes.config import GatewayConfig, HomeChannel, Platform, PlatformConfig
from tertulia.compat.hermes.session import (
    SessionSource,
    SessionStore,
    build_session_context,
    build_session_context_prompt,
)


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

        without = prompt()
        with SessionStore(tmp_path / "here", config):
            within = prompt()
        assert within != without
        assert prompt() == within, "also after it was closed, by where the configuration points"
        with SessionStore(tmp_path / "there", config):
            assert prompt() != within
