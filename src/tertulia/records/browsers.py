"""Browsers that are signed in: by a code that is used once, then by a secret that they keep.

The store has only hashes of both. The rights of a browser are not stored: its name is that of a
token, and the role of that token is looked up at each use (decision 0020).
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from tertulia.core import pairing_code, validate
from tertulia.core.arguments import checks_arguments
from tertulia.core.session import Page
from tertulia.core.text.storable import storable
from tertulia.errors import NotFound
from tertulia.records import codes
from tertulia.records.newest_pages import page_params, to_page
from tertulia.records.store_context import StoreContext
from tertulia.storage.base import Row, Transaction
from tertulia.storage.rows import from_micros, to_micros

CODE_LIFETIME: Final = timedelta(minutes=2)
LIFETIME: Final = timedelta(days=30)
IDLE_LIFETIME: Final = timedelta(days=7)
# A page that is looked at asks often; that it was seen is stored this often.
_TOUCH_INTERVAL: Final = timedelta(minutes=5)
_MAX_AGENT: Final = 300
_EXPIRE_LIMIT: Final = 100


class Browser(msgspec.Struct, frozen=True, kw_only=True):
    """A signed-in browser. `name` is the token whose rights it has, `agent` its program."""

    id: int
    name: str
    agent: str
    made_at: datetime
    seen_at: datetime

    @property
    def until(self) -> datetime:
        """When it is signed out at the latest, if it is not used again."""
        return min(self.made_at + LIFETIME, self.seen_at + IDLE_LIFETIME)


class SignedIn(NamedTuple):
    """A browser that has just signed in, and the secret that it shows from now on."""

    browser: Browser
    secret: str


@checks_arguments
class Browsers:
    """The signed-in browsers of a store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._db = context.db

    def request_code(self, name: str) -> str:
        """Return a code that signs one browser in with the rights of a token, within two minutes.

        It replaces an earlier code for that name. Only somebody who has the store can ask for one,
        so earlier wrong tries are forgotten: they cannot keep the owner out.
        """
        now = self._context.clock.now()
        code = pairing_code.new_code()

        def work(tx: Transaction) -> None:
            tx.run("browsers_forget_wrong_codes")
            codes.put_browser_code(tx, code, name, now, now + CODE_LIFETIME)

        self._db.write(work, lane=codes.LANE)
        return code

    def sign_in(self, code: str, *, address: str, agent: str = "") -> SignedIn:
        """Use a code up, and return the browser that is signed in by it, with its secret.

        Raise `NotFound` for a wrong or old code; five of them from one address lock that address
        out for an hour (`AccessDenied`).
        """
        now = self._context.clock.now()
        secret = secrets.token_urlsafe(32)
        redeemer = f"browser {storable(address)}"

        def work(tx: Transaction) -> Browser | None:
            row = codes.find_code(tx, code, "browser", redeemer, now)
            if row is None:
                return None
            tx.run("code_delete", {"hash": row.hash})
            return _insert(tx, secret, row.subject, agent, now)

        browser = self._db.write(work, lane=codes.LANE)
        if browser is None:
            raise NotFound(
                "That code is not known, or was used already.",
                hint="A code is valid for two minutes; tertulia console makes a new one.",
            )
        return SignedIn(browser, secret)

    def sign_in_as(self, name: str, *, agent: str = "") -> SignedIn:
        """Sign a browser in that has proved otherwise, by its token, whose it is."""
        now = self._context.clock.now()
        secret = secrets.token_urlsafe(32)
        browser = self._db.write(lambda tx: _insert(tx, secret, name, agent, now))
        return SignedIn(browser, secret)

    def get(self, secret: str) -> Browser | None:
        """Return the browser with this secret, or None if it is not signed in any more."""
        now = self._context.clock.now()
        params = {"hash": _hash(secret), **_oldest_times(now)}
        row = self._db.read(lambda tx: tx.one("browser_get", params))
        if row is None:
            return None
        browser = _to_browser(row)
        if browser.seen_at <= now - _TOUCH_INTERVAL:
            touch = {"id": browser.id, "now": to_micros(now)}
            self._db.write(lambda tx: tx.run("browser_touch", touch))
        return browser

    def find(
        self, *, name: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[Browser]:
        """Return a page of signed-in browsers, newest first; with `name`, those of one token."""
        now = self._context.clock.now()
        params = {**page_params(limit, cursor), **_oldest_times(now), "name": storable(name)}
        statement = "browsers_page" if name is None else "browsers_page_of"
        rows = self._db.read(lambda tx: tx.all(statement, params))
        return to_page(rows, limit, _to_browser)

    def sign_out(self, browser_id: int, *, name: str | None = None) -> None:
        """Sign a browser out; raise `NotFound` if there is none, or with `name` not one of theirs.

        A page that is open there ends at its next sign of life.
        """
        validate.integer("browser_id", browser_id, 0)
        statement = "browser_delete" if name is None else "browser_delete_of"
        params = {"id": browser_id} | ({} if name is None else {"name": storable(name)})
        if self._db.write(lambda tx: tx.changed(statement, params)) == 0:
            raise NotFound(
                f"There is no browser {browser_id}.", hint="GET /browsers lists those signed in."
            )

    def sign_out_all(self, *, name: str | None = None, excluding: int | None = None) -> int:
        """Sign out all browsers, or those of one token, but for one; return how many."""
        statement = "browsers_delete_all" if name is None else "browsers_delete_of"
        params = {"except": excluding or 0} | ({} if name is None else {"name": storable(name)})
        return self._db.write(lambda tx: tx.changed(statement, params))


def _insert(tx: Transaction, secret: str, name: str, agent: str, now: datetime) -> Browser:
    tx.run(
        "browsers_expire", {"seen_after": _oldest_times(now)["seen_after"], "limit": _EXPIRE_LIMIT}
    )
    params = {
        "hash": _hash(secret),
        "name": storable(name),
        "agent": storable(agent)[:_MAX_AGENT],
        "now": to_micros(now),
    }
    row = tx.one("browser_insert", params)
    assert row is not None
    return _to_browser((row[0], params["name"], params["agent"], params["now"], params["now"]))


def _oldest_times(now: datetime) -> dict[str, int]:
    """Return since when a browser must have signed in, and have been seen, to be valid."""
    return {
        "made_after": to_micros(now - LIFETIME),
        "seen_after": to_micros(now - IDLE_LIFETIME),
    }


def _hash(secret: str) -> str:
    # The secret is random and long, so a plain hash cannot be searched.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _to_browser(row: Row) -> Browser:
    number, name, agent, made_at, seen_at = row
    return Browser(
        id=number,
        name=name,
        agent=agent,
        made_at=from_micros(made_at),
        seen_at=from_micros(seen_at),
    )
