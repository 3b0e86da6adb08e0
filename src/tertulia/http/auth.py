"""Who comes in, what they may see, and how often they may ask."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import time
from collections.abc import Callable, Mapping

import msgspec

from tertulia import aio
from tertulia.aio._generated import (
    PersonView,
    Transcript,
)
from tertulia.core import keys
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import AccessDenied, Error, NotFound
from tertulia.http.settings import HttpSettings, Token, is_loopback
from tertulia.records.people import ROLES, Role

API = "api"
WEB = "web"
# The platforms on which whoever has a token writes.
_OWN = (API, WEB)


class Unauthorized(Error):
    """A token is needed."""

    code = "unauthorized"


class TooManyRequests(Error):
    """Too many requests."""

    code = "too_many_requests"
    retryable = True


class Caller(msgspec.Struct, frozen=True):
    """Who asks."""

    name: str
    role: Role

    @property
    def is_owner(self) -> bool:
        return self.role == "owner"

    def source(self, platform: str, chat_id: str = "") -> Source:
        """Where this caller writes from. The account keeps apart what two callers name alike."""
        return Source(platform, chat_id, account=self.name, user_id=self.name)

    def person(self, platform: str) -> str:
        return keys.person_of(self.source(platform)) or ""

    def require(self, role: Role) -> None:
        if ROLES.index(self.role) > ROLES.index(role):
            raise AccessDenied(f"This needs the role {role}.", hint="Ask the owner for a token.")


class Authenticator:
    """Lets in whoever has a token. Every token is compared, in a time that tells nothing."""

    def __init__(
        self, settings: HttpSettings, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = [(_digest(token.secret), token) for token in settings.tokens]
        self._rate = settings.rate
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}

    def admit(self, headers: Mapping[str, str]) -> Caller:
        """Who has sent these headers. The rate of wrong tokens is limited too."""
        if not self._tokens:
            _refuse_other_sites(headers.get("host", ""), headers.get("origin"))
            return self._counted(Caller("owner", "owner"))
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        given = _digest(secret.strip() if scheme.lower() == "bearer" else "")
        found: Token | None = None
        for digest, token in self._tokens:
            if hmac.compare_digest(digest, given):
                found = token
        if found is None:
            self._count("")
            raise Unauthorized(
                "This needs a token that is known.", hint="Send: Authorization: Bearer TOKEN"
            )
        return self._counted(Caller(found.name, found.role))

    def _counted(self, caller: Caller) -> Caller:
        self._count(caller.name)
        return caller

    def _count(self, name: str) -> None:
        """Take one from the bucket, which holds a minute's worth and fills all the time."""
        now, speed = self._now(), self._rate / 60
        left, at = self._buckets.get(name, (float(self._rate), now))
        left = min(float(self._rate), left + (now - at) * speed)
        if left < 1:
            raise TooManyRequests(
                f"More than {self._rate} requests in a minute.",
                hint="Wait, then go on more slowly.",
                retry_after=math.ceil((1 - left) / speed),
            )
        self._buckets[name] = left - 1, now


class Scope:
    """The store as one caller may see it: the owner all of it, others what is theirs."""

    def __init__(self, store: aio.Store, caller: Caller) -> None:
        self._store = store
        self.caller = caller

    def own(self, platform: str) -> PersonView:
        return self._store.for_person(self.caller.source(platform))

    async def session(self, session_id: str) -> Session:
        """That session; `NotFound` if there is none that may be seen."""
        if self.caller.is_owner:
            return await self._store.sessions.require(session_id)
        for platform in _OWN:
            found = await self.own(platform).get(session_id)
            if found is not None:
                return found
        raise NotFound(f"There is no session {session_id!r}.")

    async def transcript(self, session_id: str) -> Transcript:
        return self._store.transcript((await self.session(session_id)).id)


def _refuse_other_sites(host: str, origin: str | None) -> None:
    """Without tokens a page of another site could ask through the owner's browser.

    It would name its own site as the origin; or, where it has bent its own name to this machine's
    address, that name as the host.
    """
    name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
    is_here = is_loopback(name.strip("[]")) and origin in (None, f"http://{host}")
    if not is_here:
        raise AccessDenied(
            "Other sites are not let in without a token.",
            hint="Ask for 127.0.0.1 or localhost, or set a token.",
        )


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
