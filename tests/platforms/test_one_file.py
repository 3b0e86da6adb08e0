"""A new platform is one file: the one in docs/extending.md, in the package or in another one.

It is listed, configured in TOML, validated, and answers a message through a real gateway; nothing
else of the package knows its name.
"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia import Target, aio, platforms
from tertulia.agents import ParrotAgent
from tertulia.config.build import build_adapters
from tertulia.config.load import to_redacted_dict
from tertulia.gateway.app import Gateway
from tertulia.platforms import registry
from tertulia.platforms.registry import PLATFORMS
from tests.config.config_file import load_error, load_text
from tests.docs.markdown import ROOT, blocks

PAGE = (ROOT / "docs/extending.md").read_text("utf-8")
FILE = next(block.text for block in blocks(PAGE) if "`letters`" in block.text)
TEXT = "[platforms.letters]\nfolder = 'letters'\nallow = ['ana']\nlook_seconds = 0.02\n"


@pytest.fixture(autouse=True)
def _fresh_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    caches = (registry._entry_points, registry.built_in_names)
    monkeypatch.setattr(PLATFORMS, "_loaded", dict(PLATFORMS._loaded))
    for cached in caches:
        cached.cache_clear()
    yield
    for name in ("tertulia.platforms.letters", "tertulia_letters"):
        sys.modules.pop(name, None)
    for cached in caches:
        cached.cache_clear()


def install(folder: Path) -> None:
    """Put the platform and its entry point into a folder, as an installed package has them."""
    (folder / "tertulia_letters.py").write_text(FILE, "utf-8")
    metadata = folder / "tertulia_letters-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tertulia-letters\n")
    (metadata / "entry_points.txt").write_text(
        "[tertulia.platforms]\nletters = tertulia_letters:PLATFORM\n"
    )


@pytest.fixture(params=["module", "entry point"])
def letters_module(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Add the platform to the package or install it as another one; return its module name."""
    folder = tmp_path / "code"
    folder.mkdir()
    if request.param == "module":
        (folder / "letters.py").write_text(FILE, "utf-8")
        monkeypatch.setattr(platforms, "__path__", [*platforms.__path__, str(folder)])
        return "tertulia.platforms.letters"
    install(folder)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    return "tertulia_letters"


def test_platform_is_listed_without_being_imported(letters_module: str) -> None:
    assert "letters" in [*PLATFORMS]
    assert letters_module not in sys.modules
    assert registry.platform("letters").title == "Letters"
    assert str(Target.parse("letters:ana", known=PLATFORMS)) == "letters:ana"


@pytest.mark.usefixtures("letters_module")
class TestConfiguration:
    def test_section_is_read_and_shown(self, tmp_path: Path) -> None:
        config = load_text(tmp_path, TEXT, TERTULIA_PLATFORMS_LETTERS_LOOK_SECONDS="7").config
        section = to_redacted_dict(config)["platforms"]["letters"]
        assert (section["folder"], section["look_seconds"]) == (str(tmp_path / "letters"), 7)
        assert config.gateway_settings.of("letters").allow == ("ana",)
        assert config.store_settings.platforms == ("letters",)

    @pytest.mark.parametrize(
        ("text", "where", "hint"),
        [
            (f"{TEXT}look_secs = 1", "line 5: platforms.letters.look_secs", "look_seconds?"),
            (f"{TEXT}admission = 'all'", "line 5: platforms.letters.admission", "Allowed: "),
            ("[platforms.letters]", "line 1: platforms.letters has no folder", "folder ="),
            ("[platforms.leters]", "line 1: platforms.leters", "Did you mean letters?"),
        ],
    )
    def test_mistake_is_reported(self, tmp_path: Path, text: str, where: str, hint: str) -> None:
        problem = load_error(tmp_path, text)
        assert where in problem.message
        assert hint in str(problem.hint)


@pytest.mark.usefixtures("letters_module")
def test_message_is_answered(tmp_path: Path) -> None:
    config = load_text(tmp_path, TEXT).config
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "ana-1.txt").write_text("Hello?", "utf-8")
    (folder / "eve-1.txt").write_text("Let me in", "utf-8")

    async def answers() -> tuple[str, str]:
        async with aio.open(tmp_path / "talk.db", settings=config.store_settings) as store:
            adapters = build_adapters(config, str(tmp_path / "state"))
            gateway = Gateway(store, ParrotAgent(), adapters, settings=config.gateway_settings)
            running = asyncio.create_task(gateway.run())
            files = [folder / "ana.answers", folder / "eve.answers"]
            async with asyncio.timeout(60):
                while not all(file.exists() and file.stat().st_size for file in files):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            gateway.stop()
            await running
            return files[0].read_text("utf-8"), files[1].read_text("utf-8")

    ana, eve = asyncio.run(answers())
    assert ana.startswith("You said: Hello?")
    assert "You said" not in eve
    assert not [*folder.glob("*.txt")]


def test_command_line_knows_an_installed_platform(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    install(tmp_path / "code")
    (tmp_path / "config.toml").write_text(TEXT, "utf-8")
    command = [sys.executable, "-m", "tertulia.cli", "config", "check", "--config", "config.toml"]
    environ = {"PYTHONPATH": str(tmp_path / "code"), "HOME": str(tmp_path), "PATH": "/usr/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
