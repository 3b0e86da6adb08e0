"""Files of messages: fetched from the platform before the turn, read from the store to be sent.

A file that is too large, gone or out of reach does not stop the turn: the agent reads why in the
message, and the person is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tertulia import aio
from tertulia.core.media import Media
from tertulia.core.source import Source
from tertulia.errors import Error, PlatformError, Refused, TooLarge
from tertulia.gateway.adapters import Adapters
from tertulia.gateway.settings import GatewaySettings
from tertulia.platforms.base import Adapter

log = logging.getLogger("tertulia.gateway")

_FETCH_SECONDS = 60.0
_MEGABYTE = 1_000_000


class MediaFetcher:
    """Fetches the files of messages into the store."""

    def __init__(self, store: aio.Store, adapters: Adapters, settings: GatewaySettings) -> None:
        self._store = store
        self._adapters = adapters
        self._settings = settings

    async def fetch_all(self, source: Source, files: Sequence[Any]) -> list[Any]:
        """Return the files of a message as they are stored with it, one after the other."""
        return [await self._fetch(source, file) for file in files]

    async def _fetch(self, source: Source, file: Any) -> Any:
        if not isinstance(file, dict) or file.get("hash") or not file.get("source"):
            return file  # stored already, or not a file of a platform
        adapter = self._adapters.of(source.platform, source.account)
        if adapter is None:
            return file
        media = Media.from_dict(file)
        limit = self.max_bytes(source)
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                content = await _read(adapter, media, limit)
            stored = await self._store.media.put(content, name=media.name, type=media.type)
        except TooLarge:
            problem = f"it is larger than {limit / _MEGABYTE:g} MB"
        except Refused:
            problem = "it is no longer there"
        except (PlatformError, TimeoutError) as failure:
            log.warning("a file of %s could not be fetched: %r", source.platform, failure)
            problem = "it could not be fetched"
        except Error:
            raise  # the store's own: the message is tried again
        except Exception:
            log.exception("the adapter of %s has a bug, file skipped", source.platform)
            problem = "it could not be fetched"
        else:
            return replace(stored, source=media.source).to_dict()
        return replace(media, problem=problem).to_dict()

    def max_bytes(self, source: Source) -> int:
        """Return the largest file that is received or sent in a chat."""
        settings = self._settings.of(source.platform, source.account)
        return int(settings.max_file_mb * _MEGABYTE)


async def _read(adapter: Adapter, media: Media, limit: int) -> bytes:
    """Return the bytes of a file; raise `TooLarge` as soon as there are more than `limit`."""
    if media.size is not None and media.size > limit:
        raise _too_large(limit)
    chunks, size = [], 0
    stream = adapter.fetch(media)
    try:
        async for chunk in stream:
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
    finally:
        await stream.aclose()
    return b"".join(chunks)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The file has more than {limit:,} bytes.", hint="Raise max_file_mb.")
