"""Names of people and channels, which events of Slack do not have.

A name is asked for once an hour. An event waits for it only a moment, because it has to be
acknowledged within three seconds; a later message of the same person has the name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from tertulia.core.source import Source
from tertulia.errors import PlatformError
from tertulia.platforms.slack.web_api import WebApi

log = logging.getLogger("tertulia.platforms")

_WAIT_SECONDS = 1.0
_FRESH_SECONDS: Final = 3600.0
_MAX_NAMES: Final = 10_000

Json = Mapping[str, Any]


class Names:
    """The names of one workspace, remembered for a while."""

    def __init__(self, api: WebApi) -> None:
        self._api = api
        self._names: OrderedDict[tuple[str, str], tuple[str | None, float]] = OrderedDict()
        self._lookups: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def complete(self, source: Source) -> Source:
        """Return the source with the names of its person and its channel, if they are known.

        Only the first event waits for a lookup: those behind it must be acknowledged in time too.
        """
        wishes = []
        if source.user_id is not None and source.user_name is None:
            wishes.append(("users.info", source.user_id))
        if source.chat_type != "dm":
            wishes.append(("conversations.info", source.chat_id))
        lookups = [task for wish in wishes if (task := self._look_up(wish)) is not None]
        if lookups:
            await asyncio.wait(lookups, timeout=_WAIT_SECONDS)
        names = {method: self._names.get((method, item), (None, 0.0))[0] for method, item in wishes}
        return source.with_fields(
            user_name=source.user_name or names.get("users.info"),
            chat_name=names.get("conversations.info"),
        )

    async def close(self) -> None:
        """End the lookups in progress."""
        lookups = list(self._lookups.values())
        for task in lookups:
            task.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    def _look_up(self, wish: tuple[str, str]) -> asyncio.Task[None] | None:
        _, until = self._names.get(wish, (None, 0.0))
        if until > time.monotonic() or wish in self._lookups:
            return None
        task = asyncio.create_task(self._ask(wish))
        self._lookups[wish] = task
        task.add_done_callback(lambda _: self._lookups.pop(wish, None))
        return task

    async def _ask(self, wish: tuple[str, str]) -> None:
        method, item = wish
        parameter, read = _METHODS[method]
        name, _ = self._names.get(wish, (None, 0.0))
        try:
            name = read(await self._api.ask(method, {parameter: item}))
        except (PlatformError, UnicodeError) as problem:  # an id may be half a surrogate pair
            log.debug("slack: a name could not be read: %s", problem)
        self._names[wish] = name, time.monotonic() + _FRESH_SECONDS
        self._names.move_to_end(wish)
        while len(self._names) > _MAX_NAMES:
            self._names.popitem(last=False)


def _person_name(answer: Json) -> str | None:
    user = _as_dict(answer.get("user"))
    profile = _as_dict(user.get("profile"))
    names = (profile.get("display_name"), profile.get("real_name"), user.get("real_name"))
    return _first_text(*names, user.get("name"))


def _channel_name(answer: Json) -> str | None:
    return _first_text(_as_dict(answer.get("channel")).get("name"))


def _as_dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _first_text(*values: object) -> str | None:
    return next((value for value in values if isinstance(value, str) and value), None)


_METHODS: Final[dict[str, tuple[str, Callable[[Json], str | None]]]] = {
    "users.info": ("user", _person_name),
    "conversations.info": ("channel", _channel_name),
}
