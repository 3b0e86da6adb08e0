"""Look for known weaknesses of the locked dependencies, with pip-audit.

    python scripts/audit_dependencies.py

Exit with 1 if one is known. Without a network, or without pip-audit, there is no data: say so, and
exit with 0, because nothing was found and nothing was looked at either.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-run.lock", "requirements-postgres.lock")
_SECONDS = 300


def audit(lock: Path) -> dict[str, Any] | str:
    """Return the report of pip-audit for a lock file, or why there is none."""
    command = [
        *(sys.executable, "-m", "uv", "tool", "run", "--quiet", "pip-audit"),
        *("--requirement", str(lock), "--no-deps", "--disable-pip", "--format", "json"),
    ]
    try:
        result = subprocess.run(  # noqa: S603 — our own command
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    try:
        report: dict[str, Any] = json.loads(result.stdout)
    except ValueError:
        lines = result.stderr.strip().splitlines()
        return lines[-1] if lines else f"pip-audit ended with {result.returncode}"
    return report


def weaknesses(report: dict[str, Any]) -> list[str]:
    """Return a line for each known weakness in a report."""
    return [
        f"{package['name']} {package.get('version', '')}: {entry['id']}"
        f" (fixed in {', '.join(entry.get('fix_versions') or ['no release'])})"
        for package in report.get("dependencies", ())
        for entry in package.get("vulns", ())
    ]


def unchecked(report: dict[str, Any]) -> list[str]:
    """Return the packages in a report that pip-audit could not look up."""
    return [
        package["name"] for package in report.get("dependencies", ()) if "skip_reason" in package
    ]


def main() -> int:
    """Print what is known about each lock file; return the exit code."""
    lines: set[str] = set()
    for name in LOCKS:
        report = audit(ROOT / name)
        if isinstance(report, str):
            print(f"{name}: NOT CHECKED, there is no data: {report}")
            continue
        entries, skipped = weaknesses(report), unchecked(report)
        count = len(report.get("dependencies", ())) - len(skipped)
        if count == 0:
            print(f"{name}: NOT CHECKED, there is no data on its {len(skipped)} packages")
            continue
        print(f"{name}: {count} packages, {len(entries)} known weaknesses")
        if skipped:
            print(f"{name}: NOT CHECKED, there is no data: {', '.join(skipped)}")
        lines.update(entries)
    for line in sorted(lines):
        print(f"  {line}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
