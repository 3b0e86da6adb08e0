"""The platform `slack`: a Slack app in a workspace, by Socket Mode or by the Events API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

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


class SlackSettings(PlatformSettings, frozen=True, kw_only=True):
    """A Slack app in one workspace.

    bot_token            the token of the bot in this workspace, xoxb-…; better kept out of the file
    bot_token_env        the environment variable that contains it
    app_token            Socket Mode: the app-level token, xapp-…, with connections:write
    app_token_env        the environment variable that contains it
    signing_secret       Events API instead: the secret with which Slack signs its requests
    signing_secret_env   the environment variable that contains it
    connections          Socket Mode: the connections of this gateway. Slack allows ten for an app,
                         and sends each event to one of them
    base_url             the address of the Web API
    """

    bot_token: Secret | None = None
    bot_token_env: str | None = None
    app_token: Secret | None = None
    app_token_env: str | None = None
    signing_secret: Secret | None = None
    signing_secret_env: str | None = None
    connections: Annotated[int, Meta(ge=1, le=10)] = 2
    base_url: str = "https://slack.com/api"


def format_text(source: str) -> Sequence[FormattedText]:
    """Return Markdown as the texts of messages, formatted and within the limit."""
    from tertulia.platforms.slack import mrkdwn

    return mrkdwn.format_text(source)


def build(context: BuildContext) -> Adapter:
    """Return the adapter of one workspace."""
    # The abilities of the platform are asked for by every store: only a gateway needs the adapter.
    from tertulia.platforms.slack.adapter import SlackAdapter

    settings: SlackSettings = context.settings
    check_address(context, "base_url")
    app_token, signing_secret = (
        context.get_secret("app_token"),
        context.get_secret("signing_secret"),
    )
    if not app_token and not signing_secret:
        raise ConfigError(
            f"{context.section} has neither app_token nor signing_secret.",
            hint='Socket Mode needs no address of your own: app_token_env = "SLACK_APP_TOKEN"',
            field=context.section,
        )
    bot_token = context.require_secret("bot_token")
    for key, token, wrong in (("bot_token", bot_token, "xapp-"), ("app_token", app_token, "xoxb-")):
        if token and token.startswith(wrong):
            raise ConfigError(
                f"{context.section}.{key} is the other token: it begins with {wrong}.",
                hint="bot_token begins with xoxb-, app_token with xapp-.",
                field=f"{context.section}.{key}",
            )
    return SlackAdapter(
        bot_token,
        account=context.account,
        app_token=app_token,
        signing_secret=signing_secret,
        connections=settings.connections,
        base_url=settings.base_url,
    )


PLATFORM = PlatformDefinition(
    "slack",
    "Slack",
    # Of a plain text; formatted ones may be longer (`mrkdwn.MAX_MARKDOWN`).
    length_limit=4_000,
    markdown="markdown",
    threads=True,
    edits=True,
    media=True,
    buttons=5,
    mentions_need_raw_ids=True,
    notes=(
        "You have no access to Slack's own APIs.",
        "You cannot search channel history or pin messages.",
        "You cannot manage channels or members.",
        "Promise nothing of the kind; say so if you are asked for it.",
    ),
    settings=SlackSettings,
    build=build,
    format=format_text,
    setup=(
        SetupQuestion(key="bot_token", question="Bot token (xoxb-…)", is_secret=True),
        SetupQuestion(key="app_token", question="App-level token (xapp-…)", is_secret=True),
    ),
    guide=(
        "Create an app at https://api.slack.com/apps from the manifest in docs/slack.md, and"
        " install it in your workspace. The bot token is under OAuth & Permissions,"
        " the app-level token (with connections:write) under Basic Information."
    ),
    pairing=(
        "Start the gateway with: tertulia run. Then write to the app in Slack. It answers with a"
        " code; approve it with: tertulia pair approve CODE"
    ),
)
