"""The platform `signal`: an account of Signal, through the daemon of signal-cli."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.core.text.spans import FormattedText
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter
from tertulia.platforms.definition import BuildContext, PlatformDefinition, SetupQuestion
from tertulia.platforms.settings import PlatformSettings


class SignalSettings(PlatformSettings, frozen=True, kw_only=True):
    """An account on Signal.

    account    the phone number of the account, as signal-cli knows it
    base_url   the address of the daemon of signal-cli
    """

    account: str | None = None
    base_url: str = "http://127.0.0.1:8080"


def format_text(source: str) -> Sequence[FormattedText]:
    """Return Markdown as the texts of messages, formatted and within the limit."""
    from tertulia.platforms.signal import text_styles

    return text_styles.format_text(source)


def build(context: BuildContext) -> Adapter:
    """Return the adapter of one account."""
    # The abilities of the platform are asked for by every store: only a gateway needs the adapter.
    from tertulia.platforms.signal.adapter import SignalAdapter

    settings: SignalSettings = context.settings
    if not settings.account:
        raise ConfigError(
            f"{context.section} has no account.",
            hint='Name the phone number that signal-cli has: account = "+15550100"',
            field=f"{context.section}.account",
        )
    if not settings.base_url.startswith(("https://", "http://")):
        raise ConfigError(
            f"{context.section}.base_url is not the address of a daemon.",
            hint='Set for example: base_url = "http://127.0.0.1:8080"',
            field=f"{context.section}.base_url",
        )
    return SignalAdapter(settings.account, account=context.account, base_url=settings.base_url)


PLATFORM = PlatformDefinition(
    "signal",
    "Signal",
    # Receiving apps truncate or drop longer bodies without telling the sender.
    length_limit=2000,
    length_unit="bytes",
    edits=True,
    typing=True,
    media=True,
    settings=SignalSettings,
    build=build,
    format=format_text,
    setup=(
        SetupQuestion(key="account", question="The phone number of the account (+15550100)"),
        SetupQuestion(
            key="base_url",
            question="The address of the daemon",
            default="http://127.0.0.1:8080",
        ),
    ),
    guide=(
        "Register or link a number with signal-cli, and run its daemon: signal-cli daemon"
        " --http=127.0.0.1:8080 --receive-mode=on-connection"
    ),
    pairing=(
        "Start it with: tertulia run. Then write to the number in Signal. It answers with a code;"
        " approve it with: tertulia pair approve CODE"
    ),
)
