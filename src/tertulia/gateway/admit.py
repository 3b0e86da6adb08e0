"""Who is answered. The rule decides without doing; strangers are told a code and nothing else."""

from __future__ import annotations

from typing import Literal

from tertulia.core.source import LOCAL
from tertulia.gateway.rules import PlatformRules
from tertulia.platforms.base import Incoming
from tertulia.records.people import Role

Verdict = Literal["welcome", "stranger", "ignored"]


def decide(incoming: Incoming, role: Role, rules: PlatformRules) -> Verdict:
    """Whether a message is answered. Whoever is not known is denied.

    A stranger is told how to be let in, in private only: in a group that would be noise, and would
    show the code to everybody.
    """
    source = incoming.source
    if source.platform == LOCAL:
        return "welcome"
    is_private = source.chat_type == "dm"
    if not is_private and not _is_for_us(incoming, rules):
        return "ignored"
    if role != "guest" or _is_listed(incoming, rules.allow + rules.owners):
        return "welcome"
    if rules.admission == "everyone":
        return "welcome"
    return "stranger" if is_private and rules.admission == "paired" else "ignored"


def is_owner(incoming: Incoming, rules: PlatformRules) -> bool:
    """Whether the configuration names who wrote as an owner."""
    return _is_listed(incoming, rules.owners)


def _is_for_us(incoming: Incoming, rules: PlatformRules) -> bool:
    if rules.groups == "never":
        return False
    return rules.groups == "always" or incoming.is_addressed


def _is_listed(incoming: Incoming, names: tuple[str, ...]) -> bool:
    source = incoming.source
    return bool({source.user_id, source.user_id_alt} & {*names} - {None})
