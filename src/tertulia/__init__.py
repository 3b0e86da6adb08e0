"""Tertulia, the conversation keeper for AI agents that live in chat apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tertulia.core.budget import Budget
from tertulia.core.keys import session_key
from tertulia.core.media import Media
from tertulia.core.message import ToolCall
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.session import Notice, Page, Session
from tertulia.core.settings import Settings
from tertulia.core.source import Source
from tertulia.core.target import HomeChannel, Target
from tertulia.core.usage import Usage
from tertulia.errors import (
    AccessDenied,
    AccountProblem,
    AgentError,
    AgentFailed,
    AgentStopped,
    AgentTimeout,
    AgentUnavailable,
    BudgetExceeded,
    ConfigError,
    Conflict,
    ContextOverflow,
    Duplicate,
    Error,
    IllegalMove,
    LeaseLost,
    LimitExceeded,
    NotAStore,
    NotFound,
    OutcomeUnknown,
    PlaceUnavailable,
    PlatformError,
    PlatformUnavailable,
    ProcessCheckFailed,
    RateLimited,
    RecipientAway,
    Refused,
    SchemaMismatch,
    SessionBusy,
    StaleWrite,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooLarge,
)
from tertulia.records.turns.turn import Turn
from tertulia.store import Store
from tertulia.store import open as open  # not in __all__: a star import must not hide the builtin
from tertulia.version import __version__

if TYPE_CHECKING:
    from tertulia import aio as aio

__all__ = [
    "AccessDenied",
    "AccountProblem",
    "AgentError",
    "AgentFailed",
    "AgentStopped",
    "AgentTimeout",
    "AgentUnavailable",
    "Budget",
    "BudgetExceeded",
    "ConfigError",
    "Conflict",
    "ContextOverflow",
    "Duplicate",
    "Error",
    "HomeChannel",
    "IllegalMove",
    "LeaseLost",
    "LimitExceeded",
    "Media",
    "NotAStore",
    "NotFound",
    "Notice",
    "OutcomeUnknown",
    "Page",
    "PlaceUnavailable",
    "PlatformError",
    "PlatformUnavailable",
    "Policies",
    "ProcessCheckFailed",
    "RateLimited",
    "RecipientAway",
    "Refused",
    "ResetPolicy",
    "SchemaMismatch",
    "Session",
    "SessionBusy",
    "Settings",
    "Source",
    "StaleWrite",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "Target",
    "TooLarge",
    "ToolCall",
    "Turn",
    "Usage",
    "__version__",
    "session_key",
]


def __getattr__(name: str) -> Any:
    # asyncio is loaded for those who use it only.
    if name == "aio":
        import tertulia.aio

        return tertulia.aio
    raise AttributeError(f"module 'tertulia' has no attribute {name!r}")
