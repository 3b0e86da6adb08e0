"""Convert a gateway's configuration to the settings of a store."""

from __future__ import annotations

from collections.abc import Callable

from tertulia.compat.hermes.config import GatewayConfig, SessionResetPolicy
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.core.settings import Settings
from tertulia.core.target import HomeChannel

# The store requires an idle time above zero. Hermes Agent ends a session at once if it is zero;
# one microsecond has the same effect.
_ONE_MICROSECOND_IN_MINUTES = 1 / 60_000_000


def settings_of(config: GatewayConfig, guard: Callable[[str], bool] | None) -> Settings:
    """Return the settings that the configuration describes now."""
    connected = config.get_connected_platforms()
    homes = ((platform.value, config.get_home_channel(platform)) for platform in connected)
    return Settings(
        policies=Policies(
            default=_policy(config.default_reset_policy),
            platforms={
                platform.value: _policy(policy)
                for platform, policy in config.reset_by_platform.items()
            },
            chat_types={kind: _policy(policy) for kind, policy in config.reset_by_type.items()},
        ),
        group_sessions_per_user=config.group_sessions_per_user,
        homes={name: HomeChannel(home.chat_id, home.name) for name, home in homes if home},
        platforms=tuple(platform.value for platform in connected),
        has_active_processes=guard,
    )


def _policy(policy: SessionResetPolicy) -> ResetPolicy:
    minutes: float = policy.idle_minutes if policy.idle_minutes > 0 else _ONE_MICROSECOND_IN_MINUTES
    return ResetPolicy(policy.mode, policy.at_hour, minutes, policy.notify)  # type: ignore[arg-type]
