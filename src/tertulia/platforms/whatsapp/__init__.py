"""The platform `whatsapp`: a business number on the WhatsApp Cloud API."""

from __future__ import annotations

from collections.abc import Sequence

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


class WhatsAppSettings(PlatformSettings, frozen=True, kw_only=True):
    """A business number on WhatsApp.

    token              the access token of a system user; better kept out of the file
    token_env          the environment variable that contains it
    phone_number_id    the id of the business number, from the app's page at Meta
    app_secret         the secret of the app, with which Meta signs its requests
    app_secret_env     the environment variable that contains it
    verify_token       any text that only you and Meta know, to set up the webhook
    verify_token_env   the environment variable that contains it
    base_url           the address of the Graph API, with its version
    """

    token: Secret | None = None
    token_env: str | None = None
    phone_number_id: str = ""
    app_secret: Secret | None = None
    app_secret_env: str | None = None
    verify_token: Secret | None = None
    verify_token_env: str | None = None
    base_url: str = "https://graph.facebook.com/v23.0"


def format_text(source: str) -> Sequence[FormattedText]:
    """Return Markdown as the texts of messages, formatted and within the limit."""
    from tertulia.platforms.whatsapp import markup

    return markup.format_text(source)


def build(context: BuildContext) -> Adapter:
    """Return the adapter of one business number."""
    # The abilities of the platform are asked for by every store: only a gateway needs the adapter.
    from tertulia.platforms.whatsapp.adapter import WhatsAppAdapter

    settings: WhatsAppSettings = context.settings
    check_address(context, "base_url")
    if not settings.phone_number_id:
        raise ConfigError(
            f"{context.section} has no phone_number_id.",
            hint="It is on the page WhatsApp, API Setup, of your app at Meta.",
            field=f"{context.section}.phone_number_id",
        )
    return WhatsAppAdapter(
        context.require_secret("token"),
        phone_number_id=settings.phone_number_id,
        app_secret=context.require_secret("app_secret"),
        verify_token=context.require_secret("verify_token"),
        account=context.account,
        base_url=settings.base_url,
    )


PLATFORM = PlatformDefinition(
    "whatsapp",
    "WhatsApp",
    length_limit=4096,
    length_unit="utf16",
    markdown="simple",
    typing=True,
    media=True,
    buttons=3,
    button_text_limit=1024,
    notes=(
        "WhatsApp delivers a message only within 24 hours after the person wrote last.",
        "Do not promise to write later than that.",
    ),
    settings=WhatsAppSettings,
    build=build,
    format=format_text,
    setup=(
        SetupQuestion(key="phone_number_id", question="Phone number ID"),
        SetupQuestion(key="token", question="Access token", is_secret=True),
        SetupQuestion(key="app_secret", question="App secret", is_secret=True),
        SetupQuestion(
            key="verify_token", question="Verify token (any text you choose)", is_secret=True
        ),
    ),
    guide=(
        "Create an app with WhatsApp at https://developers.facebook.com. The phone number ID is"
        " under WhatsApp, API Setup; the app secret under App settings, Basic; the access token is"
        " that of a system user of your business. docs/whatsapp.md shows every step, and Meta's"
        " terms on general-purpose assistants."
    ),
    pairing=(
        "WhatsApp calls the gateway: set enabled = true under [http] in this file, and start it"
        " with: tertulia run. Then set the webhook of the app to"
        " https://YOUR-ADDRESS/platforms/whatsapp with your verify token, and subscribe to"
        " messages. Write to the number. It answers with a code; approve it with:"
        " tertulia pair approve CODE"
    ),
)
