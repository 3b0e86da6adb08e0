"""People: identities, roles, pairing codes, and linked chats of one person.

An unknown user in a direct message gets a pairing code, which the owner approves or refuses. A
person who writes from two chats links them with a code: made in one chat, typed in the other, and
confirmed in the first (`links.py` tells what a link does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, TypeVar

import msgspec

from tertulia.core import keys, pairing_code, validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.message import to_json
from tertulia.core.session import Page
from tertulia.core.settings import require_zone
from tertulia.core.source import LOCAL, Source
from tertulia.core.text.excerpt import short_repr
from tertulia.errors import AccessDenied, ConfigError, IllegalMove, NotFound
from tertulia.records import codes, links, people_events, session_rows
from tertulia.records.links import LinkedChat, PendingLink, shared_key
from tertulia.records.people_events import PeopleEvent
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

_T = TypeVar("_T")

Role = Literal["owner", "member", "guest"]
# From the most permissions to the fewest; `require_role` compares positions.
ROLES: tuple[Role, ...] = ("owner", "member", "guest")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who has written to this store.

    `seen_at` is the last activity in a conversation of their own; None if they have none, as those
    who write only in groups.
    """

    id: str
    platform: str
    account: str
    user_id: str
    user_id_alt: str | None
    name: str | None
    zone: str | None
    role: Role
    created_at: datetime
    seen_at: datetime | None = None


class Pairing(msgspec.Struct, frozen=True):
    """A pending pairing request of an unknown user; `name` is what they call themselves."""

    person: str
    platform: str
    asked_at: datetime
    until: datetime
    name: str | None = None


