"""When a person last looked at Now, to tell what has happened since.

The browser keeps it in a cookie: the end of the visit before, and the last load of the page. Loads
with less than half an hour between them are one visit, so that a reload does not hide what happened
over night. The page has the moment in its address, as its stream and its buttons need it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tertulia.console.page_definition import CONSOLE

COOKIE: Final = "tertulia_look"
_VISIT: Final = timedelta(minutes=30)
_FORGOTTEN: Final = timedelta(days=30)


class LastLook(msgspec.Struct, frozen=True):
    """The end of the visit before this one, None for the first, and the last load of the page."""

    before: datetime | None
    last: datetime

    @classmethod
    def of(cls, request: Request, now: datetime) -> LastLook:
        """Return what the cookie of a request says, with this load counted in."""
        times = [_to_time(text, now) for text in request.cookies.get(COOKIE, "").split(".")]
        before, last = times if len(times) == 2 else (None, None)
        if last is None:
            return cls(None, now)
        return cls(before if now - last < _VISIT else last, now)

    def keep(self, request: Request, response: Response) -> None:
        """Let a response give the browser the cookie."""
        before = 0 if self.before is None else round(self.before.timestamp())
        response.set_cookie(
            COOKIE, f"{before}.{round(self.last.timestamp())}", path=f"{CONSOLE}/", httponly=True,
            secure=request.url.scheme == "https", samesite="strict",
            max_age=round(_FORGOTTEN.total_seconds()),
        )  # fmt: skip


def _to_time(text: str, now: datetime) -> datetime | None:
    """Return a time of the cookie; None for anything that cannot be one of the last weeks."""
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        return None
    moment = datetime.fromtimestamp(int(text), UTC)
    return moment if now - _FORGOTTEN < moment <= now + timedelta(minutes=1) else None
