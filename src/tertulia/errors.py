"""Every error Tertulia raises.

    Error                     code, hint, retryable
    ├── ConfigError           a setting or an argument is not allowed
    ├── NotFound              nothing stands under that id
    ├── Conflict              somebody else was first
    │   ├── SessionBusy       another turn holds the session
    │   ├── StaleWrite        the row changed since it was read
    │   ├── LeaseLost         another holder took the session over
    │   └── Duplicate         the name or id is taken
    ├── IllegalMove           the operation makes no sense in this state
    ├── StoreError            the database said no
    │   ├── StoreUnavailable  locked, unreachable or read-only: try again later
    │   ├── StoreFull         no space left
    │   ├── StoreCorrupt      the file is damaged
    │   ├── NotAStore         the file is something else
    │   └── SchemaMismatch    the store is older or newer than this program
    ├── PlatformError         a chat platform did not take what it was sent
    │   ├── PlatformUnavailable  it cannot be reached: try again later
    │   ├── RateLimited       it wants a pause of `retry_after` seconds
    │   ├── TooLarge          the message is longer than it takes
    │   ├── Refused           it will never take it: the bot was blocked, the chat is gone
    │   └── OutcomeUnknown    nobody can say whether it arrived
    ├── AgentError            the agent, or a model it asked, gave no answer
    │   ├── AgentTimeout      it took too long
    │   ├── AgentStopped      it was told to stop
    │   ├── AgentUnavailable  it cannot be reached, or has too much to do: try again later
    │   ├── AgentFailed       it failed, or what it gave cannot be used
    │   └── ContextOverflow   it was given more than its model can read
    ├── PlaceUnavailable      where programs run cannot be reached: try again later
    ├── AccessDenied          not yours
    └── BudgetExceeded        the limit is spent

Code that retries looks at `retryable` (and `retry_after`, where an error has one) and at nothing
else; nobody reads the text of an error to decide.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Error(Exception):
    """Something went wrong in Tertulia."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, *, hint: str | None = None, **data: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.hint = hint
        self.data = data
        super().__init__(self.message if hint is None else f"{self.message} {hint}")

    def __getattr__(self, name: str) -> Any:
        # What an error knows (`field`, `retry_after`, …) is read like an attribute of it.
        try:
            return self.__dict__["data"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.data)


def _rebuild(kind: type[Error], message: str, hint: str | None, data: dict[str, Any]) -> Error:
    return kind(message, hint=hint, **data)


class ConfigError(Error):
    """A setting or an argument is not allowed."""

    code = "config"


class NotFound(Error):
    """Nothing stands under that id."""

    code = "not_found"


class Conflict(Error):
    """Somebody else was first."""

    code = "conflict"


class SessionBusy(Conflict):
    """Another turn holds the session."""

    code = "session_busy"
    retryable = True


class StaleWrite(Conflict):
    """The row changed since it was read."""

    code = "stale_write"
    retryable = True


class LeaseLost(Conflict):
    """Another holder took the session over."""

    code = "lease_lost"


class Duplicate(Conflict):
    """The name or id is taken."""

    code = "duplicate"


class IllegalMove(Error):
    """The operation makes no sense in this state."""

    code = "illegal_move"


class StoreError(Error):
    """The database said no."""

    code = "store"


class StoreUnavailable(StoreError):
    """The store cannot be reached now."""

    code = "store_unavailable"
    retryable = True


class StoreFull(StoreError):
    """There is no space left for the store."""

    code = "store_full"
    retryable = True


class StoreCorrupt(StoreError):
    """The store is damaged."""

    code = "store_corrupt"


class NotAStore(StoreError):
    """This is not a Tertulia store."""

    code = "not_a_store"


class SchemaMismatch(StoreError):
    """The store and this program are of different versions."""

    code = "schema_mismatch"


class PlatformError(Error):
    """The platform did not take the message."""

    code = "platform"


class PlatformUnavailable(PlatformError):
    """The platform cannot be reached now."""

    code = "platform_unavailable"
    retryable = True


class RateLimited(PlatformError):
    """The platform wants a pause."""

    code = "rate_limited"
    retryable = True


class TooLarge(PlatformError):
    """The message is too long for the platform."""

    code = "too_large"


class Refused(PlatformError):
    """The platform will never take this."""

    code = "refused"


class OutcomeUnknown(PlatformError):
    """Nobody can say whether the message arrived."""

    code = "outcome_unknown"


class AgentError(Error):
    """The agent gave no answer."""

    code = "agent"


class AgentTimeout(AgentError):
    """The agent took too long."""

    code = "agent_timeout"
    retryable = True


class AgentStopped(AgentError):
    """The agent was stopped."""

    code = "agent_stopped"


class AgentUnavailable(AgentError):
    """The agent cannot be reached now."""

    code = "agent_unavailable"
    retryable = True


class AgentFailed(AgentError):
    """The agent failed."""

    code = "agent_failed"


class ContextOverflow(AgentError):
    """The conversation is longer than the model can read."""

    code = "context_overflow"


class PlaceUnavailable(Error):
    """The place where programs run cannot be reached now."""

    code = "place_unavailable"
    retryable = True


class AccessDenied(Error):
    """This is not yours to see or change."""

    code = "access_denied"


class BudgetExceeded(Error):
    """The limit is spent."""

    code = "budget_exceeded"
