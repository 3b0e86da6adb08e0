"""Access control: decide who may write. An unknown person gets a pairing code and nothing else."""

from __future__ import annotations

from typing import Literal

from tertulia.core.source import LOCAL, Source
from tertulia.platforms.base import Incoming
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.people import Role

Verdict = Literal["welcome", "stranger", "ignored"]


def decide(incoming: Incoming, role: Role, settings: PlatformSettings) -> Verdict:
    """Return whether a message is answered, by the role of its author. Unknown people are denied.

    A stranger is told how to be let in only in a private chat: in a group the text would disturb
    the others and show them the code.
    """
    source = incoming.source
    if source.platform == LOCAL:
        return "welcome"
    is_private = source.chat_type == "dm"
    if not is_private and not _is_for_agent(incoming, settings):
        return "ignored"
    if role != "guest" or settings.admission == "everyone":
        return "welcome"
    return "stranger" if is_private and settings.admission == "paired" else "ignored"


def role_of(source: Source, stored: Role, settings: PlatformSettings) -> Role:
    """Return the role of the person who wrote: from the configuration, else from the store.

    It is decided anew for each message, so that a person who is removed from the configuration
    has only the role that is stored.
    """
    ids = {source.user_id, source.user_id_alt} - {None}
    if ids & {*settings.owners}:
        return "owner"
    if stored == "guest" and ids & {*settings.allow}:
        return "member"
    return stored


def _is_for_agent(incoming: Incoming, settings: PlatformSettings) -> bool:
    if settings.groups == "never":
        return False
    return settings.groups == "always" or incoming.is_addressed
