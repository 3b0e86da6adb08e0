"""The install command in hints fits the way this package was installed."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from tertulia.install_command import INSTALL, extra_of, install_command, upgrade_command
from tests.docs.markdown import ROOT, pages

WHEEL = "file:///srv/tertulia-0.1.0-py3-none-any.whl"


@pytest.fixture
def direct_url(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The record of where a package came from; a test writes into it."""
    record: dict[str, object] = {}

    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return json.dumps(record) if record else None

    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())
    return record


def test_checkout(direct_url: dict[str, object]) -> None:
    direct_url.update({"url": "file:///x", "dir_info": {"editable": True}})
    assert install_command("http") == f"make -C {ROOT} setup"
    assert upgrade_command() == f"git -C {ROOT} pull && make -C {ROOT} setup"


def test_source_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("http") == f"make -C {ROOT} setup"


def test_package_index(direct_url: dict[str, object]) -> None:
    assert install_command("http") == f"{sys.executable} -m pip install 'tertulia[http]'"
    assert upgrade_command() == f"{sys.executable} -m pip install --upgrade 'tertulia[all]'"


def test_git_address(direct_url: dict[str, object]) -> None:
    direct_url.update({"url": "https://example.org/t.git", "vcs_info": {"vcs": "git"}})
    expected = "'tertulia[http] @ git+https://example.org/t.git'"
    assert install_command("http") == f"{sys.executable} -m pip install {expected}"


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("uv-receipt.toml", "uv tool install --force"),
        ("pipx_metadata.json", "pipx install --force"),
    ],
)
def test_program_of_its_own(
    file: str,
    command: str,
    direct_url: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    direct_url["url"] = WHEEL
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("http") == f"{command} 'tertulia[all] @ {WHEEL}'"
    assert install_command("claude") == f"{command} 'tertulia[claude] @ {WHEEL}'"
    assert upgrade_command() == f"{command} 'tertulia[all] @ {WHEEL}'"


def test_every_package_of_an_extra_is_assigned_to_one_that_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    modules = {"phonenumberslite": "phonenumbers"}
    for extra in (
        "cli",
        "http",
        "postgres",
        "gateway",
        "processes",
        "schedules",
        "prices",
        "phones",
    ):
        for requirement in extras[extra]:
            match = re.match(r"[\w.-]+", requirement)
            assert match is not None
            package = match[0].replace("-", "_")
            if package in ("tertulia", "markdown_it_py"):
                continue
            named = extra_of(modules.get(package, package))
            assert any(package.replace("_", "-") in item for item in extras[named]), package
    assert extra_of("nothing_of_ours") == "all"


def test_code_makes_every_install_hint_with_this_function() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "src").rglob("*.py")
        if path.name != "install_command.py"
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"pip install|uv tool install", line)
    ]
    assert not wrong, "use tertulia.install_command.install_command(extra)\n" + "\n".join(wrong)


def test_documentation_names_one_install_line() -> None:
    """Other pages say which extra they need; the page on installation has the other ways."""
    allowed = (INSTALL, "/opt/tertulia/bin/pip install '.[all]'")
    wrong = [
        f"{page.name}: {line}"
        for page in pages()
        if page.name != "installation.md" and page.parent.name != "decisions"
        for line in page.read_text("utf-8").splitlines()
        if re.search(r"\b(pip|pipx|uv tool) install", line)
        if not any(command in line for command in allowed)
    ]
    assert not wrong, "\n".join(wrong)
    assert INSTALL in (ROOT / "README.md").read_text("utf-8")
