"""The platform `telegram`."""

from __future__ import annotations

from tertulia.platforms.definition import PlatformDefinition

PLATFORM = PlatformDefinition(
    "telegram",
    "Telegram",
    length_limit=4096,
    # Reports differ on the unit, code points or UTF-16 units; a text that fits in UTF-16 units
    # fits in both.
    length_unit="utf16",
    markdown="html",
    threads=True,
    edits=True,
    typing=True,
    media=True,
    commands=True,
)
