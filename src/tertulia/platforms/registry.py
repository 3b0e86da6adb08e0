"""The registry of platforms.

The built-in platforms are listed here as data. Others are registered by a call of `register`, or by
an installed package with an entry point in the group `tertulia.platforms` that has the name of the
platform and refers to its `Platform`:

    [project.entry-points."tertulia.platforms"]
    matrix = "tertulia_matrix:MATRIX"

Entry points are read only when a name is neither built in nor registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from tertulia.core.platform import Platform
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.source import LOCAL
from tertulia.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tertulia.platforms"

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_RESERVED = frozenset({"origin"})  # it is a delivery target with its own meaning

_LIMITS_NOTE = "Promise nothing of the kind; say so if you are asked for it."
_BUILT_IN = (
    Platform(LOCAL, "Local", length_limit=None, markdown="markdown"),
    Platform(
        "telegram",
        "Telegram",
        length_limit=4096,
        # Reports differ on the unit, code points or UTF-16 units; a text that fits in UTF-16
        # units fits in both.
        length_unit="utf16",
        markdown="html",
        threads=True,
        edits=True,
        typing=True,
        media=True,
        commands=True,
    ),
    Platform(
        "discord",
        "Discord",
        length_limit=2000,
        markdown="markdown",
        threads=True,
        edits=True,
        typing=True,
        media=True,
        commands=True,
        mentions_need_raw_ids=True,
        notes=(
            "You have no access to Discord's own APIs.",
            "You cannot search channel history or pin messages.",
            "You cannot manage channels, roles or members.",
            _LIMITS_NOTE,
        ),
    ),
    Platform(
        "slack",
        "Slack",
        length_limit=40_000,
        markdown="mrkdwn",
        threads=True,
        edits=True,
        media=True,
        mentions_need_raw_ids=True,
        notes=(
            "You have no access to Slack's own APIs.",
            "You cannot search channel history or pin messages.",
            "You cannot manage channels or members.",
            _LIMITS_NOTE,
        ),
    ),
    Platform("whatsapp", "WhatsApp", length_limit=4096, markdown="simple", typing=True, media=True),
    # Receiving apps truncate or drop longer bodies without telling the sender.
    Platform(
        "signal",
        "Signal",
        length_limit=2000,
        length_unit="bytes",
        edits=True,
        typing=True,
        media=True,
    ),
    Platform(
        "web", "Web", length_limit=None, markdown="markdown", edits=True, typing=True, media=True
    ),
    Platform("api", "API", length_limit=None, markdown="markdown", media=True, notify=False),
    Platform("webhook", "Webhook", length_limit=None, markdown="markdown", notify=False),
)


# Platforms of agent SDKs: the program names each conversation and asks for it by that name again,
# so none of them ends by itself, unless a policy is configured for its platform.
AGENT_SDK_PLATFORMS = ("openai-agents", "pydantic-ai", "agent-framework", "claude-agent")
_NEVER = ResetPolicy("none")


class Platforms(Mapping[str, Platform]):
    """All platforms by name: built in, registered, or from an installed package."""

    def __init__(self) -> None:
        self._loaded = {platform.name: platform for platform in _BUILT_IN}

    def __getitem__(self, name: str) -> Platform:
        if name not in self._loaded:
            self._loaded[name] = _load(_entry_points()[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in _entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter({**self._loaded, **_entry_points()})

    def __len__(self) -> int:
        return len({**self._loaded, **_entry_points()})

    def add(self, platform: Platform) -> None:
        self._loaded[platform.name] = platform


PLATFORMS = Platforms()


def platform(name: str) -> Platform:
    """Return the platform of that name; for an unknown name a platform with default abilities."""
    return PLATFORMS[name] if name in PLATFORMS else Platform(name)


def register(platform: Platform) -> None:
    """Register a platform, replacing one of the same name; raise `ConfigError` for a bad name."""
    if not _NAME.fullmatch(platform.name) or platform.name in _RESERVED:
        raise ConfigError(
            f"Invalid platform name {platform.name!r}.",
            hint="Use up to 32 of a-z, 0-9, '-' and '_', beginning with a letter, not 'origin'.",
            field="name",
        )
    PLATFORMS.add(platform)


def needs_raw_ids(name: str) -> bool:
    """Return whether people on that platform can only be mentioned by their ids."""
    return platform(name).mentions_need_raw_ids


def policies(configured: Policies) -> Policies:
    """Return the configured policies, with "never" for agent SDKs that have no policy."""
    sdk_policies = dict.fromkeys(AGENT_SDK_PLATFORMS, _NEVER)
    return Policies(
        default=configured.default,
        platforms={**sdk_policies, **configured.platforms},
        chat_types=configured.chat_types,
    )


@cache
def _entry_points() -> dict[str, EntryPoint]:
    # Slow to import, and needed only for names that are not built in.
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP)
    return {point.name: point for point in points if point.name not in _RESERVED}


def _load(point: EntryPoint) -> Platform:
    try:
        loaded = point.load()
    except Exception as error:
        raise ConfigError(
            f"The platform {point.name!r} could not be loaded from {point.value!r}: {error}.",
            hint="Repair or uninstall the package that provides it.",
            field=point.name,
        ) from error
    if isinstance(loaded, Platform) and loaded.name == point.name:
        return loaded
    raise ConfigError(
        f"The entry point {point.name!r} of {GROUP} refers to {point.value!r}, "
        f"which is not a platform of that name.",
        hint=f"It must refer to a tertulia Platform({point.name!r}, …).",
        field=point.name,
    )
