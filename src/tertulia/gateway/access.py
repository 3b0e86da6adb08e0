"""Access control: decide who may write. An unknown person gets a pairing code and nothing else.

The role of a person is checked at every use: for each message, each command, the tools of each
turn, and each run of a schedule. On platforms whose users have tokens, the role comes from the
configuration, so that a token that is removed or changed there loses its old role everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from tertulia.core.source import LOCAL, Source
from tertulia.platforms.base import Incoming
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.people import ROLES, Role

# The platforms on which the holder of a token writes; the account of a source is the token's name.
TOKEN_PLATFORMS: Final = ("api", "web")
# Programs that wait for their answers: nothing can be sent to them afterwards.
CALLERS: Final = "api"

Verdict = Literal["welcome", "stranger", "ignored"]


def decide(incoming: Incoming, role: Role, settings: PlatformSettings) -> Verdict:
    """Return whether a message is answered, by the role of its author. Unknown people are denied.

    A stranger is told how to be let in only in a private chat: in a group the text would disturb
    the others and show them the code.
    """
    source = incoming.source
    if source.platform == LOCAL:
        return "welcome"
    if incoming.is_bot and not _is_listed(source, settings):
        return "ignored"  # two programs would answer each other for ever
    is_private = source.chat_type == "dm"
    if not is_private and not _is_for_agent(incoming, settings):
        return "ignored"
    if role != "guest" or settings.admission == "everyone":
        return "welcome"
    return "stranger" if is_private and settings.admission == "paired" else "ignored"


def role_of(
    source: Source, stored: Role, settings: PlatformSettings, tokens: Mapping[str, Role]
) -> Role:
    """Return the role of the person who wrote: from the configuration, else from the store.

    `tokens` are the roles of the configured tokens. Who has none is a guest, whatever is stored. A
    guest on `web` whom the owner approved is a member.
    """
    if source.platform in TOKEN_PLATFORMS:
        role = tokens.get(source.account, "guest")
        is_approved = source.platform == "web" and stored != "guest" and has_token(source, tokens)
        return "member" if role == "guest" and is_approved else role
    ids = _ids(source)
    if ids & {*settings.owners}:
        return "owner"
    if stored == "guest" and ids & {*settings.allow}:
        return "member"
    return stored


def has_token(source: Source, tokens: Mapping[str, Role]) -> bool:
    """Return whether the person has a configured token, or writes where none is needed.

    The account of a visitor is the name of the token that they share, and their own after a slash.
    """
    return source.platform not in TOKEN_PLATFORMS or source.account.partition("/")[0] in tokens


def lowest(roles: Iterable[Role]) -> Role:
    """Return the role with the fewest permissions."""
    return max(roles, key=ROLES.index)


def _is_listed(source: Source, settings: PlatformSettings) -> bool:
    """Return whether the configuration lets this author in by id."""
    return bool(_ids(source) & {*settings.allow, *settings.owners})


def _ids(source: Source) -> set[str | None]:
    return {source.user_id, source.user_id_alt} - {None}


def _is_for_agent(incoming: Incoming, settings: PlatformSettings) -> bool:
    if settings.groups == "never":
        return False
    return settings.groups == "always" or incoming.is_addressed
