"""Who is answered. The rule decides without doing; strangers are told a code and nothing else."""

from __future__ import annotations

from typing import Literal

from tertulia.core.source import LOCAL, Source
from tertulia.gateway.settings import PlatformSettings
from tertulia.platforms.base import Incoming
from tertulia.records.people import Role

Verdict = Literal["welcome", "stranger", "ignored"]


def decide(incoming: Incoming, role: Role, rules: PlatformSettings) -> Verdict:
    """Whether a message is answered, by the role of who wrote it. Whoever is not known is denied.

    A stranger is told how to be let in, in private only: in a group that would be noise, and would
    show the code to everybody.
    """
    source = incoming.source
    if source.platform == LOCAL:
        return "welcome"
    is_private = source.chat_type == "dm"
    if not is_private and not _is_for_us(incoming, rules):
        return "ignored"
    if role != "guest" or rules.admission == "everyone":
        return "welcome"
    return "stranger" if is_private and rules.admission == "paired" else "ignored"


def role_of(source: Source, stored: Role, rules: PlatformSettings) -> Role:
    """What whoever wrote may do: as the configuration names them, else as the store knows them.

    It is asked anew for each message, so that whoever is taken out of the configuration has no
    more than the store gives.
    """
    ids = {source.user_id, source.user_id_alt} - {None}
    if ids & {*rules.owners}:
        return "owner"
    if stored == "guest" and ids & {*rules.allow}:
        return "member"
    return stored


def _is_for_us(incoming: Incoming, rules: PlatformSettings) -> bool:
    if rules.groups == "never":
        return False
    return rules.groups == "always" or incoming.is_addressed
