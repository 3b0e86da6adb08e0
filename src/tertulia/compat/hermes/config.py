"""The part of Hermes Agent's configuration that sessions and deliveries use.

The values are plain and may be changed by their owner at any time. A key that is missing in a dict
has its default; an unknown platform is left out of a configuration, as in Hermes Agent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Self


class Platform(Enum):
    """The platforms that Hermes Agent knows, and those of Tertulia."""

    LOCAL = "local"
    TELEGRAM = "telegram"
    DISCORD = "discord"
    WHATSAPP = "whatsapp"
    WHATSAPP_CLOUD = "whatsapp_cloud"
    SLACK = "slack"
    SIGNAL = "signal"
    MATTERMOST = "mattermost"
    MATRIX = "matrix"
    HOMEASSISTANT = "homeassistant"
    EMAIL = "email"
    SMS = "sms"
    DINGTALK = "dingtalk"
    FEISHU = "feishu"
    WECOM = "wecom"
    WEIXIN = "weixin"
    BLUEBUBBLES = "bluebubbles"
    QQBOT = "qqbot"
    API_SERVER = "api_server"
    WEBHOOK = "webhook"
    # Tertulia's own platforms, so that sessions there are listed with a platform.
    WEB = "web"
    API = "api"


def known_platform(value: object) -> Platform | None:
    """Return the platform of that name, or None if it is unknown."""
    try:
        return Platform(value)
    except ValueError:
        return None


@dataclass
class HomeChannel:
    """The default chat of a platform."""

    platform: Platform
    chat_id: str
    name: str

    def to_dict(self) -> dict[str, Any]:
        return {"platform": self.platform.value, "chat_id": self.chat_id, "name": self.name}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        name = data.get("name") or "Home"
        return cls(Platform(data["platform"]), str(data["chat_id"]), name)


@dataclass
class PlatformConfig:
    """The connection settings of one platform."""

    enabled: bool = False
    token: str | None = None
    api_key: str | None = None
    home_channel: HomeChannel | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"enabled": self.enabled, "extra": self.extra}
        if self.token:
            data["token"] = self.token
        if self.api_key:
            data["api_key"] = self.api_key
        if self.home_channel is not None:
            data["home_channel"] = self.home_channel.to_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        home = data.get("home_channel")
        return cls(
            enabled=bool(data.get("enabled", False)),
            token=data.get("token"),
            api_key=data.get("api_key"),
            home_channel=HomeChannel.from_dict(home) if isinstance(home, Mapping) else None,
            extra=dict(_as_mapping(data.get("extra"))),
        )


@dataclass
class SessionResetPolicy:
    """When sessions end automatically: `daily`, `idle`, `both` or `none`."""

    mode: str = "both"
    at_hour: int = 4
    idle_minutes: int = 1440
    notify: bool = True
    notify_exclude_platforms: tuple[str, ...] = ("api_server", "webhook")

    def to_dict(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "at_hour": self.at_hour,
            "idle_minutes": self.idle_minutes,
            "notify": self.notify,
            "notify_exclude_platforms": list(self.notify_exclude_platforms),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        # An empty value in YAML is None, and means the same as a missing key.
        names = ("mode", "at_hour", "idle_minutes", "notify")
        values = {name: data[name] for name in names if data.get(name) is not None}
        excluded = data.get("notify_exclude_platforms")
        if excluded is not None:
            values["notify_exclude_platforms"] = tuple(excluded)
        return cls(**values)


def _default_sessions_dir() -> Path:
    home = os.environ.get("HERMES_HOME")
    return (Path(home) if home else Path.home() / ".hermes") / "sessions"


@dataclass
class GatewayConfig:
    """The configuration of the gateway."""

    platforms: dict[Platform, PlatformConfig] = field(default_factory=dict)
    default_reset_policy: SessionResetPolicy = field(default_factory=SessionResetPolicy)
    reset_by_type: dict[str, SessionResetPolicy] = field(default_factory=dict)
    reset_by_platform: dict[Platform, SessionResetPolicy] = field(default_factory=dict)
    reset_triggers: list[str] = field(default_factory=lambda: ["/new", "/reset"])
    quick_commands: dict[str, Any] = field(default_factory=dict)
    sessions_dir: Path = field(default_factory=_default_sessions_dir)
    always_log_local: bool = True
    group_sessions_per_user: bool = True

    def get_connected_platforms(self) -> list[Platform]:
        """Return the enabled platforms with a token or a key, sorted by name for the prompt."""
        connected = (
            platform
            for platform, config in self.platforms.items()
            if config.enabled and (config.token or config.api_key)
        )
        return sorted(connected, key=lambda platform: str(platform.value))

    def get_home_channel(self, platform: Platform) -> HomeChannel | None:
        config = self.platforms.get(platform)
        return None if config is None else config.home_channel

    def get_reset_policy(
        self, platform: Platform | None = None, session_type: str | None = None
    ) -> SessionResetPolicy:
        """Return the policy of the platform, else of the session type, else the default."""
        if platform is not None and platform in self.reset_by_platform:
            return self.reset_by_platform[platform]
        if session_type is not None and session_type in self.reset_by_type:
            return self.reset_by_type[session_type]
        return self.default_reset_policy

    def to_dict(self) -> dict[str, Any]:
        return {
            "platforms": {
                platform.value: config.to_dict() for platform, config in self.platforms.items()
            },
            "default_reset_policy": self.default_reset_policy.to_dict(),
            "reset_by_type": {
                kind: policy.to_dict() for kind, policy in self.reset_by_type.items()
            },
            "reset_by_platform": {
                platform.value: policy.to_dict()
                for platform, policy in self.reset_by_platform.items()
            },
            "reset_triggers": self.reset_triggers,
            "quick_commands": self.quick_commands,
            "sessions_dir": str(self.sessions_dir),
            "always_log_local": self.always_log_local,
            "group_sessions_per_user": self.group_sessions_per_user,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        parse_policy = SessionResetPolicy.from_dict
        values: dict[str, Any] = {
            "platforms": {
                platform: PlatformConfig.from_dict(entry)
                for platform, entry in _known_platform_entries(data.get("platforms"))
            },
            "default_reset_policy": parse_policy(_as_mapping(data.get("default_reset_policy"))),
            "reset_by_type": {
                kind: parse_policy(_as_mapping(entry))
                for kind, entry in _as_mapping(data.get("reset_by_type")).items()
            },
            "reset_by_platform": {
                platform: parse_policy(entry)
                for platform, entry in _known_platform_entries(data.get("reset_by_platform"))
            },
            "quick_commands": dict(_as_mapping(data.get("quick_commands"))),
        }
        for name in ("reset_triggers", "always_log_local", "group_sessions_per_user"):
            if data.get(name) is not None:
                values[name] = data[name]
        if data.get("sessions_dir") is not None:
            values["sessions_dir"] = Path(data["sessions_dir"])
        return cls(**values)


def _known_platform_entries(value: object) -> list[tuple[Platform, Mapping[str, Any]]]:
    """Return the entries of known platforms that are dicts."""
    entries = ((known_platform(name), entry) for name, entry in _as_mapping(value).items())
    return [
        (platform, entry)
        for platform, entry in entries
        if platform is not None and isinstance(entry, Mapping)
    ]


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
