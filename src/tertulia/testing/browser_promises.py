"""Promises of signed-in browsers: a code works once and not for long, a secret is not stored."""

from __future__ import annotations

import pytest

from tertulia.errors import AccessDenied, NotFound
from tertulia.store import Store
from tertulia.testing.fake_clock import FakeClock
from tertulia.testing.fixtures import outcomes


class BrowserPromises:
    """Promises of signed-in browsers."""

    def test_a_code_signs_one_browser_in(self, store: Store, other: Store) -> None:
        code = store.browsers.request_code("owner")
        signed_in, refused = outcomes(
            lambda: store.browsers.sign_in(code, address="a", agent="Firefox"),
            lambda: other.browsers.sign_in(code.lower(), address="b", agent="Firefox"),
            refusals=NotFound,
        )  # fmt: skip
        assert (len(signed_in), len(refused)) == (1, 1)
        ((browser, secret),) = signed_in
        assert (browser.name, browser.agent) == ("owner", "Firefox")
        assert other.browsers.get(secret) == browser
        assert other.browsers.get(secret + "x") is None
        assert other.browsers.get("\ud800") is None

    def test_a_code_is_valid_for_two_minutes(self, store: Store, clock: FakeClock) -> None:
        code = store.browsers.request_code("owner")
        clock.forward(minutes=2)
        with pytest.raises(NotFound):
            store.browsers.sign_in(code, address="a")

    def test_a_newer_code_replaces_the_older(self, store: Store) -> None:
        older, of_ana = store.browsers.request_code("owner"), store.browsers.request_code("ana")
        newer = store.browsers.request_code("owner")
        with pytest.raises(NotFound):
            store.browsers.sign_in(older, address="a")
        assert store.browsers.sign_in(newer, address="a").browser.name == "owner"
        assert store.browsers.sign_in(of_ana, address="a").browser.name == "ana"

    def test_codes_of_another_purpose_sign_nobody_in(self, store: Store) -> None:
        code = store.browsers.request_code("owner")
        with pytest.raises(NotFound):
            store.people.approve(code)
        assert store.people.pending_pairings() == []

    def test_five_wrong_codes_lock_an_address_out(self, store: Store, clock: FakeClock) -> None:
        code = store.browsers.request_code("owner")
        for _ in range(5):
            clock.forward(seconds=1)
            with pytest.raises(NotFound):
                store.browsers.sign_in("22222222", address="a")
        with pytest.raises(AccessDenied):
            store.browsers.sign_in(code, address="a")
        assert store.browsers.sign_in(code, address="b").browser.name == "owner"
        # Who can make a code is the owner, whom no wrong tries may keep out.
        assert store.browsers.sign_in(store.browsers.request_code("owner"), address="a")

    def test_a_browser_is_signed_out_after_a_week_without_use(
        self, store: Store, clock: FakeClock
    ) -> None:
        used, unused = (store.browsers.sign_in_as("owner").secret for _ in range(2))
        for _ in range(4):
            clock.forward(days=6)
            assert store.browsers.get(used) is not None
        assert store.browsers.get(unused) is None
        assert len(store.browsers.find().items) == 1
        clock.forward(days=6)
        assert store.browsers.get(used) is None  # 30 days are over
        assert store.browsers.find().items == ()

    def test_browsers_are_listed_and_signed_out(self, store: Store, other: Store) -> None:
        names = ("owner", "ana", "owner", "ana", "owner")
        secrets = [store.browsers.sign_in_as(name).secret for name in names]
        first = store.browsers.find(limit=3)
        rest = store.browsers.find(limit=3, cursor=first.next)
        browsers = [*first.items, *rest.items]
        assert [browser.name for browser in browsers] == ["owner", "ana", "owner", "ana", "owner"]
        assert len({browser.id for browser in browsers}) == 5
        assert rest.next is None
        own = store.browsers.find(name="ana").items
        assert [browser.name for browser in own] == ["ana", "ana"]
        with pytest.raises(NotFound):
            store.browsers.sign_out(browsers[0].id, name="ana")
        store.browsers.sign_out(own[0].id, name="ana")
        assert other.browsers.get(secrets[3]) is None
        assert store.browsers.sign_out_all(name="owner", excluding=browsers[0].id) == 2
        assert other.browsers.get(secrets[4]) is not None
        assert store.browsers.sign_out_all() == 2
        assert store.browsers.find().items == ()
