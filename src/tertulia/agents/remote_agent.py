"""Base of the agents behind a server: the connection, and the loop that runs the tools of steps."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Generic, NamedTuple, TypeVar

from tertulia.agents.agent_options import RemoteOptions
from tertulia.agents.base import Event, Request
from tertulia.agents.cancellation import StopWatcher
from tertulia.agents.tool_loop import run_tool_loop
from tertulia.agents.transport import Sleep, Transport

O = TypeVar("O", bound=RemoteOptions)  # noqa: E741


class Endpoint(NamedTuple):
    """The address of a server, the headers that it always needs, and the secrets in them.

    `key_hint` says where to look if the server refuses the key.
    """

    url: str
    headers: dict[str, str]
    secrets: tuple[str, ...] = ()
    key_hint: str | None = None


class RemoteAgent(ABC, Generic[O]):
    """Base class of the agents behind a server."""

    def __init__(
        self,
        options: O,
        *,
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = options.kind
        self._options = options
        endpoint = self._endpoint()
        self._transport = Transport(
            endpoint.url,
            headers={**endpoint.headers, **options.headers},
            secrets=(*endpoint.secrets, *options.headers.values()),
            key_hint=endpoint.key_hint,
            limits=options.limits,
            retry=options.retry,
            sleep=sleep,
            chance=chance,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.display_url})"

    @property
    def history_tokens(self) -> int | None:
        """The largest history that is sent, in tokens; None if it is not limited."""
        return self._options.history_tokens

    async def close(self) -> None:
        """Close connections."""
        await self._transport.close()

    def run(self, request: Request) -> AsyncGenerator[Event, None]:
        """Answer a request; yield events."""
        return run_tool_loop(
            self._generate_step,
            request,
            max_steps=self._options.max_steps,
            tool_seconds=self._options.tool_seconds,
        )

    @abstractmethod
    def _endpoint(self) -> Endpoint:
        """Return the server that the options name."""

    @abstractmethod
    def _generate_step(self, request: Request, watcher: StopWatcher) -> AsyncGenerator[Event, None]:
        """Call the server, with retries; yield its events, the step last."""
