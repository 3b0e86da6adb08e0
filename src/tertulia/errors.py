"""Every error Tertulia raises.

    Error                     code, hint, retryable
    ├── ConfigError           a setting or an argument is not allowed
    ├── NotFound              no object with that id
    ├── Conflict              another writer changed the data first
    │   ├── SessionBusy       another turn has the lease of the session
    │   ├── StaleWrite        the row changed after it was read
    │   ├── LeaseLost         another holder took the lease of the session
    │   └── Duplicate         the name or id is already in use
    ├── IllegalMove           the operation is not possible in the current state
    ├── StoreError            the database reported an error
    │   ├── StoreUnavailable  locked, unreachable or read-only: try again later
    │   ├── StoreFull         no space left
    │   ├── StoreCorrupt      the file is damaged
    │   ├── NotAStore         the file is not a Tertulia store
    │   └── SchemaMismatch    the store is older or newer than this program
    ├── PlatformError         a chat platform did not accept a message
    │   ├── PlatformUnavailable  it cannot be reached: try again later
    │   │   └── RecipientAway    nobody is there to receive it: it waits until somebody is
    │   ├── RateLimited       it asks to wait `retry_after` seconds
    │   ├── TooLarge          the message is longer than it accepts
    │   ├── Refused           it will never accept it: the bot was blocked, the chat is gone
    │   ├── OutcomeUnknown    it is unknown whether the message arrived
    │   └── AccountProblem    it refuses the account itself, for example its token
    ├── AgentError            the agent, or the model it called, gave no answer
    │   ├── AgentTimeout      it took too long
    │   ├── AgentStopped      it was stopped on request
    │   ├── AgentUnavailable  it cannot be reached or is overloaded: try again later
    │   ├── AgentFailed       it failed, or its answer cannot be used
    │   └── ContextOverflow   the conversation is longer than its model accepts
    ├── ProcessCheckFailed    `has_active_processes`, a function of the program, failed
    ├── PlaceUnavailable      the environment that runs programs cannot be reached: try again later
    ├── AccessDenied          the caller may not read or change this
    ├── BudgetExceeded        the budget is used up
    └── LimitExceeded         too much at once: try again after `retry_after` seconds

Code that retries reads `retryable` (and `retry_after`, if the error has one) and nothing else. No
code reads the text of an error to decide. The docstring of a class is its default message.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Error(Exception):
    """Tertulia reported an error."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    # The seconds to wait before another attempt, if they are known.
    retry_after: float | None = None

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, **details: Any
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.hint = hint
        # A class declares the details that its code sets; a subclass elsewhere may have its own.
        vars(self).update(details)
        super().__init__(self.message if hint is None else f"{self.message} {hint}")

    @property
    def data(self) -> dict[str, Any]:
        """Return the details of this error by name (`field`, `retry_after`, …)."""
        own = ("message", "hint", "__notes__")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.data)


def _rebuild(kind: type[Error], message: str, hint: str | None, details: dict[str, Any]) -> Error:
    return kind(message, hint=hint, **details)


class ConfigError(Error):
    """A setting or an argument is not allowed."""

    code = "config"
    field: str | None = None  # the setting or argument
    extra: str | None = None  # the extra of the package to install


class NotFound(Error):
    """No object with that id."""

    code = "not_found"
    session_id: str | None = None


class Conflict(Error):
    """Another writer changed the data first."""

    code = "conflict"


class SessionBusy(Conflict):
    """Another turn is running in the session."""

    code = "session_busy"
    retryable = True
    key: str | None = None


class StaleWrite(Conflict):
    """The row changed after it was read."""

    code = "stale_write"
    retryable = True
    version: int | None = None  # of the stored row


class LeaseLost(Conflict):
    """Another holder took the lease of the session."""

    code = "lease_lost"
    session_id: str | None = None


class Duplicate(Conflict):
    """The name or id is already in use."""

    code = "duplicate"


class IllegalMove(Error):
    """The operation is not possible in the current state."""

    code = "illegal_move"
    session_id: str | None = None


class StoreError(Error):
    """The database reported an error."""

    code = "store"
    where: str | None = None  # the address, without secrets


class StoreUnavailable(StoreError):
    """The store is not available now."""

    code = "store_unavailable"
    retryable = True
    outcome: str | None = None


class StoreFull(StoreError):
    """No space is left for the store."""

    code = "store_full"
    retryable = True


class StoreCorrupt(StoreError):
    """The store is damaged."""

    code = "store_corrupt"


class NotAStore(StoreError):
    """Not a Tertulia store."""

    code = "not_a_store"


class SchemaMismatch(StoreError):
    """The store was made by a different version of Tertulia."""

    code = "schema_mismatch"


class PlatformError(Error):
    """The platform did not accept the message."""

    code = "platform"


class PlatformUnavailable(PlatformError):
    """The platform cannot be reached now."""

    code = "platform_unavailable"
    retryable = True


class RecipientAway(PlatformUnavailable):
    """Nobody is there to receive the message."""

    code = "recipient_away"


class RateLimited(PlatformError):
    """The platform limits the rate of messages."""

    code = "rate_limited"
    retryable = True
    retry_after: float = 1.0


class TooLarge(PlatformError):
    """The message is too long for the platform."""

    code = "too_large"


class Refused(PlatformError):
    """The platform refused the message for good."""

    code = "refused"
    status: int | None = None  # of the HTTP response


class OutcomeUnknown(PlatformError):
    """It is unknown whether the message arrived."""

    code = "outcome_unknown"


class AccountProblem(PlatformError):
    """The platform refuses the account."""

    code = "account_problem"
    retryable = True


class AgentError(Error):
    """The agent gave no answer."""

    code = "agent"
    status: int | None = None  # of the HTTP response
    reason: str | None = None  # the error code of the provider
    exit_code: int | None = None  # of the program
    partial: str | None = None  # the text that was streamed before the failure


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
    """The conversation is longer than the model accepts."""

    code = "context_overflow"


class ProcessCheckFailed(Error):
    """Whether the conversation has running programs cannot be told."""

    code = "process_check_failed"


class PlaceUnavailable(Error):
    """The environment that runs programs cannot be reached now."""

    code = "place_unavailable"
    retryable = True


class AccessDenied(Error):
    """You may not read or change this."""

    code = "access_denied"
    role: str | None = None


class BudgetExceeded(Error):
    """The budget is used up."""

    code = "budget_exceeded"
    per: str | None = None
    period: str | None = None


class LimitExceeded(Error):
    """Too much at once."""

    code = "limit_exceeded"
    retryable = True
    retry_after: float = 1.0
