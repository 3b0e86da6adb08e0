"""List the folders of the PostgreSQL servers at hand that `make test` does not use.

    python -m tests.servers.versions

`make check` runs the promises of a store on each of them. With TEST_PG_DSN or TEST_PG_BIN the
choice was made by hand, and nothing is listed.
"""

from __future__ import annotations

import os

from tests.servers.postgres import WHEEL_FOLDERS, installed_programs, programs, wheel_programs


def main() -> None:
    """Print one folder per line."""
    if os.environ.get("TEST_PG_DSN") or os.environ.get("TEST_PG_BIN"):
        return
    candidates = [*map(wheel_programs, WHEEL_FOLDERS), installed_programs()]
    for folder in dict.fromkeys(filter(None, candidates)):
        if folder != programs():
            print(folder)


if __name__ == "__main__":
    main()
