"""Authentication by token, the rate limit, and the part of the store a caller may see."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import time
from collections.abc import Callable, Mapping

import msgspec

from tertulia import aio
from tertulia.aio import PersonView, Transcript
from tertulia.core import keys
from tertulia.core.session import Session
from tertulia.core.source import Source
from tertulia.errors import AccessDenied, Error, NotFound
from tertulia.gateway.access import TOKEN_PLATFORMS
from tertulia.gateway.rate_brake import RateBrake
from tertulia.http.settings import NO_TOKEN, HttpSettings, Token, normalize_address
from tertulia.records.people import ROLES, Role

API = "api"
WEB = "web"
_MINUTE = 60


class Unauthorized(Error):
    """A valid token is required."""

    code = "unauthorized"


class TooManyRequests(Error):
    """Too many requests."""

    code = "too_many_requests"
    retryable = True


class Caller(msgspec.Struct, frozen=True):
    """The name and the role of the token that a request was made with.

    A guest's token is shared by many, so that their `address` has limits of its own; it is None for
    others, and if only the address of a proxy is known.
    """

    name: str
    role: Role
    address: str | None = None

    @property
    def is_owner(self) -> bool:
        return self.role == "owner"

    def source(self, platform: str, chat_id: str = "") -> Source:
        """Return the source of this caller's messages in a chat.

        The account separates chats that two callers call by the same name.
        """
        return Source(platform, chat_id, account=self.name, user_id=self.name)

    def person(self, platform: str) -> str:
        """Return the person id of this caller on a platform."""
        return keys.person_of(self.source(platform)) or ""

    def require_role(self, role: Role) -> None:
        """Raise `AccessDenied` unless the caller has this role or a higher one."""
        if ROLES.index(self.role) > ROLES.index(role):
            raise AccessDenied(f"This needs the role {role}.", hint="Ask the owner for a token.")


class Authenticator:
    """Checks tokens and request rates.

    A secret is compared with every token, each in constant time, so that the time an answer takes
    reveals nothing about the tokens.
    """

    def __init__(
        self, settings: HttpSettings, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = [(_digest(token.resolve_secret()), token) for token in settings.tokens]
        self._settings = settings
        self._rate = settings.requests_per_minute
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}
        self._addresses = RateBrake(settings.requests_per_address, _MINUTE, now)
        self._proxies = frozenset(map(normalize_address, settings.proxies))

    def authenticate(self, headers: Mapping[str, str], address: str = "") -> Caller:
        """Return the caller that sent these headers; raise if the token or the rate is wrong.

        Raises `Unauthorized`, `TooManyRequests`, or (without tokens) `AccessDenied` for a request
        of another site. Requests with a wrong token share one rate limit.
        """
        if not self._tokens:
            _refuse_other_sites(headers, self._settings)
            return self._count_caller(Caller(NO_TOKEN, "owner"))
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        sent_digest = _digest(secret.strip() if scheme.lower() == "bearer" else "")
        matching: Token | None = None
        for digest, token in self._tokens:
            if hmac.compare_digest(digest, sent_digest):
                matching = token
        if matching is None:
            self._count_request("")
            raise Unauthorized(
                "The token is missing or unknown.", hint="Send: Authorization: Bearer TOKEN"
            )
        return self._count_caller(self.caller_of(matching, address))

    def caller_of(self, token: Token, address: str) -> Caller:
        """Return the caller with this token at an address."""
        normal = normalize_address(address)
        is_known = token.role == "guest" and normal and normal not in self._proxies
        return Caller(token.name, token.role, _network_of(normal) if is_known else None)

    def count_stranger(self) -> None:
        """Count a request without a token; raise `TooManyRequests` if there are too many."""
        self._count_request("")

    def count_ticket(self, caller: Caller) -> None:
        """Count a stream that is opened with a ticket; raise `TooManyRequests` if too many are."""
        self._count_caller(caller)

    def count_browser(self, caller: Caller) -> None:
        """Count a request of a signed-in browser; raise `TooManyRequests` if there are too many.

        The browsers of a token have a limit together, apart from that of its other requests.
        """
        self._count_request(f"console/{caller.name}")

    def _count_caller(self, caller: Caller) -> Caller:
        """Count a request and return its caller; raise `TooManyRequests` beyond a limit.

        A request that its address may not make is not counted for its token.
        """
        address = caller.address
        if address is not None and not self._addresses.allows(f"{caller.name}/{address}"):
            raise TooManyRequests(
                f"More than {self._settings.requests_per_address} requests of one address in a"
                " minute.",
                hint="Wait as long as Retry-After says, then send fewer requests.",
                retry_after=_MINUTE,
            )
        self._count_request(caller.name)
        return caller

    def _count_request(self, name: str) -> None:
        """Take one token from a bucket that holds a minute's worth and refills steadily."""
        now, per_second = self._now(), self._rate / 60
        left, counted_at = self._buckets.get(name, (float(self._rate), now))
        left = min(float(self._rate), left + (now - counted_at) * per_second)
        if left < 1:
            raise TooManyRequests(
                f"More than {self._rate} requests in a minute.",
                hint="Wait as long as Retry-After says, then send fewer requests.",
                retry_after=math.ceil((1 - left) / per_second),
            )
        self._buckets[name] = left - 1, now


