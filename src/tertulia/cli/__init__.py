"""The command line. `main` is the program; it needs the packages of the `cli` extra."""

from __future__ import annotations

import sys

from tertulia.install_command import install_command

try:
    from tertulia.cli.entry_point import main
except ModuleNotFoundError as problem:
    if problem.name != "click":
        raise

    # The script is installed with the library, but its packages only with the extra.
    def main() -> None:  # type: ignore[misc]
        """Exit with the command that installs the missing packages."""
        command = install_command("cli")
        sys.exit(f"error: The command line is not installed.\nhint: Install it: {command}")


__all__ = ["main"]
