"""A gateway configuration becomes the settings of a store."""

from __future__ import annotations

from tertulia.compat.hermes.config import (
    GatewayConfig,
    HomeChannel,
    Platform,
    PlatformConfig,
    SessionResetPolicy,
)
from tertulia.compat.hermes.store_settings import settings_of


def test_policies_homes_and_platforms_are_converted() -> None:
    home = HomeChannel(Platform.TELEGRAM, "42", "Family")
    config = GatewayConfig(
        platforms={
            Platform.TELEGRAM: PlatformConfig(True, "token", home_channel=home),
            Platform.DISCORD: PlatformConfig(False, "token"),
        },
        default_reset_policy=SessionResetPolicy("idle", idle_minutes=30),
        reset_by_platform={Platform.SLACK: SessionResetPolicy("daily", at_hour=5)},
        reset_by_type={"group": SessionResetPolicy("none")},
        group_sessions_per_user=False,
    )
    settings = settings_of(config, None)
    assert (settings.policies.default.mode, settings.policies.default.idle_minutes) == ("idle", 30)
    assert settings.policies.platforms["slack"].at_hour == 5
    assert settings.policies.chat_types["group"].mode == "none"
    assert settings.platforms == ("telegram",)
    assert settings.homes["telegram"].chat_id == "42"
    assert settings.group_sessions_per_user is False


def test_zero_idle_minutes_become_the_shortest_time() -> None:
    policy = SessionResetPolicy("idle", idle_minutes=0)
    settings = settings_of(GatewayConfig(default_reset_policy=policy), None)
    assert 0 < settings.policies.default.idle_minutes < 0.0001


def test_guard_is_passed_on() -> None:
    def guard(key: str) -> bool:
        return key == "busy"

    assert settings_of(GatewayConfig(), guard).has_active_processes is guard
