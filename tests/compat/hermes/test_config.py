"""Hermes Agent's configuration values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tertulia.compat.hermes.config import (
    GatewayConfig,
    HomeChannel,
    Platform,
    PlatformConfig,
    SessionResetPolicy,
)

HOME = HomeChannel(Platform.TELEGRAM, "42", "Home")


class TestPlatform:
    def test_platform_has_the_promised_names(self) -> None:
        for name in (
            "LOCAL", "TELEGRAM", "DISCORD", "WHATSAPP", "SLACK", "SIGNAL", "MATRIX", "EMAIL", "SMS",
            "HOMEASSISTANT", "API_SERVER", "WEBHOOK",
        ):  # fmt: skip
            assert Platform[name].value == name.lower()

    @pytest.mark.parametrize("value", ["myspace", "", None, "Telegram", 7])
    def test_unknown_value_raises(self, value: object) -> None:
        with pytest.raises(ValueError, match="valid Platform"):
            Platform(value)


class TestHomeChannel:
    def test_dict_round_trip(self) -> None:
        assert HOME.to_dict() == {"platform": "telegram", "chat_id": "42", "name": "Home"}
        assert HomeChannel.from_dict(HOME.to_dict()) == HOME

    def test_id_becomes_text_and_name_has_a_default(self) -> None:
        assert HomeChannel.from_dict({"platform": "telegram", "chat_id": 42}) == HOME


class TestPlatformConfig:
    def test_dict_round_trip(self) -> None:
        full = PlatformConfig(True, "t", "k", HOME, {"a": [1]})
        assert PlatformConfig.from_dict(full.to_dict()) == full

    def test_dict_has_only_set_secrets(self) -> None:
        assert PlatformConfig().to_dict() == {"enabled": False, "extra": {}}

    def test_missing_keys_have_defaults(self) -> None:
        assert PlatformConfig.from_dict({}) == PlatformConfig()

    def test_extra_is_not_shared_between_instances(self) -> None:
        PlatformConfig().extra["a"] = 1
        assert PlatformConfig().extra == {}


class TestSessionResetPolicy:
    def test_dict_round_trip(self) -> None:
        policy = SessionResetPolicy("idle", 5, 30, False, ("sms",))
        assert policy.to_dict() == {
            "mode": "idle",
            "at_hour": 5,
            "idle_minutes": 30,
            "notify": False,
            "notify_exclude_platforms": ["sms"],
        }
        assert SessionResetPolicy.from_dict(policy.to_dict()) == policy

    def test_missing_and_empty_keys_have_defaults(self) -> None:
        assert SessionResetPolicy.from_dict({}) == SessionResetPolicy()
        empty = dict.fromkeys(SessionResetPolicy().to_dict())
        assert SessionResetPolicy.from_dict(empty) == SessionResetPolicy()

    def test_hour_zero_is_kept(self) -> None:
        assert SessionResetPolicy.from_dict({"at_hour": 0}).at_hour == 0


class TestGatewayConfig:
    def test_connected_is_enabled_with_a_token_or_a_key(self) -> None:
        config = GatewayConfig(
            platforms={
                Platform.TELEGRAM: PlatformConfig(True, token="t"),
                Platform.DISCORD: PlatformConfig(True, api_key="k"),
                Platform.SLACK: PlatformConfig(False, token="t"),
                Platform.SIGNAL: PlatformConfig(True),
            }
        )
        assert config.get_connected_platforms() == [Platform.DISCORD, Platform.TELEGRAM]

    def test_home_channel(self) -> None:
        config = GatewayConfig(platforms={Platform.TELEGRAM: PlatformConfig(home_channel=HOME)})
        assert config.get_home_channel(Platform.TELEGRAM) == HOME
        assert config.get_home_channel(Platform.SLACK) is None

    def test_policy_order_is_platform_type_default(self) -> None:
        by_platform, by_type = SessionResetPolicy("idle"), SessionResetPolicy("daily")
        config = GatewayConfig(
            reset_by_platform={Platform.TELEGRAM: by_platform}, reset_by_type={"group": by_type}
        )
        assert config.get_reset_policy(Platform.TELEGRAM, "group") is by_platform
        assert config.get_reset_policy(Platform.SLACK, "group") is by_type
        assert config.get_reset_policy(session_type="group") is by_type
        assert config.get_reset_policy(Platform.SLACK, "dm") is config.default_reset_policy
        assert config.get_reset_policy() == SessionResetPolicy()

    def test_dict_round_trip(self) -> None:
        config = GatewayConfig(
            platforms={Platform.TELEGRAM: PlatformConfig(True, "t", home_channel=HOME)},
            default_reset_policy=SessionResetPolicy("none"),
            reset_by_type={"group": SessionResetPolicy("daily", at_hour=0)},
            reset_by_platform={Platform.DISCORD: SessionResetPolicy("idle", idle_minutes=5)},
            reset_triggers=["/fresh"],
            quick_commands={"hi": {"type": "exec"}},
            sessions_dir=Path("some") / "where",
            always_log_local=False,
            group_sessions_per_user=False,
        )
        assert GatewayConfig.from_dict(config.to_dict()) == config

    def test_missing_keys_have_defaults(self) -> None:
        assert GatewayConfig.from_dict({}) == GatewayConfig()
        assert GatewayConfig().reset_triggers == ["/new", "/reset"]

    def test_unknown_platforms_are_left_out(self) -> None:
        config = GatewayConfig.from_dict(
            {
                "platforms": {"myspace": {"enabled": True}, "telegram": "yes", "slack": {}},
                "reset_by_platform": {"myspace": {}, "slack": {"mode": "none"}},
                "quick_commands": [],
                "anything": 1,
            }
        )
        assert list(config.platforms) == [Platform.SLACK]
        assert config.reset_by_platform == {Platform.SLACK: SessionResetPolicy("none")}

    def test_config_is_not_a_mapping(self) -> None:
        assert not isinstance(GatewayConfig(), Mapping)
        assert not hasattr(GatewayConfig(), "get")

    def test_default_sessions_dir_is_in_the_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HERMES_HOME", "some-home")
        assert GatewayConfig().sessions_dir == Path("some-home") / "sessions"
        monkeypatch.delenv("HERMES_HOME")
        assert GatewayConfig().sessions_dir == Path.home() / ".hermes" / "sessions"
