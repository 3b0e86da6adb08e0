"""Promises of pairing: strangers cannot block it, codes cannot be guessed, roles are kept."""

from __future__ import annotations

import pytest

from tertulia.core.source import Source
from tertulia.errors import AccessDenied, NotFound
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import dm, outcomes


class PairingPromises:
    """Promises of pairing codes."""

    def test_strangers_cannot_keep_others_from_a_code(self, store: Store, clock: FakeClock) -> None:
        requests = []
        for number in range(5):
            clock.forward(seconds=1)
            requests.append(store.people.request_pairing(dm(str(number))))
        assert None not in requests
        pending = [pairing.person for pairing in store.people.pending_pairings()]
        assert sorted(pending) == ["telegram:2", "telegram:3", "telegram:4"]
        for replaced in requests[:2]:
            with pytest.raises(NotFound):
                store.people.approve(replaced or "")
        assert store.people.approve(requests[2] or "").id == "telegram:2"

    def test_a_replaced_request_cannot_be_repeated_at_once(
        self, store: Store, clock: FakeClock
    ) -> None:
        for number in range(4):
            clock.forward(seconds=1)
            store.people.request_pairing(dm(str(number)))
        assert store.people.request_pairing(dm("0")) is None
        clock.forward(minutes=11)
        assert store.people.request_pairing(dm("0")) is not None

    def test_platforms_have_limits_of_their_own(self, store: Store) -> None:
        codes = [store.people.request_pairing(dm(str(number))) for number in range(3)]
        assert store.people.request_pairing(dm("9", "discord")) is not None
        assert store.people.request_pairing(dm("9", account="bot2")) is not None
        for code in codes:
            store.people.approve(code or "")

    def test_visitors_of_one_token_share_a_limit(self, store: Store) -> None:
        for number in range(9):
            visitor = Source("web", "den", account=f"shop/{number}", user_id=str(number))
            assert store.people.request_pairing(visitor) is not None
        assert len(store.people.pending_pairings()) == 3

    def test_one_person_has_one_code(self, store: Store, clock: FakeClock) -> None:
        """Otherwise one stranger could fill the list."""
        first = store.people.request_pairing(dm("anna"))
        clock.forward(minutes=11)
        second = store.people.request_pairing(dm("anna"))
        assert len(store.people.pending_pairings()) == 1
        with pytest.raises(NotFound):
            store.people.approve(first or "")
        assert store.people.approve(second or "").role == "member"

    def test_a_refused_person_gets_no_code_for_a_day(self, store: Store, clock: FakeClock) -> None:
        code = store.people.request_pairing(dm("anna"))
        store.people.refuse("telegram:anna")
        assert store.people.pending_pairings() == []
        with pytest.raises(NotFound):
            store.people.approve(code or "")
        clock.forward(hours=2)
        assert store.people.request_pairing(dm("anna")) is None
        assert store.people.request_pairing(dm("ben")) is not None
        clock.forward(days=1)
        assert store.people.request_pairing(dm("anna")) is not None
        with pytest.raises(NotFound):
            store.people.refuse("telegram:nobody")

    def test_a_person_who_asks_is_approved_by_identity(
        self, store: Store, clock: FakeClock
    ) -> None:
        code = store.people.request_pairing(dm("anna", user_name="Anna")) or ""
        assert [pairing.name for pairing in store.people.pending_pairings()] == ["Anna"]
        assert store.people.approve_person("telegram:anna").role == "member"
        assert store.people.pending_pairings() == []
        with pytest.raises(NotFound):
            store.people.approve(code)
        for person in ("telegram:anna", "telegram:nobody"):
            with pytest.raises(NotFound):
                store.people.approve_person(person)
        store.people.request_pairing(dm("ben"))
        clock.forward(hours=1)
        with pytest.raises(NotFound):
            store.people.approve_person("telegram:ben")

    def test_approval_never_lowers_a_role(self, store: Store) -> None:
        code = store.people.request_pairing(dm("anna"))
        store.people.set_role("telegram:anna", "owner")
        assert store.people.approve(code or "", role="member").role == "owner"

    def test_decisions_are_recorded_with_who_decided(self, store: Store) -> None:
        store.people.request_pairing(dm("anna"))
        store.people.approve_person("telegram:anna", by="token:root")
        store.people.set_role("telegram:anna", "owner", by="local")
        store.people.request_pairing(dm("ben"))
        store.people.refuse("telegram:ben")
        with pytest.raises(NotFound):
            store.people.refuse("telegram:ben", by="local")
        with pytest.raises(NotFound):
            store.people.set_role("telegram:nobody", "owner", by="local")
        page = store.people.events(limit=2)
        events = [*page.items, *store.people.events(cursor=page.next).items]
        assert [(each.person, each.kind, each.by, dict(each.detail)) for each in events] == [
            ("telegram:ben", "refused", None, {}),
            ("telegram:anna", "role", "local", {"role": "owner", "before": "member"}),
            ("telegram:anna", "approved", "token:root", {"role": "member", "before": "guest"}),
        ]
        assert store.people.events(person="telegram:anna").items == tuple(events[1:])

    def test_a_code_approves_once(self, store: Store, other: Store) -> None:
        code = store.people.request_pairing(dm("anna")) or ""
        approved, refused = outcomes(
            lambda: store.people.approve(code), lambda: other.people.approve(code),
            refusals=NotFound,
        )  # fmt: skip
        assert (len(approved), len(refused)) == (1, 1)
        assert store.people.role_of(dm("anna")) == "member"

    def test_wrong_link_codes_are_counted_by_person(self, store: Store, clock: FakeClock) -> None:
        code = store.people.offer_link(dm("anna"))
        chats = [Source("web", str(number), account="eve", user_id="eve") for number in range(6)]
        for chat in chats[:5]:
            clock.forward(seconds=1)
            with pytest.raises(NotFound):
                store.people.accept_link(chat, "22222222")
        with pytest.raises(AccessDenied):
            store.people.accept_link(chats[5], code)
        assert store.people.accept_link(dm("ben"), code)

    def test_a_right_code_does_not_clear_wrong_tries(self, store: Store, clock: FakeClock) -> None:
        eve, other_chat = dm("eve"), dm("eve", "discord")
        for _ in range(4):
            clock.forward(seconds=1)
            with pytest.raises(NotFound):
                store.people.accept_link(eve, "22222222")
        store.people.accept_link(eve, store.people.offer_link(other_chat))
        clock.forward(seconds=1)
        with pytest.raises(NotFound):
            store.people.accept_link(eve, "33333333")
        with pytest.raises(AccessDenied):
            store.people.accept_link(eve, "44444444")
