"""The platform `whatsapp`."""

from __future__ import annotations

from tertulia.platforms.definition import PlatformDefinition

PLATFORM = PlatformDefinition(
    "whatsapp", "WhatsApp", length_limit=4096, markdown="simple", typing=True, media=True
)
