"""Limits of connections: how many may be open, and how long one may go without a request.

A connection is idle until the head of a request is complete, and again after its response. An idle
connection is closed after a time limit. It is a random part longer for each, so that connections
that were opened together are not closed, and opened again, in one moment. If there is no room for a
new connection, the one that has been idle for longest is closed, so that connections that never ask
cannot keep others out; only if every connection is answering a request, the new one is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from tertulia.core.backoff import JITTER
from tertulia.http.encoding import encode_json
from tertulia.http.errors import ErrorBody, ErrorDetail
from tertulia.http.settings import HttpSettings, normalize_address

log = logging.getLogger("tertulia.http")

# Time that a closed connection has to take the rest of its response before it is cut off.
_LINGER_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 2
_MAX_EXTRA_SHARE: Final = 0.25  # of the time limit of a head


class ConnectionTable:
    """The open connections of a server, the idle ones in the order in which they became idle."""

    def __init__(self, settings: HttpSettings, descriptors: int | None = None) -> None:
        """`descriptors`: how many files and sockets the process may open; None: no limit."""
        limit = settings.connections
        # The other half is for the store, the programs of agents and their pipes.
        self.limit = limit if descriptors is None else max(1, min(limit, descriptors // 2))
        self._head_seconds = settings.head_seconds
        self._per_address = settings.connections_per_address
        self._proxies = frozenset(map(normalize_address, settings.proxies))
        self._open: dict[LimitedProtocol, str] = {}
        self._idle: dict[LimitedProtocol, None] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def choose_head_seconds(self) -> float:
        """Return the time limit for the head of one request."""
        return self._head_seconds * (1 + _MAX_EXTRA_SHARE * JITTER.random())

    def add(self, connection: LimitedProtocol) -> bool:
        """Register a new connection; return False if there is no room and none can be made."""
        address = connection.address
        is_crowded = address not in self._proxies and self._by_address[address] >= self._per_address
        if is_crowded and not self._close_idle(address):
            return False
        if len(self._open) >= self.limit and not self._close_idle():
            return False
        self._open[connection] = address
        self._by_address[address] += 1
        self.set_idle(connection, True)
        return True

    def remove(self, connection: LimitedProtocol) -> None:
        """Forget a connection that is closed."""
        self._idle.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def set_idle(self, connection: LimitedProtocol, is_idle: bool) -> None:
        """Note whether a connection is idle; its time begins when it becomes so."""
        if not is_idle or connection not in self._open:
            self._idle.pop(connection, None)
        else:
            self._idle.setdefault(connection)

    def _close_idle(self, address: str | None = None) -> bool:
        """Cut off the connection that has been idle for longest; return whether there was one."""
        for connection in self._idle:
            if address is None or self._open[connection] == address:
                self.remove(connection)
                connection.abort()
                return True
        return False


class LimitedProtocol(H11Protocol):
    """The server's side of one connection, under the limits of its table."""

    def __init__(self, *args: Any, table: ConnectionTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = ""
        self._table = table
        self._head_timer: asyncio.TimerHandle | None = None
        self._cut_off_timer: asyncio.TimerHandle | None = None

    @property
    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = normalize_address(self.client[0]) if self.client else ""
        if self._table.add(self):
            self._start_head_timer()
            return
        log.warning("HTTP connection refused: %d are open, all of them in use", len(self._table))
        transport.write(_REFUSAL)
        self._close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
        for timer in (self._head_timer, self._cut_off_timer):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close()

    def abort(self) -> None:
        """Cut the connection off without another word."""
        self.transport.abort()

    def _update(self) -> None:
        """Start or stop the time limit of a head, after data or a response."""
        is_idle = self._is_idle
        self._table.set_idle(self, is_idle)
        if not is_idle:
            self._stop_head_timer()
        # Between two requests the keep-alive timer counts; the first byte of the next one stops it.
        elif self._head_timer is None and self.timeout_keep_alive_task is None:
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        seconds = self._table.choose_head_seconds()
        self._head_timer = self.loop.call_later(seconds, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None and not self.transport.is_closing():
            self.transport.write(_LATE)
        self._close()

    def _close(self) -> None:
        """Close the connection; cut it off if the client does not take what is left to send."""
        self.transport.close()
        if self._cut_off_timer is None:
            self._cut_off_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)


def _response(status: str, detail: ErrorDetail) -> bytes:
    body = encode_json(ErrorBody(detail))
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"Retry-After: {_RETRY_SECONDS}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


_REFUSAL: Final = _response(
    "503 Service Unavailable",
    ErrorDetail(
        message="The server has too many connections.",
        type="rate_limit_error",
        code="too_many_connections",
        hint="Close connections that you do not use, and try again.",
    ),
)
_LATE: Final = _response(
    "408 Request Timeout",
    ErrorDetail(
        message="The head of the request did not arrive in time.",
        type="invalid_request_error",
        code="head_too_slow",
        hint="Send the whole request at once.",
    ),
)
