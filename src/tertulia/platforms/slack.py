"""The platform `slack`."""

from __future__ import annotations

from tertulia.platforms.definition import PlatformDefinition

PLATFORM = PlatformDefinition(
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
        "Promise nothing of the kind; say so if you are asked for it.",
    ),
)
