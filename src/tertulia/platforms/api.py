"""The platform `api`: programs that use the HTTP API. `tertulia.http` serves them."""

from __future__ import annotations

from tertulia.platforms.definition import PlatformDefinition

PLATFORM = PlatformDefinition(
    "api", "API", length_limit=None, markdown="markdown", media=True, notify=False
)
