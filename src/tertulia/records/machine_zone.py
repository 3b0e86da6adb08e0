"""The time zone of the machine: people read times in it, and stores may use it."""

from __future__ import annotations

import contextlib
import os
from datetime import tzinfo

from tertulia.core.settings import require_zone
from tertulia.errors import ConfigError


def machine_zone() -> tzinfo:
    """Return the machine's time zone by its name; raise `ConfigError` if it is unknown.

    On most Unix systems /etc/localtime is a link that names it; reading that needs no tzlocal.
    """
    if not os.environ.get("TZ"):
        with contextlib.suppress(OSError, ConfigError):
            _, separator, name = os.readlink("/etc/localtime").partition("/zoneinfo/")
            if separator:
                return require_zone(name)
    import tzlocal

    try:
        return tzlocal.get_localzone()
    except (LookupError, ValueError, OSError) as problem:
        raise ConfigError(
            f"The machine's time zone {os.environ.get('TZ', '')!r} is not known.",
            hint="Set TZ to a name of the IANA list, such as Europe/Madrid or UTC.",
            field="TZ",
        ) from problem
