"""Which platforms there are.

The built-in ones stand here as data. Others are registered, by a call of `register` or by an
installed package whose entry point in the group `tertulia.platforms` is named like the platform
and leads to its `Platform`:

    [project.entry-points."tertulia.platforms"]
    matrix = "tertulia_matrix:MATRIX"

Packages are only looked at when a name is asked for that nobody else knows.
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
_RESERVED = frozenset({"origin"})  # a target of its own

_SO = "Promise nothing of the kind; say so if you are asked for it."
_BUILT_IN = (
    Platform(LOCAL, "Local", length_limit=None, markdown="markdown"),
    Platform(
        "telegram",
        "Telegram",
        length_limit=4096,
        # Whether it counts code points or UTF-16 units is reported both ways; this one always fits.
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
            _SO,
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
            _SO,
        ),
    ),
    Platform("whatsapp", "WhatsApp", length_limit=4096, markdown="simple", typing=True, media=True),
    # Longer bodies are cut or dropped by the receiving apps without a word to the sender.
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


# Where a program names each conversation and asks for it by that name again, as agent SDKs do. None
# of them ends by itself unless a policy is given for its platform.
NAMED_BY_PROGRAMS = ("openai-agents", "pydantic-ai", "agent-framework", "claude-agent")
_NEVER = ResetPolicy("none")


class Platforms(Mapping[str, Platform]):
    """Every known platform by name: built in, registered, or brought by an installed package."""

    def __init__(self) -> None:
        self._known = {platform.name: platform for platform in _BUILT_IN}

    def __getitem__(self, name: str) -> Platform:
        if name not in self._known:
            self._known[name] = _load(_entry_points()[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in _entry_points()

    def __iter__(self) -> Iterator[str]:
        return iter({**self._known, **_entry_points()})

    def __len__(self) -> int:
        return len({**self._known, **_entry_points()})

    def add(self, platform: Platform) -> None:
        self._known[platform.name] = platform


PLATFORMS = Platforms()


def platform(name: str) -> Platform:
    """The platform of that name; an unknown one is taken to be plain, never refused."""
    return PLATFORMS[name] if name in PLATFORMS else Platform(name)


def register(platform: Platform) -> None:
    """Make a platform known; one that was known by that name is replaced."""
    if not _NAME.fullmatch(platform.name) or platform.name in _RESERVED:
        raise ConfigError(
            f"A platform cannot be registered as {platform.name!r}.",
            hint="Use up to 32 small letters, digits, '-' and '_', a letter first, not 'origin'.",
            field="name",
        )
    PLATFORMS.add(platform)


def needs_raw_ids(name: str) -> bool:
    """Whether people on that platform can only be mentioned by their ids."""
    return platform(name).mentions_need_raw_ids


def policies(given: Policies) -> Policies:
    """The policies in force: those given, and none for what programs name."""
    named = dict.fromkeys(NAMED_BY_PROGRAMS, _NEVER)
    return Policies(
        default=given.default,
        platforms={**named, **given.platforms},
        chat_types=given.chat_types,
    )


@cache
def _entry_points() -> dict[str, EntryPoint]:
    # Slow to import, and needed only for names that are not built in.
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP)
    return {point.name: point for point in found if point.name not in _RESERVED}


def _load(point: EntryPoint) -> Platform:
    try:
        loaded = point.load()
    except Exception as error:
        raise ConfigError(
            f"The platform {point.name!r} could not be loaded from {point.value!r}: {error}.",
            hint="Mend or uninstall the package that brings it.",
            field=point.name,
        ) from error
    if isinstance(loaded, Platform) and loaded.name == point.name:
        return loaded
    raise ConfigError(
        f"The entry point {point.name!r} of {GROUP} leads to {point.value!r}, "
        f"which is no platform of that name.",
        hint=f"It has to lead to a tertulia Platform({point.name!r}, …).",
        field=point.name,
    )