@checks_arguments
class People:
    """The people of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def person_of(self, source: Source) -> str | None:
        """Return the identity of a source's user, or None if the source names no user.

        `find(person=…)` and `search(person=…)` take such an identity.
        """
        return keys.person_of(source)

    def get(self, person: str) -> Person | None:
        """Return the stored person of an identity or user id, or None."""
        row = self._db.read(
            lambda tx: tx.one("person_get", {"person": resolve_person(tx, person, None)})
        )
        return None if row is None else _to_person(row)

    def get_many(self, persons: Sequence[str]) -> list[Person]:
        """Return the stored people of these identities, in the order of identities."""
        params = {"ids": to_json(list(persons))}
        return [
            _to_person(row) for row in self._db.read(lambda tx: tx.all("people_of_ids", params))
        ]

    def find(self, *, role: Role | None = None, limit: int = 100, after: str = "") -> list[Person]:
        """Return people in the order of their identities, beginning after `after`."""
        validate.integer("limit", limit, 1)
        params = {"role": role, "limit": limit, "after": after}
        return [_to_person(row) for row in self._db.read(lambda tx: tx.all("people_page", params))]

    def set_zone(self, person: str, zone: str | None, *, by: str | None = None) -> None:
        """Set the time zone of a person, which daily resets follow; None for that of the store.

        `by` is who does it, for `events`. Raise `ConfigError` for an unknown zone, `NotFound` for
        an unknown person.
        """
        if zone is not None:
            require_zone(zone)
        self._set_column("zone", person, zone, by)

    def set_role(self, person: str, role: Role, *, by: str | None = None) -> None:
        """Set the role of a person; raise `NotFound` for an unknown person.

        `by` is who does it, for `events`.
        """
        self._set_column("role", person, role, by)

    def events(
        self, *, person: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[PeopleEvent]:
        """Return a page of what was decided about people, newest first, and who decided it.

        With a `person`, an identity or user id, only about them.
        """

        def work(tx: Transaction) -> Page[PeopleEvent]:
            identity = None if person is None else resolve_person(tx, person, None)
            return people_events.read_events(tx, identity, limit, cursor)

        return self._db.read(work)

    def role_of(self, source: Source) -> Role:
        """Return the role of a source's user: owner on the terminal, guest if unknown."""
        if source.platform == LOCAL:
            return "owner"
        identity = keys.person_of(source)
        if identity is None:
            return "guest"
        rows = self._db.query("person_role", {"person": identity})
        return rows[0][0] if rows else "guest"

    def remember(self, source: Source, *, role: Role) -> None:
        """Store a source's user with a role; raise `ConfigError` if the source names no user."""
        identity = keys.person_of(source)
        if identity is None:
            raise ConfigError("This source names no user.", hint="Give it a user_id.")
        now = self._context.clock.now()

        def work(tx: Transaction) -> None:
            session_rows.remember_person(tx, source, identity, now)
            tx.run("person_set_role", {"person": identity, "role": role})

        self._db.write(work)

    def require_role(self, source: Source, role: Role) -> None:
        """Raise `AccessDenied` unless a source's user has that role or a higher one."""
        if ROLES.index(self.role_of(source)) > ROLES.index(role):
            raise AccessDenied(f"This needs the role {role}.", hint="Ask the owner.", role=role)

    # -- pairing

    def request_pairing(self, source: Source) -> str | None:
        """Return a pairing code that an unknown user can show to the owner, or None.

        A code is valid for one hour, and a person gets one every ten minutes; until then, and for a
        day after the owner refused the person, the result is None, without a reason. It is None too
        if the person was let in meanwhile. At most three codes are pending at a time on a platform:
        a fourth replaces the oldest.
        """
        identity = keys.person_of(source)
        if identity is None:
            return None
        now = self._context.clock.now()
        code = pairing_code.new_code()

        def work(tx: Transaction) -> bool:
            session_rows.remember_person(tx, source, identity, now)
            row = tx.one("person_get", {"person": identity})
            if row is not None and _to_person(row).role != "guest":
                return False
            return codes.put_code(tx, code, "pair", source, identity, now)

        return code if self._db.write(work, lane=codes.LANE) else None

    def pending_pairings(self) -> list[Pairing]:
        """Return the pairing requests whose code is still valid."""
        now = to_micros(self._context.clock.now())
        rows = self._db.read(lambda tx: tx.all("codes_list", {"purpose": "pair"}))
        return [
            Pairing(subject, platform, from_micros(made_at), from_micros(until), name)
            for subject, platform, made_at, until, name in rows
            if until > now
        ]

    def approve(self, code: str, *, role: Role = "member", by: str = "owner") -> Person:
        """Give the person with this code a role, and return the person.

        A person who has a higher role by now keeps it. Raise `NotFound` for a wrong code; five
        wrong codes lock `by` out for an hour (`AccessDenied`).
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> Row | None:
            pairing = codes.find_code(tx, code, "pair", by, now)
            if pairing is None:
                return None
            return _let_in(tx, pairing.subject, role, now, by=by)

        row = self._db.write(work, lane=codes.LANE)
        if row is None:
            raise codes.unknown_code()
        return _to_person(row)

    def approve_person(
        self, person: str, *, role: Role = "member", by: str | None = None
    ) -> Person:
        """Give a person who asks to be let in a role, without their code, and return the person.

        The code proves who shows it; an identity proves nothing, for names are chosen freely. Call
        this only for somebody who sees the identity that the platform gives. Raise `NotFound` if
        that person does not ask.
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> Row | None:
            subject = resolve_person(tx, person, None)
            pending = {"subject": subject, "now": to_micros(now)}
            if tx.one("code_is_pending", pending) is None:
                return None
            return _let_in(tx, subject, role, now, by=by)

        row = self._db.write(work, lane=codes.LANE)
        if row is None:
            raise _does_not_ask(person)
        return _to_person(row)

    def refuse(self, person: str, *, by: str | None = None) -> None:
        """Refuse a person who asks to be let in: their code ends, and for a day they get no other.

        Raise `NotFound` if that person does not ask.
        """
        now = self._context.clock.now()

        def work(tx: Transaction) -> int:
            tx.run("codes_expire", {"now": to_micros(now)})
            subject = resolve_person(tx, person, None)
            until = to_micros(now + pairing_code.REFUSAL)
            changed = tx.changed("codes_refuse", {"subject": subject, "until": until})
            if changed:
                people_events.record_event(tx, subject, now, "refused", {}, by=by)
            return changed

        if self._db.write(work, lane=codes.LANE) == 0:
            raise _does_not_ask(person)

    # -- linking

    def offer_link(self, source: Source) -> str:
        """Return a code that links this direct message with the chat where it is typed.

        Typing it proves that both chats belong to the same person. Raise `IllegalMove` in a group,
        or if a code was made less than ten minutes ago.
        """
        key = self._dm_key(source)
        now = self._context.clock.now()
        code = pairing_code.new_code()

        def work(tx: Transaction) -> bool:
            return codes.put_code(tx, code, "link", source, key, now)

        if not self._db.write(work, lane=codes.LANE):
            raise IllegalMove(
                "A code was made less than ten minutes ago.", hint="Wait ten minutes."
            )
        return code

    def accept_link(self, source: Source, code: str) -> str:
        """Link this direct message with the conversation the code was made in; return its key.

        The link is active at once: call this only if the person has shown that both chats are
        theirs. `request_link` asks the chat where the code was made to confirm first. Raise
        `NotFound` for a wrong code, `AccessDenied` after five, `IllegalMove` in a group, in the
        chat where the code was made, or if the chats are linked already.
        """

        def accept(tx: Transaction, offer: codes.Code, chat: LinkedChat, now: datetime) -> str:
            tx.run("code_delete", {"hash": offer.hash})
            return links.add_link(tx, chat, offer.chat, now)

        return self._with_offer(source, code, accept)

    def request_link(self, source: Source, code: str) -> LinkedChat:
        """Ask the chat where the code was made to share its conversation; return that chat.

        The link becomes active with `confirm_link` there, within an hour. Raises like
        `accept_link`; a code can be typed once.
        """
        joining = to_json(source.to_dict())

        def claim(
            tx: Transaction, offer: codes.Code, chat: LinkedChat, now: datetime
        ) -> LinkedChat:
            until = to_micros(now + pairing_code.LIFETIME)
            tx.run("codes_delete_claimed", {"key": chat.key})
            claimed = {"hash": offer.hash, "key": chat.key, "source": joining, "until": until}
            tx.run("code_set_claimed", claimed)
            return offer.chat

        return self._with_offer(source, code, claim)

    def confirm_link(self, source: Source) -> LinkedChat:
        """Confirm the request to share the conversation of this chat; return the chat that asked.

        Raise `NotFound` if no chat asks, `IllegalMove` as `accept_link` does.
        """
        now = self._context.clock.now()
        params = {"key": self._dm_key(source), "now": to_micros(now)}

        def work(tx: Transaction) -> LinkedChat | None:
            row = tx.one("code_claimed_of_subject", params)
            if row is None:
                return None
            code, claimed_key, claimed_by, subject, offered_by = row
            tx.run("code_delete", {"hash": code})
            chat = links.to_chat(claimed_key, claimed_by)
            links.add_link(tx, chat, links.to_chat(subject, offered_by), now)
            return chat

        chat = self._db.write(work, lane=codes.LANE)
        if chat is None:
            raise NotFound(
                "No chat asks to share this conversation.",
                hint="Make a code here, and type it in the other chat.",
            )
        return chat

    def unlink(self, source: Source) -> bool:
        """End the links of this direct message, from either side; return whether it was linked.

        A chat that joined another conversation leaves it; the chat whose conversation it is parts
        from all that joined. The session that was shared ends, and each side begins its own.
        Requests that wait to be confirmed are dropped.
        """
        key = self._dm_key(source)
        now = self._context.clock.now()

        def work(tx: Transaction) -> bool:
            tx.run("codes_delete_of_subject", {"subject": key, "purpose": "link"})
            tx.run("codes_delete_claimed", {"key": key})
            return links.remove_links(tx, key, now)

        return self._db.write(work, lane=codes.LANE)

    def linked(self, source: Source) -> list[str]:
        """Return the keys that share the conversation of this direct message, its own included."""
        key = self._dm_key(source)

        def work(tx: Transaction) -> list[str]:
            shared = shared_key(tx, key)
            others = [row[0] for row in tx.all("links_of", {"shared_key": shared})]
            return sorted({shared, key, *others})

        return self._db.read(work)

    def linked_chats(self, source: Source) -> list[LinkedChat]:
        """Return the other chats that share the conversation of a source; none in a group."""
        if source.chat_type != "dm":
            return []
        key = self._dm_key(source)
        return links.linked_chats(self._db.query("links_with", {"key": key}), key)

    def role_and_links(self, source: Source) -> tuple[Role, list[LinkedChat]]:
        """Return what `role_of` and `linked_chats` return, for a direct message with one query."""
        identity = keys.person_of(source)
        if source.platform == LOCAL or source.chat_type != "dm" or identity is None:
            return self.role_of(source), self.linked_chats(source)
        key = self._dm_key(source)
        rows = self._db.query("person_role_and_links", {"person": identity, "key": key})
        linked = [row[1:] for row in rows if row[1] is not None]
        return rows[0][0] or "guest", links.linked_chats(linked, key)

    def pending_links(self, source: Source) -> list[PendingLink]:
        """Return the requests to link this direct message that wait for a confirmation."""
        params = {
            "key": self._dm_key(source),
            "now": to_micros(self._context.clock.now()),
        }

        def work(tx: Transaction) -> list[PendingLink]:
            to_others = tx.all("codes_claimed_by", params)
            links_here = [
                PendingLink(chat=links.to_chat(*row), can_confirm=False) for row in to_others
            ]
            to_this_chat = tx.one("code_claimed_of_subject", params)
            if to_this_chat is not None:
                _, claimed_key, claimed_by, *_ = to_this_chat
                chat = links.to_chat(claimed_key, claimed_by)
                links_here.insert(0, PendingLink(chat=chat, can_confirm=True))
            return links_here

        return self._db.read(work)

    # -- internals

    def _dm_key(self, source: Source) -> str:
        """Return the key of a direct message; raise `IllegalMove` for another chat."""
        if source.chat_type != "dm":
            raise IllegalMove(
                "Only direct messages can be linked.", hint="A group belongs to all its members."
            )
        return keys.session_key(source, agent=self._context.settings.agent)

    def _set_column(
        self, name: Literal["role", "zone"], person: str, value: str | None, by: str | None
    ) -> None:
        """Change a column of a person, and record who did it."""
        now = self._context.clock.now()

        def work(tx: Transaction) -> bool:
            identity = resolve_person(tx, person, None)
            row = tx.one("person_get", {"person": identity})
            if row is None:
                return False
            tx.run(f"person_set_{name}", {"person": identity, name: value})
            detail = {name: value, "before": getattr(_to_person(row), name)}
            people_events.record_event(tx, identity, now, name, detail, by=by)
            return True

        if not self._db.write(work):
            raise _unknown_person(person)

    def _with_offer(
        self,
        source: Source,
        code: str,
        use: Callable[[Transaction, codes.Code, LinkedChat, datetime], _T],
    ) -> _T:
        """Find the offer of a link code and use it, in one transaction; return what `use` returns.

        An error of `use` keeps the code valid.
        """
        chat = LinkedChat(key=self._dm_key(source), source=source)
        redeemer = keys.person_of(source) or chat.key
        now = self._context.clock.now()

        def work(tx: Transaction) -> _T | None:
            offer = codes.find_code(tx, code, "link", redeemer, now)
            if offer is None or offer.claimed_key is not None:
                return None
            if offer.subject == chat.key:
                raise IllegalMove(
                    "The code was made in this very chat.", hint="Type it in the other chat."
                )
            return use(tx, offer, chat, now)

        result = self._db.write(work, lane=codes.LANE)
        if result is None:
            raise codes.unknown_code()
        return result


