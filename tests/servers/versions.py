"""Print the folder of the oldest PostgreSQL server at hand, unless `make test` uses that one.

    python -m tests.servers.versions

`make test` uses the newest; `make check` then runs the promises of a store on the oldest too, so
that both ends of the range are tested. With TEST_PG_DSN or TEST_PG_BIN the choice was made by hand,
and nothing is printed.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.servers.postgres import WHEEL_FOLDERS, installed_programs, programs, wheel_programs


def main() -> None:
    """Print the folder, if there is one."""
    if os.environ.get("TEST_PG_DSN") or os.environ.get("TEST_PG_BIN"):
        return
    folders = filter(None, [*map(wheel_programs, WHEEL_FOLDERS), installed_programs()])
    oldest = min(folders, key=_version, default=None)
    if oldest is not None and oldest != programs():
        print(oldest)


def _version(folder: Path) -> int:
    """Return the major version of the server in a folder."""
    command = [str(folder / "postgres"), "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    number = re.search(r"[0-9]+", answer)
    assert number is not None, answer
    return int(number[0])


if __name__ == "__main__":
    main()
