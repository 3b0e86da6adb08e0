"""Who writes: the identities a store has met."""

from __future__ import annotations

from tertulia.core import keys
from tertulia.core.settings import zone as zone_named
from tertulia.core.source import Source
from tertulia.errors import ConfigError, NotFound
from tertulia.records.house import House
from tertulia.storage.base import Transaction


class People:
    """The people of a store."""

    def __init__(self, house: House) -> None:
        self._db = house.db

    def person_of(self, source: Source) -> str | None:
        """The identity of who wrote, as `find(person=…)` and `search(person=…)` take it."""
        return keys.person_of(source)

    def set_zone(self, person: str, zone: str | None) -> None:
        """The time zone a person lives in: daily resets follow it."""
        if zone is not None:
            zone_named(zone)

        def work(tx: Transaction) -> int:
            identity = resolve(tx, person, None)
            return tx.run("person_set_zone", {"person": identity, "zone": zone})

        if self._db.write(work) == 0:
            raise NotFound(f"Nobody called {person!r} has written here yet.")


def resolve(tx: Transaction, person: str, platform: str | None) -> str:
    """The identity for what was given: an identity itself, or a user id that only one person has.

    Ids of two platforms may be alike. Then a bare id is refused, for it could show one person the
    conversations of another.
    """
    if tx.one("person_known", {"person": person}) is not None:
        return person
    found = tx.all("people_called", {"user_id": person})
    if platform is not None:
        found = [row for row in found if row[1] == platform]
    identities = sorted({row[0] for row in found})
    if len(identities) > 1:
        raise ConfigError(
            f"{person!r} is the id of {len(identities)} people.",
            hint=f"Say which: {', '.join(identities[:5])}.",
            field="person",
        )
    return identities[0] if identities else person
