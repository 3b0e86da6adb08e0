"""The HTTP library of the adapters, and the base of the classes that call a platform's API.

The library is imported when it is needed, with secrets kept out of its log: some platforms want a
secret in the address of a request, and the library logs addresses.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from tertulia.errors import ConfigError, OutcomeUnknown, PlatformError, PlatformUnavailable
from tertulia.install_command import install_command

if TYPE_CHECKING:
    import httpx2

# Sends that an account has in progress at once, and connections that are kept open for them.
MAX_SENDS: Final = 16
CONNECT_SECONDS: Final = 10.0
# A body that nobody needs is read for so long, because then its connection can be used again.
_LEFT_SECONDS: Final = 1.0
# The loggers of the library that write URLs, in requests or in the headers of answers.
_LOGGERS: Final = ("httpx2", "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy")

LogFilter = Callable[[logging.LogRecord], bool]


@cache  # it is asked for with every request
def load_library(
    platform: str, *, modules: tuple[str, ...] = (), log_filter: LogFilter | None = None
) -> Any:
    """Return the HTTP library; raise `ConfigError` if it, or one of the modules, is missing.

    `log_filter` hides the secrets of the platform in the log lines of the library.
    """
    try:
        import httpx2

        for name in modules:
            importlib.import_module(name)
    except ImportError as problem:
        raise ConfigError(
            f"{platform} needs {problem.name or 'httpx2'}, which is not installed.",
            hint=f"Install it: {install_command('gateway')}",
        ) from problem
    if log_filter is not None:
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(log_filter)  # a filter is added once
    return httpx2


class PathMissing(PlatformUnavailable):
    """The server does not know this path, or something before it does not pass it on.

    Some servers answer such a path with 200 and a value of another form.
    """

    code = "path_missing"


class HttpApi:
    """The API of a platform for one account. Its client is opened with the first request.

    `import_library` returns the HTTP library, and `headers` go with every request. A subclass names
    its platform as `service`, and may change the hints of the errors.
    """

    service: ClassVar[str]
    hint_unreachable: ClassVar[str] = "Check the connection to the network, and base_url."
    hint_unknown: ClassVar[str] = "Look into the chat whether it arrived."

    def __init__(
        self,
        base_url: str,
        import_library: Callable[[], Any],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._import_library = import_library
        self._headers = headers
        self._client: httpx2.AsyncClient | None = None
        # Taken by each request that sends a message.
        self._room = asyncio.Semaphore(MAX_SENDS)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._base_url}>"

    @property
    def is_busy(self) -> bool:
        """Return whether messages wait for others to be sent."""
        return self._room.locked()

    def open_client(self) -> Any:
        """Return the HTTP client; raise `ConfigError` if the library is not installed."""
        if self._client is None:
            self._client = self._new_client()
        return self._client

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def exchange(
        self, method: str, url: str, *, reads_body: bool = True, **options: Any
    ) -> Any:
        """Send a request and return its answer with the whole body; raise the library's errors.

        Without `reads_body` the status and the headers are the answer, and a body that is slow or
        cut off is left. The library applies its `timeout` to each piece that is read, so that a
        body which comes byte by byte would never end. Here it is the limit of the whole body too.
        """
        library, client = self._import_library(), self.open_client()
        request = client.build_request(method, url, **options)
        answer = await client.send(request, stream=True)
        try:
            seconds = request.extensions["timeout"]["read"] if reads_body else _LEFT_SECONDS
            async with asyncio.timeout(seconds):
                await answer.aread()
        except TimeoutError:
            if reads_body:
                raise library.ReadTimeout("The body does not end.", request=request) from None
        except library.HTTPError:
            if reads_body:
                raise
        finally:
            await answer.aclose()
        return answer

    async def _request(self, method: str, url: str, *, seconds: float, **options: Any) -> Any:
        """Send a request and return its answer; once connected, it may take `seconds`.

        Raise `PlatformUnavailable` if the server was not reached, `OutcomeUnknown` if it did not
        answer. Neither has the error of the library behind it: that one may show a secret.
        """
        library = self._import_library()
        problem: PlatformError
        try:
            return await self.exchange(method, url, timeout=self._timeout(seconds), **options)
        except (library.ConnectError, library.ConnectTimeout, library.PoolTimeout) as failure:
            problem = self._unreachable(failure)
        except (library.HTTPError, library.InvalidURL) as failure:
            problem = OutcomeUnknown(
                f"{self.service} did not answer ({type(failure).__name__}).", hint=self.hint_unknown
            )
        raise problem

    def _unreachable(self, failure: Exception) -> PlatformUnavailable:
        return PlatformUnavailable(
            f"{self.service} cannot be reached ({type(failure).__name__}).",
            hint=self.hint_unreachable,
        )

    def _new_client(self) -> Any:
        return new_client(self._import_library(), self._base_url, self._headers)

    def _timeout(self, seconds: float) -> Any:
        """Return the limits of a request that may take so long after it is connected."""
        library = self._import_library()
        return library.Timeout(seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)


def new_client(library: Any, base_url: str, headers: Mapping[str, str] | None = None) -> Any:
    """Return a client for one server."""
    from tertulia.platforms.http_transport import HttpTransport  # it imports the library

    # Reading certificates costs 30 ms at the start, which a local server does not need.
    tls = library.create_ssl_context() if base_url.startswith("https:") else None
    mounts = None
    if not getproxies().keys() - {"no"}:
        transport = HttpTransport(tls, MAX_SENDS)
        mounts = {"http://": transport, "https://": transport}
    limits = library.Limits(max_connections=None, max_keepalive_connections=MAX_SENDS)
    return library.AsyncClient(mounts=mounts, limits=limits, verify=tls or False, headers=headers)


def may_get_credentials(url: str, base_url: str, hosts: Sequence[str]) -> bool:
    """Return whether the address of a file may be asked with the credentials of a platform.

    It may if it is on the host of `base_url`, or below one of `hosts` and encrypted.
    """
    try:
        address, base = urlsplit(url), urlsplit(base_url)
        host = address.hostname or ""
    except ValueError:
        return False
    if host == base.hostname:
        return address.scheme == base.scheme
    is_known = any(host == name or host.endswith(f".{name}") for name in hosts)
    return is_known and address.scheme == "https"
