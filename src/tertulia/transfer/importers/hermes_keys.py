"""The keys of imported Hermes sessions.

Hermes writes ids into its keys as they are, so one of its keys can mean two conversations here:
`…:group:-100:4` is topic 4 of a group there, and the member 4 of the group here. Therefore a key
of Hermes is never stored as it is. It is compared with the origin of its session, which says what
its parts mean, and the session gets the key that the next message from that origin has:

    the key of Hermes names                 key here
    the person, or the DM                   the key of that person or DM, for them alone
    a group or thread that people share     the key of the origin under the store's settings
    all direct messages of a platform       the key of Hermes: no message has it, for each person
                                            would read what others had said in private
    something that does not fit the origin  a marked key of its own, which no message has

A direct message may also have a second key, linked to the first: WhatsApp's long form of a phone
number, or the key of the store's agent where Hermes had used another profile.

Two conversations of Hermes never get one key: a key that another one has is not used again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from tertulia.core import keys
from tertulia.core.settings import Settings
from tertulia.core.source import LOCAL, Source
from tertulia.transfer.importers import model

Scope = Literal["personal", "shared", "unclear"]
_SCOPES: tuple[Scope, ...] = ("personal", "shared", "unclear")

_PREFIX_PARTS = 4  # agent, its name, platform, chat type
# WhatsApp's address of a phone number, for a device perhaps. The address of a hidden number (@lid)
# is not one: its digits could be those of another person's phone.
_PHONE_ADDRESS = re.compile(r"(\d+)(?::\d+)?@(?:s\.whatsapp\.net|c\.us)")
_ADDRESS = re.compile(r"([^:@]+)(?::\d+)?@.+")


class ImportedKey(NamedTuple):
    """The key that a conversation of Hermes gets."""

    key: str
    person: str | None  # the only person of the conversation, if it has one
    derived_key: str | None  # the key of the person's next message, if it differs
    is_own: bool  # a marked key, because the key of Hermes does not fit the origin


def agent_of(key: str | None) -> str:
    """Return the agent that a key of Hermes names, or `main`."""
    parts = (key or "").split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" and parts[1] else "main"


def fits(key: str, source: Source) -> bool:
    """Return whether a key of Hermes is one that the source can have."""
    return _scope(key, source) != "unclear"


def imported_keys(
    origins: Mapping[str, Source], current: Iterable[str], settings: Settings
) -> dict[str, ImportedKey]:
    """Return the key here for each key of Hermes, by the origin of its sessions.

    Of two keys of Hermes that mean one conversation here, that of a current session comes first,
    then the one that names a person.
    """
    is_current = set(current)

    def rank(foreign: str) -> tuple[bool, int, bool, str]:
        source = origins[foreign]
        best, *_ = _candidates(foreign, source, settings)
        scope = _SCOPES.index(_scope(foreign, source))
        return foreign not in is_current, scope, best != foreign, foreign

    order = sorted(origins, key=rank)
    used: set[str] = set()
    result = {}
    for foreign in order:
        source = origins[foreign]
        key = next(key for key in _candidates(foreign, source, settings) if key not in used)
        used.add(key)
        is_personal = _scope(foreign, source) == "personal"
        is_own = key == _own_key(foreign, source)
        person = keys.person_of(source) if is_personal and not is_own else None
        result[foreign] = ImportedKey(key, person, None, is_own)
    for foreign in order:
        if origins[foreign].chat_type == "dm" and _scope(foreign, origins[foreign]) != "shared":
            derived = _settings_key(origins[foreign], settings, settings.agent)
            if derived not in used:
                used.add(derived)
                result[foreign] = result[foreign]._replace(derived_key=derived)
    return result


def _candidates(foreign: str, source: Source, settings: Settings) -> Iterable[str]:
    """Yield the keys that a conversation may get, best first; the last one is never in use."""
    agent = agent_of(foreign)
    scope = _scope(foreign, source)
    if scope == "personal" and source.chat_type == "dm":
        yield keys.session_key(_with_phone_number(foreign, source), agent=agent)
    elif scope == "personal":
        yield keys.session_key(source, agent=agent)
    elif scope == "shared" and source.chat_type == "dm":
        yield keys.session_key(replace(source, chat_id="", thread_id=None), agent=agent)
    elif scope == "shared":
        yield _settings_key(source, settings, agent)
        yield model.key_of(source, agent)
    yield _own_key(foreign, source)


def _scope(foreign: str, source: Source) -> Scope:
    """Return for whom a key of Hermes stands, by the origin of its session."""
    agent, _, platform, chat_type, *rest = [*foreign.split(":", _PREFIX_PARTS), "", "", ""][:5]
    if (agent, platform, chat_type) != ("agent", source.platform, source.chat_type):
        return "unclear"
    return _dm_scope(rest[0], source) if chat_type == "dm" else _group_scope(rest[0], source)


def _dm_scope(rest: str, source: Source) -> Scope:
    chats = _spellings(source.chat_id)
    if source.thread_id:
        chats = [text for chat in chats for text in (chat, f"{chat}:{source.thread_id}")]
        chats += [] if source.chat_id else [source.thread_id]
    if rest in chats or (not rest and source.platform == LOCAL):
        return "personal"
    return "unclear" if rest else "shared"


def _group_scope(rest: str, source: Source) -> Scope:
    chats = [*_spellings(source.chat_id), *_spellings(source.chat_id_alt or "")]
    chats += [f"{chat}:{source.thread_id}" for chat in chats if source.thread_id]
    if rest in chats:
        return "shared"
    people = [*_spellings(source.user_id or ""), *_spellings(source.user_id_alt or "")]
    is_named = rest in [f"{chat}:{person}" for chat in chats for person in people if person]
    return "personal" if is_named else "unclear"


def _with_phone_number(foreign: str, source: Source) -> Source:
    """Return the source under the bare number if Hermes used it instead of WhatsApp's address."""
    match = _PHONE_ADDRESS.fullmatch(source.chat_id)
    rest = foreign.split(":", _PREFIX_PARTS)[-1]
    if match and rest.partition(":")[0] == match[1]:
        return replace(source, chat_id=match[1])
    return source


def _spellings(chat: str) -> list[str]:
    """Return the forms in which Hermes writes an id: as it is, or without its server."""
    match = _ADDRESS.fullmatch(chat)
    return [chat] if match is None else [chat, match[1]]


def _settings_key(source: Source, settings: Settings, agent: str) -> str:
    return keys.session_key(
        source,
        agent=agent,
        per_user=settings.group_sessions_per_user,
        threads_shared=settings.thread_sessions_shared,
    )


def _own_key(foreign: str, source: Source) -> str:
    return model.key_of(model.unknown_source(source.platform, foreign), agent_of(foreign))
