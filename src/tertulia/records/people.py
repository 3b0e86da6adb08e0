"""People: identities, roles, pairing codes, and linked chats of one person.

An unknown user in a direct message gets a pairing code, which the owner approves. A person who
writes from two chats links them with a code: made in one chat, typed in the other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from tertulia.core import keys, pairing_code, validate
from tertulia.core.settings import require_zone as zone_named
from tertulia.core.source import Source
from tertulia.core.text.storable import storable
from tertulia.errors import AccessDenied, ConfigError, IllegalMove, NotFound
from tertulia.records import session_rows
from tertulia.records.store_context import StoreContext
from tertulia.storage import installation
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

Role = Literal["owner", "member", "guest"]
# From the most permissions to the fewest; `require_role` compares positions.
ROLES: tuple[Role, ...] = ("owner", "member", "guest")


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who has written to this store."""

    id: str
    platform: str
    account: str
    user_id: str
    user_id_alt: str | None
    name: str | None
    zone: str | None
    role: Role
    created_at: datetime


class Pairing(msgspec.Struct, frozen=True):
    """A pending pairing request of an unknown user."""

    person: str
    platform: str
    asked_at: datetime
    until: datetime


class People:
    """The people of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def person_of(self, source: Source) -> str | None:
        """Return the identity of a source's user, or None if the source names no user.

        `find(person=…)` and `search(person=…)` take such an identity.
        """
        validate.source(source)
        return keys.person_of(source)

    def get(self, person: str) -> Person | None:
        """Return the stored person of an identity or user id, or None."""
        row = self._db.read(
            lambda tx: tx.one("person_get", {"person": resolve_person(tx, person, None)})
        )
        return None if row is None else _to_person(row)

    def find(self, *, role: Role | None = None, limit: int = 100, after: str = "") -> list[Person]:
        """Return people in the order of their identities, beginning after `after`."""
        if role is not None:
            _check_role(role)
        params = {"role": role, "limit": limit, "after": after}
        return [_to_person(row) for row in self._db.read(lambda tx: tx.all("people_page", params))]

    def set_zone(self, person: str, zone: str | None) -> None:
        """Set the time zone of a person, which daily resets follow.

        Raise `ConfigError` for an unknown zone, `NotFound` for an unknown person.
        """
        if zone is not None:
            zone_named(zone)
        self._set("person_set_zone", person, "zone", zone)

    def set_role(self, person: str, role: Role) -> None:
        """Set the role of a person; raise `NotFound` for an unknown person."""
        _check_role(role)
        self._set("person_set_role", person, "role", role)

    def role_of(self, source: Source) -> Role:
        """Return the role of a source's user: owner on the terminal, guest if unknown."""
        if source.platform == "local":
            return "owner"
        identity = keys.person_of(source)
        if identity is None:
            return "guest"
        row = self._db.read(lambda tx: tx.one("person_get", {"person": identity}))
        return "guest" if row is None else _to_person(row).role

    def remember(self, source: Source, *, role: Role) -> None:
        """Store a source's user with a role; raise `ConfigError` if the source names no user."""
        _check_role(role)
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
        _check_role(role)
        if ROLES.index(self.role_of(source)) > ROLES.index(role):
            raise AccessDenied(f"This needs the role {role}.", hint="Ask the owner.", role=role)

    # -- pairing

    def request_pairing(self, source: Source) -> str | None:
        """Return a pairing code that an unknown user can show to the owner, or None.

        A code is valid for one hour, a person gets one every ten minutes, and at most three are
        pending at a time on a platform. Beyond these limits the result is None, without a reason.
        """
        identity = keys.person_of(source)
        if identity is None:
            return None
        now = self._context.clock.now()
        code = pairing_code.new_code()

        def work(tx: Transaction) -> bool:
            session_rows.remember_person(tx, source, identity, now)
            return self._put_code(tx, code, "pair", source, identity, now)

        return code if self._db.write(work) else None

    def pending_pairings(self) -> list[Pairing]:
        """Return the pairing requests whose code is still valid."""
        now = to_micros(self._context.clock.now())
        rows = self._db.read(lambda tx: tx.all("codes_list", {"purpose": "pair"}))
        return [
            Pairing(subject, platform, from_micros(made_at), from_micros(until))
            for subject, platform, _, made_at, until in rows
            if until > now
        ]

    def approve(self, code: str, *, role: Role = "member", by: str = "owner") -> Person:
        """Give the person with this code a role, and return the person.

        Raise `NotFound` for a wrong code; five wrong codes lock `by` out for an hour
        (`AccessDenied`).
        """
        _check_role(role)  # before the lookup, because looking a code up uses it up
        now = self._context.clock.now()
        identity = self._redeem(code, "pair", by, now)[0]
        self.set_role(identity, role)
        person = self.get(identity)
        assert person is not None
        return person

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
            return self._put_code(tx, code, "link", source, key, now)

        if not self._db.write(work):
            raise IllegalMove(
                "A code was made less than ten minutes ago.", hint="Wait ten minutes."
            )
        return code

    def accept_link(self, source: Source, code: str) -> str:
        """Link this direct message with the conversation the code was made in; return its key.

        Raise `NotFound` for a wrong code, `AccessDenied` after five, `IllegalMove` in a group or in
        the chat where the code was made.
        """
        key = self._dm_key(source)
        now = self._context.clock.now()
        other = self._redeem(code, "link", key, now)[0]

        def work(tx: Transaction) -> str:
            shared = shared_key(tx, other)
            tx.run("link_insert", {"key": key, "shared_key": shared, "now": to_micros(now)})
            return shared

        return self._db.write(work)

    def unlink(self, source: Source) -> bool:
        """Give this direct message its own conversation again; return whether it was linked."""
        key = self._dm_key(source)
        return self._db.write(lambda tx: tx.changed("link_delete", {"key": key})) > 0

    def linked(self, source: Source) -> list[str]:
        """Return the keys that share the conversation of this direct message, its own included."""
        key = self._dm_key(source)

        def work(tx: Transaction) -> list[str]:
            shared = shared_key(tx, key)
            others = [row[0] for row in tx.all("links_of", {"shared_key": shared})]
            return sorted({shared, key, *others})

        return self._db.read(work)

    # -- internals

    def _dm_key(self, source: Source) -> str:
        validate.source(source)
        if source.chat_type != "dm":
            raise IllegalMove(
                "Only direct messages can be linked.", hint="A group belongs to all its members."
            )
        return keys.session_key(source, agent=self._context.settings.agent)

    def _set(self, statement: str, person: str, name: str, value: str | None) -> None:
        def work(tx: Transaction) -> int:
            return tx.changed(statement, {"person": resolve_person(tx, person, None), name: value})

        if self._db.write(work) == 0:
            raise NotFound(
                f"There is no person {person!r}: nobody with that identity has written here yet.",
                hint="Give an identity, such as telegram:42; store.people.find() lists them.",
            )

    def _put_code(
        self, tx: Transaction, code: str, purpose: str, source: Source, subject: str, now: datetime
    ) -> bool:
        """Store a code for a subject; return False if a limit on codes is reached."""
        tx.run("codes_expire", {"now": to_micros(now)})
        recent = tx.one("code_of_subject", {"subject": subject, "purpose": purpose})
        if recent is not None and recent[0] > to_micros(now - pairing_code.MIN_INTERVAL):
            return False
        account = {
            "platform": storable(source.platform),
            "account": storable(source.account),
        }
        (pending,) = tx.one("codes_pending", {"purpose": purpose, **account}) or (0,)
        if purpose == "pair" and pending >= pairing_code.MAX_PENDING:
            return False
        tx.run(
            "code_insert",
            {
                **account,
                "hash": pairing_code.hash_code(code, self._secret(tx)),
                "purpose": purpose,
                "subject": subject,
                "now": to_micros(now),
                "until": to_micros(now + pairing_code.LIFETIME),
            },
        )
        return True

    def _redeem(self, code: str, purpose: str, redeemer: str, now: datetime) -> Row:
        """Use a code up and return the row with its subject.

        Raise `NotFound` for a wrong code and count the attempt; raise `AccessDenied` without a
        lookup after too many of them. `redeemer` is whose attempts are counted.
        """
        validate.text("code", code)

        def work(tx: Transaction) -> Row | None:
            since = to_micros(now - pairing_code.LIFETIME)
            (wrong,) = tx.one("wrong_codes_count", {"place": redeemer, "since": since}) or (0,)
            if wrong >= pairing_code.MAX_WRONG_TRIES:
                raise AccessDenied(
                    "Too many wrong codes.", hint="Try again in an hour.", retry_after=3600
                )
            tx.run("codes_expire", {"now": to_micros(now)})
            lookup = {"hash": pairing_code.hash_code(code, self._secret(tx)), "purpose": purpose}
            row = tx.one("code_claim", lookup)
            if row is not None and row[0] == redeemer:
                # Raised inside the transaction: its rollback keeps the code valid.
                raise IllegalMove(
                    "The code was made in this very chat.", hint="Type it in the other chat."
                )
            if row is None:
                tx.run("wrong_code_insert", {"place": redeemer, "now": to_micros(now)})
            else:
                tx.run("wrong_codes_delete", {"place": redeemer, "since": since})
            return row

        row = self._db.write(work)
        if row is None:
            raise NotFound("That code is not known.", hint="It may be older than an hour.")
        return row

    def _secret(self, tx: Transaction) -> bytes:
        return bytes.fromhex(installation.require(tx, "secret"))


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise ConfigError(f"role is {role!r}.", hint=f"Allowed: {', '.join(ROLES)}.", field="role")


def shared_key(tx: Transaction, key: str) -> str:
    """Return the key of the conversation that a key is linked to, else the key itself."""
    row = tx.one("link_of", {"key": key})
    return key if row is None else str(row[0])


def linked_key(tx: Transaction, source: Source, key: str) -> str:
    """Return the key of the conversation a source writes to; only direct messages are linked."""
    return shared_key(tx, key) if source.chat_type == "dm" else key


def is_linked(tx: Transaction, shared: str) -> bool:
    """Return whether any other chat shares the conversation of a key."""
    return bool(tx.all("links_of", {"shared_key": shared}))


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
            f"{person!r} is the id of {len(identities)} people.",
            hint=f"Give one of the identities: {', '.join(identities[:5])}.",
            field="person",
        )
    return identities[0] if identities else person


def _to_person(row: Row) -> Person:
    person, platform, account, user_id, user_id_alt, name, zone, role, created_at = row
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
    )
