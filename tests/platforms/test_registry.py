"""The registry of platforms: built in, registered, or from an installed package."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from tertulia import platforms
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.errors import ConfigError
from tertulia.platforms import registry
from tertulia.platforms.definition import PlatformDefinition
from tertulia.platforms.registry import PLATFORMS, needs_raw_ids, platform, register

ZULIP = PlatformDefinition("zulip", "Zulip", threads=True)


BUILT_IN = (
    "api",
    "discord",
    "email",
    "local",
    "matrix",
    "signal",
    "slack",
    "telegram",
    "web",
    "webhook",
    "whatsapp",
)


MISNAMED = PlatformDefinition("other")


NOTHING = object()


@pytest.fixture(autouse=True)
def _fresh_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(PLATFORMS, "_loaded", dict(PLATFORMS._loaded))
    registry._entry_points.cache_clear()
    registry.built_in_names.cache_clear()
    yield
    registry._entry_points.cache_clear()
    registry.built_in_names.cache_clear()


@pytest.fixture
def entry_points_installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points as an installed package would bring them; a test adds its own."""
    points: list[EntryPoint] = []

    def entry_points(*, group: str) -> EntryPoints:
        return EntryPoints(entry_point for entry_point in points if entry_point.group == group)

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    return points


def entry_point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "tertulia.platforms")


class TestBuiltIn:
    def test_built_in_names(self, entry_points_installed: list[EntryPoint]) -> None:
        assert tuple(PLATFORMS) == BUILT_IN
        assert [platform(name).name for name in BUILT_IN] == list(BUILT_IN)

    def test_every_module_is_a_platform_or_shared(self) -> None:
        modules = {module.name for module in pkgutil.iter_modules(platforms.__path__)}
        assert modules >= registry.SHARED_MODULES
        assert modules - {"__init__"} - registry.SHARED_MODULES == {*BUILT_IN}

    def test_names_are_listed_without_importing_platforms(self) -> None:
        program = (
            "import sys\n"
            "from tertulia.platforms.registry import PLATFORMS\n"
            "assert 'telegram' in PLATFORMS and 'push' not in PLATFORMS and len(PLATFORMS) > 8\n"
            "PLATFORMS['telegram']\n"
            "names = [name.rpartition('.')[2] for name in sys.modules if '.platforms.' in name]\n"
            "assert sorted(names) == ['base', 'definition', 'registry', 'settings', 'telegram']\n"
            "assert 'asyncio' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_broken_module_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "broken.py").write_text("PLATFORM = 1 / 0")
        monkeypatch.setattr(platforms, "__path__", [*platforms.__path__, str(tmp_path)])
        registry.built_in_names.cache_clear()
        with pytest.raises(ConfigError, match=r"tertulia\.platforms\.broken") as caught:
            platform("broken")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    @pytest.mark.parametrize(
        ("name", "limit", "unit"),
        [
            ("telegram", 4096, "utf16"),
            ("discord", 2000, "characters"),
            ("slack", 4_000, "characters"),
            ("whatsapp", 4096, "utf16"),
            ("signal", 2000, "bytes"),
            ("local", None, "characters"),
        ],
    )
    def test_length_limits(self, name: str, limit: int | None, unit: str) -> None:
        assert (platform(name).length_limit, platform(name).length_unit) == (limit, unit)

    def test_platforms_that_need_raw_ids(self) -> None:
        assert [name for name in BUILT_IN if needs_raw_ids(name)] == ["discord", "slack"]

    def test_platforms_without_notices(self) -> None:
        assert [name for name in BUILT_IN if not platform(name).notify] == ["api", "webhook"]

    @pytest.mark.parametrize("name", ["discord", "slack"])
    def test_notes_tell_the_agent_its_limits(self, name: str) -> None:
        notes = " ".join(platform(name).notes)
        for word in ("no access", platform(name).title, "search", "pin", "members", "Promise"):
            assert word in notes


class TestRegister:
    def test_registered_platform_is_found(self) -> None:
        register(ZULIP)
        assert platform("zulip") is ZULIP
        assert "zulip" in PLATFORMS

    def test_registering_again_replaces(self) -> None:
        register(PlatformDefinition("telegram", "Telegram", length_limit=100))
        assert platform("telegram").length_limit == 100

    @pytest.mark.parametrize("name", ["origin", "Zulip", "a:b", "9", "a b", "x" * 33, "añ"])
    def test_invalid_name_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError) as caught:
            register(PlatformDefinition(name))
        assert caught.value.field == "name"
        assert name not in PLATFORMS


class TestEntryPoints:
    def test_entry_point_provides_a_platform(
        self, entry_points_installed: list[EntryPoint]
    ) -> None:
        entry_points_installed.append(entry_point("zulip", f"{__name__}:ZULIP"))
        assert "zulip" in PLATFORMS
        assert set(PLATFORMS) == {*BUILT_IN, "zulip"}
        assert len(PLATFORMS) == len(BUILT_IN) + 1
        assert platform("zulip") is sys.modules[__name__].__dict__["ZULIP"]

    def test_entry_point_does_not_replace_a_built_in_platform(
        self, entry_points_installed: list[EntryPoint]
    ) -> None:
        entry_points_installed.append(entry_point("telegram", f"{__name__}:ZULIP"))
        assert platform("telegram").title == "Telegram"

    def test_entry_points_of_other_groups_are_ignored(
        self, entry_points_installed: list[EntryPoint]
    ) -> None:
        entry_points_installed.append(EntryPoint("zulip", f"{__name__}:ZULIP", "console_scripts"))
        assert "zulip" not in PLATFORMS

    @pytest.mark.parametrize("value", ["NOTHING", "MISNAMED"])
    def test_entry_point_to_another_object_is_refused(
        self, entry_points_installed: list[EntryPoint], value: str
    ) -> None:
        entry_points_installed.append(entry_point("zulip", f"{__name__}:{value}"))
        with pytest.raises(ConfigError, match="zulip"):
            platform("zulip")

    @pytest.mark.parametrize("value", ["no_such_module_anywhere:X", f"{__name__}:GONE"])
    def test_broken_entry_point_is_reported(
        self, entry_points_installed: list[EntryPoint], value: str
    ) -> None:
        entry_points_installed.append(entry_point("zulip", value))
        with pytest.raises(ConfigError, match="could not be loaded") as caught:
            platform("zulip")
        assert caught.value.__cause__ is not None

    def test_entry_points_are_read_only_for_unknown_names(self) -> None:
        program = (
            "import sys\n"
            "from tertulia.platforms.registry import platform\n"
            "platform('telegram')\n"
            "assert 'importlib.metadata' not in sys.modules\n"
            "platform('carrier_pigeon')\n"
            "assert 'importlib.metadata' in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True)


class TestPolicies:
    """What programs name does not end by itself, unless somebody wants it to."""

    def test_conversations_of_agent_sdks_never_expire(self) -> None:
        given = Policies(platforms={"telegram": ResetPolicy("idle")})
        found = registry.policies(given)
        assert found.for_chat("telegram", "dm") == ResetPolicy("idle")
        assert found.for_chat("discord", "dm") == ResetPolicy()
        for name in registry.AGENT_SDK_PLATFORMS:
            assert found.for_chat(name, "dm").mode == "none"

    def test_configured_policy_of_an_sdk_wins(self) -> None:
        given = Policies(platforms={"openai-agents": ResetPolicy("daily")})
        assert registry.policies(given).for_chat("openai-agents", "dm").mode == "daily"
