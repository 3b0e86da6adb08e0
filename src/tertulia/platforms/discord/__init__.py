"""The platform `discord`: a bot of Discord, over its gateway and its REST API, version 10."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.core.secret import Secret
from tertulia.core.text.spans import FormattedText
from tertulia.platforms.base import Adapter
from tertulia.platforms.definition import (
    BuildContext,
    PlatformDefinition,
    SetupQuestion,
    check_address,
)
from tertulia.platforms.settings import PlatformSettings


class DiscordSettings(PlatformSettings, frozen=True, kw_only=True):
    """A bot on Discord.

    token            the token of the bot, from the Developer Portal; better kept out of the file
    token_env        the environment variable that contains it
    base_url         the address of the REST API
    gateway_url      the address of the gateway; asked from the API if it is not set
    message_content  whether the bot reads messages in servers that do not mention it. It needs the
                     Message Content Intent, which is switched on in the Developer Portal
    """

    token: Secret | None = None
    token_env: str | None = None
    base_url: str = "https://discord.com/api/v10"
    gateway_url: str | None = None
    message_content: bool = True


def format_text(source: str) -> Sequence[FormattedText]:
    """Return Markdown as the texts of messages, formatted and within the limit."""
    from tertulia.platforms.discord import discord_markdown

    return discord_markdown.format_text(source)


def build(context: BuildContext) -> Adapter:
    """Return the adapter of one bot."""
    # The abilities of the platform are asked for by every store: only a gateway needs the adapter.
    from tertulia.platforms.discord.adapter import DiscordAdapter

    settings: DiscordSettings = context.settings
    check_address(context, "base_url")
    check_address(context, "gateway_url", ("wss://", "ws://"))
    return DiscordAdapter(
        context.require_secret("token"),
        account=context.account,
        base_url=settings.base_url,
        gateway_url=settings.gateway_url,
        reads_all=settings.message_content,
        streams=settings.stream == "auto",
    )


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
    buttons=5,
    mentions_need_raw_ids=True,
    notes=(
        "You have no access to Discord's own APIs.",
        "You cannot search channel history or pin messages.",
        "You cannot manage channels, roles or members.",
        "Promise nothing of the kind; say so if you are asked for it.",
    ),
    settings=DiscordSettings,
    build=build,
    format=format_text,
    setup=(SetupQuestion(key="token", question="The token of the bot", is_secret=True),),
    guide=(
        "Open https://discord.com/developers/applications and make a New Application. Under Bot,"
        " switch the Message Content Intent on, then press Reset Token and copy the token."
    ),
    pairing=(
        "Start it with: tertulia run. Open the link above to add the bot to a server, then write to"
        " it in private. It answers with a code; approve it with: tertulia pair approve CODE"
    ),
)
