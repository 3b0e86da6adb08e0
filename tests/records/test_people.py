"""Roles, pairing codes and linked chats: default deny, and codes that cannot be guessed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tertulia
from tertulia import AccessDenied, ConfigError, IllegalMove, NotFound, Settings, Source, Store
from tertulia.core import pairing_code
from tertulia.records import people
from tertulia.testing import FakeClock

ANA = Source("telegram", "42", user_id="42", user_name="Ana")
BOB = Source("telegram", "43", user_id="43", user_name="Bob")
ANA_ON_DISCORD = Source("discord", "dm9", user_id="9", user_name="ana")
OWNER = Source.local()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(where: str, clock: FakeClock) -> Iterator[Store]:
    with tertulia.open(where, clock=clock) as store:
        yield store


class TestRoles:
    def test_unknown_user_is_guest_and_terminal_is_owner(self, store: Store) -> None:
        assert store.people.role_of(ANA) == "guest"
        assert store.people.role_of(OWNER) == "owner"
        assert store.people.role_of(Source("telegram", "-1", chat_type="group")) == "guest"

    def test_role_includes_lower_roles(self, store: Store) -> None:
        store.sessions.open(ANA)
        store.people.set_role("telegram:42", "member")
        store.people.require_role(ANA, "member")
        store.people.require_role(ANA, "guest")
        with pytest.raises(AccessDenied):
            store.people.require_role(ANA, "owner")

    def test_unknown_role_and_unknown_person_are_refused(self, store: Store) -> None:
        with pytest.raises(ConfigError, match="Allowed: owner, member, guest"):
            store.people.set_role("telegram:42", "king")  # type: ignore[arg-type]
        with pytest.raises(NotFound) as unknown:
            store.people.set_role("telegram:42", "member")
        assert "telegram:42" in (unknown.value.hint or "")

    def test_unknown_role_is_refused_everywhere(self, store: Store) -> None:
        for call in (
            lambda: store.people.remember(ANA, role="king"),  # type: ignore[arg-type]
            lambda: store.people.require_role(ANA, "king"),  # type: ignore[arg-type]
            lambda: store.people.find(role="king"),  # type: ignore[arg-type]
        ):
            with pytest.raises(ConfigError, match="Allowed: owner, member, guest"):
                call()
        assert store.people.find() == []


class TestPairing:
    def test_code_gives_a_role_to_the_person_it_was_made_for(self, store: Store) -> None:
        code = store.people.request_pairing(ANA)
        assert code is not None
        assert [pairing.person for pairing in store.people.pending_pairings()] == ["telegram:42"]
        person = store.people.approve(code.lower())
        assert (person.id, person.role, person.name) == ("telegram:42", "member", "Ana")
        assert store.people.pending_pairings() == []
        with pytest.raises(NotFound):
            store.people.approve(code)

    def test_code_stays_valid_after_a_wrong_role(self, store: Store) -> None:
        code = store.people.request_pairing(ANA)
        assert code is not None
        with pytest.raises(ConfigError):
            store.people.approve(code, role="king")  # type: ignore[arg-type]
        assert store.people.approve(code).id == "telegram:42"

    def test_code_stays_valid_if_the_role_cannot_be_set(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = store.people.request_pairing(ANA)
        assert code is not None

        def fail(row: object) -> None:
            raise RuntimeError("the node dies here")

        with monkeypatch.context() as patch:
            patch.setattr(people, "_to_person", fail)
            with pytest.raises(RuntimeError):
                store.people.approve(code)
        assert store.people.role_of(ANA) == "guest"
        assert store.people.approve(code).role == "member"

    @pytest.mark.parametrize("where", ["sqlite"], indirect=True)
    def test_code_is_not_stored_in_plain_text(self, store: Store, tmp_path: Path) -> None:
        """SQLite only: there, the whole store is a file that can be read."""
        code = store.people.request_pairing(ANA)
        assert code is not None
        store.close()
        files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert code.encode() not in files

    def test_code_expires_after_an_hour(self, store: Store, clock: FakeClock) -> None:
        code = store.people.request_pairing(ANA)
        assert code is not None
        clock.forward(hours=1)
        assert store.people.pending_pairings() == []
        with pytest.raises(NotFound):
            store.people.approve(code)

    def test_second_request_within_ten_minutes_gets_no_code(
        self, store: Store, clock: FakeClock
    ) -> None:
        assert store.people.request_pairing(ANA) is not None
        assert store.people.request_pairing(ANA) is None
        clock.forward(minutes=11)
        assert store.people.request_pairing(ANA) is not None

    def test_five_wrong_codes_lock_out_even_the_right_code(
        self, store: Store, clock: FakeClock
    ) -> None:
        code = store.people.request_pairing(ANA)
        assert code is not None
        for _ in range(5):
            clock.forward(seconds=1)
            with pytest.raises(NotFound):
                store.people.approve("AAAAAAAA")
        with pytest.raises(AccessDenied):
            store.people.approve(code)
        assert store.people.role_of(ANA) == "guest"
        clock.forward(hours=2)
        fresh = store.people.request_pairing(ANA)
        assert fresh is not None
        store.people.approve(fresh)

    def test_codes_are_long_and_unambiguous(self) -> None:
        codes = {pairing_code.new_code() for _ in range(500)}
        assert len(codes) == 500
        assert all(len(code) == 8 and set(code) <= set(pairing_code.ALPHABET) for code in codes)
        assert not set("0O1IL") & set(pairing_code.ALPHABET)


class TestLinks:
    def test_linked_chats_share_a_conversation(self, store: Store) -> None:
        here = store.sessions.open(ANA)
        code = store.people.offer_link(ANA)
        assert store.people.accept_link(ANA_ON_DISCORD, code) == here.key
        assert store.sessions.open(ANA_ON_DISCORD).id == here.id
        with store.turn(ANA_ON_DISCORD, "hola") as turn:
            assert turn.session.id == here.id
            turn.add_assistant("hola")
        assert len(store.people.linked(ANA)) == 2
        assert store.for_person(ANA_ON_DISCORD).get(here.id) is not None

    def test_unlink_separates_the_chats(self, store: Store) -> None:
        here = store.sessions.open(ANA)
        store.people.accept_link(ANA_ON_DISCORD, store.people.offer_link(ANA))
        assert store.people.unlink(ANA_ON_DISCORD)
        assert not store.people.unlink(ANA_ON_DISCORD)
        assert store.sessions.open(ANA_ON_DISCORD).id != here.id
        assert store.for_person(ANA_ON_DISCORD).get(here.id) is None

    def test_wrong_code_does_not_link(self, store: Store) -> None:
        store.people.offer_link(ANA)
        with pytest.raises(NotFound):
            store.people.accept_link(BOB, "22222222")
        assert store.sessions.open(BOB).key == store.sessions.key(BOB)

    def test_pairing_code_does_not_link(self, store: Store) -> None:
        code = store.people.request_pairing(ANA)
        assert code is not None
        with pytest.raises(NotFound):
            store.people.accept_link(BOB, code)

    def test_groups_cannot_be_linked(self, store: Store) -> None:
        group = Source("telegram", "-1", chat_type="group", user_id="42")
        with pytest.raises(IllegalMove):
            store.people.offer_link(group)

    def test_code_typed_in_its_own_chat_is_refused_and_stays_valid(self, store: Store) -> None:
        code = store.people.offer_link(ANA)
        with pytest.raises(IllegalMove):
            store.people.accept_link(ANA, code)
        # The code is still valid in the other chat.
        assert store.people.accept_link(ANA_ON_DISCORD, code) == store.sessions.key(ANA)

    def test_both_linked_chats_show_the_shared_sessions(
        self, store: Store, clock: FakeClock
    ) -> None:
        alone = store.sessions.open(ANA_ON_DISCORD)
        here = store.sessions.open(ANA)
        store.people.accept_link(ANA_ON_DISCORD, store.people.offer_link(ANA))
        store.transcript(here.id).append({"role": "user", "content": "the word from here"})
        clock.forward(minutes=1)
        there = store.sessions.open(ANA_ON_DISCORD, force_new=True)
        store.transcript(there.id).append({"role": "user", "content": "the word from there"})
        other = store.sessions.open(BOB)
        store.transcript(other.id).append({"role": "user", "content": "the word of another"})
        shared = [there.id, here.id]
        for source, own in ((ANA, shared), (ANA_ON_DISCORD, [*shared, alone.id])):
            view = store.for_person(source)
            assert [session.id for session in view.find().items] == own
            first = view.find(limit=1)
            rest = view.find(limit=10, cursor=first.next)
            assert [session.id for session in (*first.items, *rest.items)] == own
            assert [s.id for s in view.find(key=here.key).items] == shared
            assert view.find(key=other.key).items == ()
            assert {hit.session_id for hit in view.search("word").items} == set(shared)
            assert [s.id for s in view.find(text="another").items] == []

    def test_running_process_keeps_the_session_from_either_linked_chat(
        self, where: str, clock: FakeClock
    ) -> None:
        keys = []

        def is_running(key: str) -> bool:
            keys.append(key)
            return True

        guarded = Settings(has_active_processes=is_running)
        with tertulia.open(where, settings=guarded, clock=clock) as store:
            store.people.accept_link(ANA_ON_DISCORD, store.people.offer_link(ANA))
            here = store.sessions.open(ANA)
            clock.forward(days=1, hours=1)
            assert store.sessions.open(ANA_ON_DISCORD).id == here.id
            clock.forward(days=1, hours=1)
            with store.turn(ANA_ON_DISCORD, "hola") as turn:
                assert turn.session.id == here.id
                turn.add_assistant("hola")
            assert keys == [here.key, here.key]


class TestZones:
    def test_daily_reset_follows_the_zone_of_the_person(
        self, store: Store, clock: FakeClock
    ) -> None:
        clock.forward(hours=5, minutes=30)  # 17:30 in UTC, 2:30 of the next day in Tokyo
        first = store.sessions.open(ANA)
        store.people.set_zone("42", "Asia/Tokyo")
        clock.forward(hours=2)  # 4:30 there
        assert store.sessions.open(ANA).id != first.id

    def test_explain_uses_the_zone_of_the_person(self, store: Store, clock: FakeClock) -> None:
        clock.forward(hours=5, minutes=30)
        first = store.sessions.open(ANA)
        store.people.set_zone("42", "Asia/Tokyo")
        clock.forward(hours=2)
        assert [session.id for session in store.sessions.expired().items] == [first.id]
        last = store.sessions.explain(first.id).splitlines()[-1]
        assert last.endswith("so it is over (daily)")
        assert "04:00:00 JST" in last

    def test_unknown_zone_is_refused(self, store: Store) -> None:
        with pytest.raises(ConfigError, match="no time zone"):
            store.people.set_zone("42", "Mars/Olympus")


def test_person_who_was_let_in_gets_no_other_code(store: Store) -> None:
    """As from a gateway that saw the first message before the approval, and asks after it."""
    source = Source("telegram", "77", user_id="77")
    code = store.people.request_pairing(source)
    assert code is not None
    store.people.approve(code)
    assert store.people.request_pairing(source) is None
    assert store.people.pending_pairings() == []
