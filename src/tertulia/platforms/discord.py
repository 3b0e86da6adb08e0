"""The platform `discord`."""

from __future__ import annotations

from tertulia.platforms.definition import PlatformDefinition

PLATFORM = PlatformDefinition(
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
        "Promise nothing of the kind; say so if you are asked for it.",
    ),
)
