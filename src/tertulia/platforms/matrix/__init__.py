"""The platform `matrix`: an account on any homeserver, over its client-server API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from tertulia.core.secret import Secret
from tertulia.core.text.spans import FormattedText
from tertulia.platforms.base import Adapter
from tertulia.platforms.definition import BuildContext, PlatformDefinition, SetupQuestion
from tertulia.platforms.settings import PlatformSettings

Join = Literal["invited", "allowed", "never"]
"""The invitations that are accepted: all, those of people in allow and owners, or none."""

_LENGTH_LIMIT: Final = 16_000


class MatrixSettings(PlatformSettings, frozen=True, kw_only=True):
    """An account on a Matrix homeserver.

    base_url    the address of the homeserver, such as https://matrix.example.org
    token       the access token of the account; better kept out of the file
    token_env   the environment variable that contains it
    user_id     the id of the account, such as @agent:example.org; checked if it is set, and
                needed if the homeserver does not say whose token it is
    join        which invitations are accepted: all (invited), those of people in allow and owners
                (allowed), or none (never)
    """

    base_url: str
    token: Secret | None = None
    token_env: str | None = None
    user_id: str | None = None
    join: Join = "invited"


def format_text(source: str) -> Sequence[FormattedText]:
    """Return the agent's Markdown as messages that fit into an event each."""
    from tertulia.platforms.matrix import event_content

    return event_content.format_text(source)


def build(context: BuildContext) -> Adapter:
    """Return the adapter of the account."""
    # The abilities of the platform are asked for by every store: only a gateway needs the adapter.
    from tertulia.platforms.matrix.adapter import MatrixAdapter

    token = context.require_secret("token")
    return MatrixAdapter(context.settings, token, account=context.account)


PLATFORM = PlatformDefinition(
    "matrix",
    "Matrix",
    # Twice as much as JSON at worst, which still fits; formatted texts are measured as they are.
    length_limit=_LENGTH_LIMIT,
    length_unit="bytes",
    markdown="html",
    threads=True,
    edits=True,
    typing=True,
    media=True,
    settings=MatrixSettings,
    build=build,
    format=format_text,
    setup=(
        SetupQuestion(
            key="base_url", question="Address of the homeserver", default="https://matrix.org"
        ),
        SetupQuestion(key="token", question="Access token", is_secret=True),
    ),
    guide=(
        "Matrix needs an account of its own for the agent, and the access token of that account."
        " Create the account in any Matrix client. Its access token is shown in Element under"
        " Settings, Help & About, Advanced; docs/matrix.md shows how to get one with a command."
    ),
    pairing=(
        "Start the gateway with: tertulia run. Then invite the agent to a room without encryption,"
        " or send it a direct message, and write. It answers with a pairing code; approve it with:"
        " tertulia pair approve CODE"
    ),
)
