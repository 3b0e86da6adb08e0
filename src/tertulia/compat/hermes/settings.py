"""A gateway's configuration as the settings of a store."""

from __future__ import annotations

from collections.abc import Callable

from tertulia.compat.hermes.config import GatewayConfig, SessionResetPolicy
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.settings import Settings
from tertulia.core.target import HomeChannel

# The store's idle time is above zero. That system ends a session at once at zero, so does this.
_AT_ONCE = 1 / 60_000_000


def settings_of(config: GatewayConfig, guard: Callable[[str], bool] | None) -> Settings:
    """What the configuration asks for now."""
    connected = config.get_connected_platforms()
    homes = ((one.value, config.get_home_channel(one)) for one in connected)
    return Settings(
        policies=Policies(
            default=_policy(config.default_reset_policy),
            platforms={one.value: _policy(p) for one, p in config.reset_by_platform.items()},
            chat_types={kind: _policy(p) for kind, p in config.reset_by_type.items()},
        ),
        group_sessions_per_user=config.group_sessions_per_user,
        homes={name: HomeChannel(home.chat_id, home.name) for name, home in homes if home},
        platforms=tuple(one.value for one in connected),
        has_active_processes=guard,
    )


def _policy(policy: SessionResetPolicy) -> ResetPolicy:
    minutes: float = policy.idle_minutes if policy.idle_minutes > 0 else _AT_ONCE
    return ResetPolicy(policy.mode, policy.at_hour, minutes, policy.notify)  # type: ignore[arg-type]
