"""Check the subject line of a commit message: `area: what changed`, at most 72 characters.

python scripts/check_commit_message.py FILE       the message in a file, as git hands it over
python scripts/check_commit_message.py --since REV every commit since a revision
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LONGEST = 72
_SUBJECT = re.compile(r"[a-z0-9][a-z0-9 _./,-]*: \S")
_MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")


def find_problems(subject: str) -> list[str]:
    """Return what is wrong with a subject line; an empty list if it is fine."""
    if subject.startswith(_MADE_BY_GIT):
        return []
    problems = []
    if len(subject) > LONGEST:
        problems.append(f"it has {len(subject)} characters, at most {LONGEST} are allowed")
    if not _SUBJECT.match(subject):
        problems.append("it does not begin with the area that changed, such as 'storage: '")
    if subject.endswith("."):
        problems.append("it ends with a full stop")
    return problems


def read_subjects(arguments: list[str]) -> list[str]:
    """Return the subject lines to check."""
    if arguments[0] == "--since":
        command = ["git", "log", "--no-merges", "--format=%s", f"{arguments[1]}..HEAD"]
        log = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        return log.stdout.splitlines()
    lines = Path(arguments[0]).read_text("utf-8").splitlines()
    return [next((line for line in lines if line and not line.startswith("#")), "")]


def main(arguments: list[str]) -> int:
    """Print every problem; return 1 if there is one."""
    is_wrong = False
    for subject in read_subjects(arguments):
        for problem in find_problems(subject):
            print(f"Commit subject “{subject}”: {problem}.", file=sys.stderr)
            is_wrong = True
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