def _let_in(tx: Transaction, person: str, role: Role, now: datetime, *, by: str | None) -> Row:
    """Use up the codes of a person and give the role, unless they have a higher one by now.

    Return the row of the person.
    """
    tx.run("codes_delete_of_subject", {"subject": person, "purpose": "pair"})
    row = tx.one("person_get", {"person": person})
    assert row is not None
    before = _to_person(row).role
    higher = min(role, before, key=ROLES.index)
    tx.run("person_set_role", {"person": person, "role": higher})
    detail = {"role": higher, "before": before}
    people_events.record_event(tx, person, now, "approved", detail, by=by)
    changed = tx.one("person_get", {"person": person})
    assert changed is not None
    return changed


def _unknown_person(person: str) -> NotFound:
    return NotFound(
        f"There is no person {short_repr(person)}: nobody with that identity has written here yet.",
        hint="Give an identity, such as telegram:42. To list them: tertulia people list",
    )


def _does_not_ask(person: str) -> NotFound:
    return NotFound(
        f"{short_repr(person)} does not ask to be let in.",
        hint="Give an identity, such as telegram:42. List them with /pair, or: tertulia pair list",
    )


def resolve_person(tx: Transaction, person: str, platform: str | None) -> str:
    """Return the identity of a person given as an identity, or as a user id.

    Users of two platforms can have the same user id. Then a bare id raises `ConfigError`, because
    it could show one person the conversations of another (decision 0005).
    """
    if ":" in person or tx.one("person_get", {"person": person}) is not None:
        return person  # not a bare id: within an identity, each colon of an id is escaped
    rows = tx.all("people_by_user_id", {"user_id": person})
    if platform is not None:
        rows = [row for row in rows if row[1] == platform]
    identities = sorted({row[0] for row in rows})
    if len(identities) > 1:
        raise ConfigError(
            f"{short_repr(person)} is the id of {len(identities)} people.",
            hint=f"Give one of the identities: {', '.join(identities[:5])}.",
            field="person",
        )
    return identities[0] if identities else person


def _to_person(row: Row) -> Person:
    person, platform, account, user_id, user_id_alt, name, zone, role, created_at, seen_at = row
    return Person(
        id=person,
        platform=platform,
        account=account,
        user_id=user_id,
        user_id_alt=user_id_alt,
        name=name,
        zone=zone,
        role=role,
        created_at=from_micros(created_at),
        seen_at=None if seen_at is None else from_micros(seen_at),
    )
