"""Contract suites that a store, an agent and an adapter must pass. Needs pytest."""

from __future__ import annotations

import pkgutil

import pytest

# With assert rewriting, a failed promise shows its values, as in a test file.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__))
)

from tertulia.testing.adapter_contract import AdapterContract  # noqa: E402
from tertulia.testing.agent_contract import AgentContract  # noqa: E402
from tertulia.testing.fake_clock import FakeClock  # noqa: E402
from tertulia.testing.fixtures import Handles  # noqa: E402
from tertulia.testing.store_contract import StoreContract  # noqa: E402

__all__ = ["AdapterContract", "AgentContract", "FakeClock", "Handles", "StoreContract"]
