"""Contract suites that a store, an agent and an adapter must pass. Needs pytest."""

from __future__ import annotations

import pytest

# With assert rewriting, a failed promise shows its values, as in a test file.
pytest.register_assert_rewrite(
    "tertulia.testing.adapter_contract",
    "tertulia.testing.agent_contract",
    "tertulia.testing.database_promises",
    "tertulia.testing.session_expiry_promises",
    "tertulia.testing.session_find_promises",
    "tertulia.testing.process_promises",
    "tertulia.testing.deletion_promises",
    "tertulia.testing.search_promises",
    "tertulia.testing.session_promises",
    "tertulia.testing.scripted_gateway",
    "tertulia.testing.transcript_promises",
    "tertulia.testing.usage_promises",
)

from tertulia.testing.adapter_contract import AdapterContract  # noqa: E402
from tertulia.testing.agent_contract import AgentContract  # noqa: E402
from tertulia.testing.fake_clock import FakeClock  # noqa: E402
from tertulia.testing.fixtures import Handles  # noqa: E402
from tertulia.testing.store_contract import StoreContract  # noqa: E402

__all__ = ["AdapterContract", "AgentContract", "FakeClock", "Handles", "StoreContract"]