class RefusalDelay:
    """Delays refusals, so that a client which floods spends its connections on waiting.

    Only so many wait at a time; further ones are refused at once.
    """

    def __init__(self, seconds: float, limit: int = 100) -> None:
        self._seconds = seconds
        self._free = limit

    async def wait(self) -> None:
        """Wait for the time of a refusal, if there is room to wait."""
        if self._free <= 0 or self._seconds <= 0:
            return
        self._free -= 1
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self._free += 1


class Scope:
    """The part of the store one caller may see: everything for the owner, else their own."""

    def __init__(
        self, store: aio.Store, caller: Caller, sessions: dict[str, Session] | None = None
    ) -> None:
        self._store = store
        self.caller = caller
        self._sessions = {} if sessions is None else sessions

    def own_view(self, platform: str) -> PersonView:
        """Return the caller's own sessions on a platform."""
        return self._store.for_person(self.caller.source(platform))

    async def require_session(self, session_id: str) -> Session:
        """Return a session; raise `NotFound` if it is absent or the caller may not see it."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = await self._read_session(session_id)
        return session

    async def _read_session(self, session_id: str) -> Session:
        if self.caller.is_owner:
            return await self._store.sessions.require(session_id)
        for platform in TOKEN_PLATFORMS:
            session = await self.own_view(platform).get(session_id)
            if session is not None:
                return session
        raise NotFound(f"There is no session {session_id!r}.")

    async def require_transcript(self, session_id: str) -> Transcript:
        """Return the transcript of a session; raise `NotFound` like `require_session`."""
        session = await self.require_session(session_id)
        return self._store.transcript(session.id, by=f"token:{self.caller.name}")


def _refuse_other_sites(headers: Mapping[str, str], settings: HttpSettings) -> None:
    """Raise `AccessDenied` if a request comes from a page of another site.

    Without tokens such a page could send requests through the owner's browser; see `guard.py`.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    is_own = origin in (None, f"http://{host}")
    is_own = is_own and headers.get("sec-fetch-site") in (None, "none", "same-origin")
    if not (is_own and settings.is_own_host(host)):
        raise AccessDenied(
            "Requests of other sites are refused while the server has no tokens.",
            hint="Use 127.0.0.1 or localhost, or configure a token.",
        )


def _network_of(address: str) -> str:
    """Return an IPv4 address, or the /64 network of an IPv6 address, which one customer has."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if parsed.version == 4 else str(ipaddress.ip_network((parsed, 64), strict=False))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
