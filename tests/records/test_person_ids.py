"""The id by which a person is known, the same on every machine of a store, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import tertulia
from tertulia import Source, Store
from tertulia.records.retention_steps import RemovedRows
from tertulia.testing import FakeClock


def test_first_id_stays_on_every_machine(where: str) -> None:
    with tertulia.open(where) as store, tertulia.open(where) as other:
        assert store.person_ids.remember("whatsapp", "", "ES.1", "346") == "346"
        assert other.person_ids.remember("whatsapp", "", "ES.1", "ES.1") == "346"
        assert other.person_ids.remember("whatsapp", "", "ES.2", "ES.2") == "ES.2"
        assert store.person_ids.remember("whatsapp", "", "ES.2", "347") == "ES.2"
        # An id is one of its account: another number may know the person by another.
        assert store.person_ids.remember("whatsapp", "second", "ES.1", "ES.1") == "ES.1"


def test_machines_that_see_a_person_at_once_agree(where: str) -> None:
    with tertulia.open(where) as store, tertulia.open(where) as other:

        def remember(number: int) -> str:
            records = (store, other)[number % 2].person_ids
            return records.remember("whatsapp", "", f"ES.{number // 8}", f"id {number}")

        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(remember, range(64)))
        assert len(set(ids)) == 8


def test_odd_texts_are_stored(store: Store) -> None:
    known_id = store.person_ids.remember("whatsapp", "", "ES.\ud83d\x00", "346")
    assert store.person_ids.remember("whatsapp", "", "ES.\ud83d\x00", "x") == known_id == "346"


def test_ids_of_strangers_are_forgotten_and_others_are_not(store: Store, clock: FakeClock) -> None:
    for user_id, known_id in (("ES.1", "341"), ("ES.2", "342"), ("ES.3", "ES.3"), ("ES.4", "344")):
        store.person_ids.remember("whatsapp", "", user_id, known_id)
    # Known by the number alone, by both, and by the id alone; the last one nobody let in.
    for user_id, user_id_alt in (("341", None), ("ES.2", "342"), ("ES.3", None)):
        source = Source("whatsapp", user_id, user_id=user_id, user_id_alt=user_id_alt)
        store.people.remember(source, role="member")
    clock.forward(days=400)
    assert store.retention.remove_all() == RemovedRows(person_ids=1)
    for user_id, known_id in (("ES.1", "341"), ("ES.2", "342"), ("ES.3", "ES.3"), ("ES.4", "new")):
        assert store.person_ids.remember("whatsapp", "", user_id, "new") == known_id
