"""The command line. `main` is the program; it needs the packages of the `cli` extra."""

from __future__ import annotations

import sys

try:
    from tertulia.cli.entry_point import main
except ModuleNotFoundError as problem:
    if problem.name != "click":
        raise

    # The script is installed with the library, but its packages only with the extra.
    def main() -> None:  # type: ignore[misc]
        """Exit with the command that installs the missing packages."""
        sys.exit("error: The command line is not installed.\nhint: pip install 'tertulia[cli]'")


__all__ = ["main"]
