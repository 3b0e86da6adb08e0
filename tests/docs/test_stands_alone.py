"""The project is read by strangers on machines nobody knows: it must make sense there.

No file names a machine's folders, a package registry, or papers that are not part of the project;
links lead somewhere; what `make setup` installs is fixed by hash.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, prose

# Each needle is put together here, so that this file does not contain it.
MACHINE_PATHS = ["/" + "work/", "/" + "root/", "/" + "tmp/lab", "/" + "home/", "/" + "Users/"]
REGISTRIES = ["py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com"]
REGISTRIES += ["--" + "index-url", "--extra-" + "index-url", "--" + "find-links"]
PAPERS = [name + ".md" for name in ("SP" + "EC", "DES" + "IGN", "STY" + "LE", "PA" + "INS")]
PAPERS += ["DEPEN" + "DENCIES.md", "SP" + "EC §", "DES" + "IGN §", "../" + "shared"]
MAKING = ["sub" + "agent", "sub-" + "agent", "co-authored" + "-by", "generated " + "with ["]
MAKING += [
    "generated " + "by an ai",
    "written " + "by an ai",
    "helper " + "session",
    "issues " + "show",
]

NEEDLES = re.compile("|".join(map(re.escape, MACHINE_PATHS + REGISTRIES + PAPERS)))
WORDS = re.compile("|".join(map(re.escape, MAKING)), re.IGNORECASE)

LINK = re.compile(
    r"!?\[[^\]]*\]\(\s*<?([^)>\s]+)>?[^)]*\)|^\[[^\]]+\]:\s*<?([^>\s]+)", re.MULTILINE
)


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the project cannot be told from the rest")
    found = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in found if path.is_file()]


@pytest.mark.check
def test_no_file_speaks_of_where_and_how_it_was_made() -> None:
    wrong = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate([name, *text.splitlines()]):
            match = NEEDLES.search(line) or WORDS.search(line)
            if match:
                wrong.append(f"{name}:{number}: {match[0]}")
    assert not wrong, "\n".join(wrong)


def test_relative_links_lead_to_files() -> None:
    wrong = []
    for path in [p for p in tracked() if p.suffix == ".md"]:
        for inline, reference in LINK.findall(prose(path.read_text("utf-8"))):
            target = (inline or reference).partition("#")[0]
            if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            if not (path.parent / target).resolve().is_relative_to(ROOT):
                wrong.append(f"{path.relative_to(ROOT)}: {target} leads out of the project")
            elif not (path.parent / target).exists():
                wrong.append(f"{path.relative_to(ROOT)}: {target} does not exist")
    assert not wrong, "\n".join(wrong)


class TestLock:
    text = (ROOT / "requirements.lock").read_text("utf-8")

    def test_everything_has_a_hash_and_nothing_a_place(self) -> None:
        entries = re.findall(r"^(?=\S)(?!#).*(?:\n .*)*", self.text, re.MULTILINE)
        assert entries
        for entry in entries:
            assert re.match(r"[a-z0-9-]+==[^\s;]+( ; .+)? \\$", entry, re.MULTILINE), entry
            assert "--hash=sha256:" in entry
        assert "://" not in self.text

    def test_it_has_everything_the_project_asks_for(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        asked = [
            *project["build-system"]["requires"],
            *project["project"]["dependencies"],
            *(r for extra in project["project"]["optional-dependencies"].values() for r in extra),
            *(r for group in project["dependency-groups"].values() for r in group),
        ]
        names = {
            re.sub(r"[._-]+", "-", re.match(r"[A-Za-z0-9._-]+", one)[0]).lower()  # type: ignore[index]
            for one in asked
        }
        locked = set(re.findall(r"^([a-z0-9-]+)==", self.text, re.MULTILINE))
        assert names - locked - {"tertulia"} == set(), "run: make lock"
