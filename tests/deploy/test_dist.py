"""What `make dist` builds installs and runs where nothing else of the project is."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

pytestmark = pytest.mark.check

UV = Path(sys.executable).parent / "uv"


def _run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs' folder of an environment with the wheel and its extra `all` alone."""
    folder = tmp_path_factory.mktemp("clean")
    _run(UV, "venv", "--quiet", "--python", sys.executable, folder / "env", cwd=folder)
    # The versions are those of the lock, so that a new release elsewhere breaks nothing here.
    requirement = f"tertulia[all] @ {wheel.as_uri()}"
    _run(
        *(UV, "pip", "install", "--quiet", "--python", folder / "env/bin/python"),
        *("--constraint", ROOT / "requirements.lock", requirement),
        cwd=folder,
    )
    return folder / "env/bin"


def _clean(
    installed: Path, home: Path, *command: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(installed / "tertulia"), *command],
        cwd=home,
        input=text,
        capture_output=True,
        text=True,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        check=False,
    )


def test_program_runs_in_a_clean_environment(installed: Path, tmp_path: Path) -> None:
    for command, text, expected in (
        (["--version"], "", "tertulia"),
        (["ask", "Where am I?"], "", "Where am I?"),
        (["chat"], "hello\n", "hello"),
        (["sessions", "list"], "", "terminal"),
        (["doctor"], "", "SQLite"),
        (["store", "check"], "", "has no faults"),
    ):
        done = _clean(installed, tmp_path, *command, text=text)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert expected in done.stdout, command
    # `run` without a terminal and without a platform says what is missing instead of failing oddly.
    done = _clean(installed, tmp_path, "config", "init", "--agent", "parrot")
    assert done.returncode == 0, done.stderr
    assert _clean(installed, tmp_path, "config", "check").returncode == 0


def test_hint_names_the_wheel_it_was_installed_from(
    installed: Path, wheel: Path, tmp_path: Path
) -> None:
    program = "from tertulia.install_command import install_command; print(install_command('http'))"
    python = str(installed / "python")
    printed = _run(python, "-c", program, cwd=tmp_path)
    assert printed == f"{python} -m pip install 'tertulia[http] @ {wheel.as_uri()}'\n"


def test_manual_page_and_completion_are_installed(installed: Path) -> None:
    share = installed.parent / "share"
    for name in (
        "man/man1/tertulia.1",
        "bash-completion/completions/tertulia",
        "zsh/site-functions/_tertulia",
        "fish/vendor_completions.d/tertulia.fish",
    ):
        assert (share / name).is_file()


def test_source_archive_builds_the_same_wheel(dist: Path, wheel: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert (source / "docs/index.md").is_file()
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
    (again,) = tmp_path.glob("*.whl")
    assert _content(again) == _content(wheel)


def _content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}
