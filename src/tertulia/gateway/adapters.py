"""The adapters of a gateway, by platform and account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tertulia.core.source import Source
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter
from tertulia.records.queues.outbox import AccountKey


class Adapters(Mapping[AccountKey, Adapter]):
    """The adapters of one node; at most one for each account."""

    def __init__(self, adapters: Iterable[Adapter] = ()) -> None:
        self._adapters: dict[AccountKey, Adapter] = {}
        for adapter in adapters:
            key = key_of(adapter)
            if key in self._adapters:
                raise ConfigError(
                    f"Two adapters serve {describe(key)}.",
                    hint="Give each account of a platform a name of its own.",
                )
            self._adapters[key] = adapter

    def __getitem__(self, key: AccountKey) -> Adapter:
        return self._adapters[key]

    def __iter__(self) -> Iterator[AccountKey]:
        return iter(self._adapters)

    def __len__(self) -> int:
        return len(self._adapters)

    def of(self, platform: str, account: str = "") -> Adapter | None:
        """Return the adapter of an account, or None if this node does not serve it."""
        own = self._adapters.get((platform, account))
        return own or self._adapters.get((platform, None))

    def serves(self, source: Source) -> bool:
        """Return whether something can be sent to the chat of a source."""
        return self.of(source.platform, source.account) is not None

    def serves_platform(self, platform: str) -> bool:
        """Return whether any account of a platform is served."""
        return any(name == platform for name, _ in self._adapters)


def key_of(adapter: Adapter) -> AccountKey:
    """Return the platform and the account of an adapter."""
    return adapter.name, adapter.account


def describe(key: AccountKey) -> str:
    """Return `telegram`, or `telegram/work` for an account with a name."""
    name, account = key
    return f"{name}/{account}" if account else name
