"""The platform `telegram`: a bot of the Telegram Bot API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from tertulia.core.secret import Secret
from tertulia.core.text.spans import FormattedText
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter
from tertulia.platforms.definition import (
    BuildContext,
    PlatformDefinition,
    SetupQuestion,
    check_address,
)
from tertulia.platforms.settings import PlatformSettings

_API: Final = "https://api.telegram.org"


class TelegramSettings(PlatformSettings, frozen=True, kw_only=True):
    """A bot on Telegram.

    token         the token of the bot, from BotFather; better kept out of the file
    token_env     the environment variable that contains it
    base_url      the address of the Bot API server
    mode          how messages are received: poll (nothing else is needed) or webhook (Telegram
                  calls this gateway, which needs an address that Telegram can reach)
    public_url    webhook: the address of this gateway as Telegram reaches it, with https; a Bot API
                  server of your own may call an address with http
    secret        webhook: a secret that Telegram sends with each call; better kept out of the file
    secret_env    the environment variable that contains it
    """

    token: Secret | None = None
    token_env: str | None = None
    base_url: str = _API
    mode: Literal["poll", "webhook"] = "poll"
    public_url: str | None = None
    secret: Secret | None = None
    secret_env: str | None = None


def format_text(source: str) -> Sequence[FormattedText]:
    """Return Markdown as the texts of messages, formatted and within the limit."""
    from tertulia.platforms.telegram import entities

    return entities.format_text(source)


def build(context: BuildContext) -> Adapter:
    """Return the adapter of one bot."""
    # The abilities of the platform are asked for by every store: only a gateway needs the adapter.
    from tertulia.platforms.telegram.adapter import TelegramAdapter

    settings: TelegramSettings = context.settings
    check_address(context, "base_url")
    webhook = None
    if settings.mode == "webhook":
        _check_public_url(context)
        path = "/".join(filter(None, ("platforms", context.name, context.account)))
        url = f"{(settings.public_url or '').rstrip('/')}/{path}"
        webhook = url, context.require_secret("secret")
    return TelegramAdapter(
        context.require_secret("token"),
        account=context.account,
        base_url=settings.base_url,
        webhook=webhook,
        streams=settings.stream == "auto",
    )


def _check_public_url(context: BuildContext) -> None:
    """Raise `ConfigError` if Telegram cannot call the address of the webhook."""
    settings: TelegramSettings = context.settings
    is_own_server = settings.base_url.rstrip("/") != _API
    schemes = ("https://", "http://") if is_own_server else ("https://",)
    if (settings.public_url or "").startswith(schemes):
        return
    is_set = bool(settings.public_url)
    problem = "its public_url does not begin with https" if is_set else "has no public_url"
    raise ConfigError(
        f"{context.section} receives by webhook, and {problem}.",
        hint='Set the address that Telegram can reach: public_url = "https://…"',
        field=f"{context.section}.public_url",
    )


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
    buttons=8,
    settings=TelegramSettings,
    build=build,
    format=format_text,
    setup=(SetupQuestion(key="token", question="The token of the bot", is_secret=True),),
    guide=(
        "Open Telegram, write /newbot to @BotFather, and answer its two questions."
        " It gives you a token like 123456789:AA…"
    ),
    pairing=(
        "Start it with: tertulia run. Then write to the bot. It answers with a code; approve it"
        " with: tertulia pair approve CODE"
    ),
)
