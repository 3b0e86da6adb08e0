"""The platform `signal`."""

from __future__ import annotations

from tertulia.platforms.definition import PlatformDefinition

PLATFORM = PlatformDefinition(
    "signal",
    "Signal",
    # Receiving apps truncate or drop longer bodies without telling the sender.
    length_limit=2000,
    length_unit="bytes",
    edits=True,
    typing=True,
    media=True,
)
