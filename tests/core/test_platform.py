from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.platform import Platform
from tertulia.core.policy import Policies, ResetPolicy
from tertulia.errors import ConfigError
from tertulia.platforms import registry
from tertulia.platforms.registry import PLATFORMS, needs_raw_ids, platform, register

any_name = st.text(alphabet=st.characters(exclude_categories=()), min_size=1)
BUILT_IN = (
    "local",
    "telegram",
    "discord",
    "slack",
    "whatsapp",
    "signal",
    "web",
    "api",
    "webhook",
)

MATRIX = Platform("matrix", "Matrix", threads=True)
MISNAMED = Platform("other")
NOTHING = object()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(PLATFORMS, "_known", dict(PLATFORMS._known))
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points as an installed package would bring them; a test adds its own."""
    points: list[EntryPoint] = []

    def entry_points(*, group: str) -> EntryPoints:
        return EntryPoints(point for point in points if point.group == group)

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    return points


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "tertulia.platforms")


class TestUnknown:
    @given(any_name)
    def test_any_name_gives_a_platform(self, name: str) -> None:
        found = Platform(name)
        assert found.name == name
        assert len(found.title.splitlines()) == 1

    def test_it_is_taken_to_be_plain(self) -> None:
        found = platform("carrier_pigeon")
        assert found == Platform("carrier_pigeon", "Carrier Pigeon")
        assert (found.length_limit, found.markdown) == (2000, "plain")
        abilities = ("threads", "edits", "typing", "media", "commands", "mentions_need_raw_ids")
        assert [ability for ability in abilities if getattr(found, ability)] == []
        assert found.notify

    def test_it_is_not_remembered(self) -> None:
        platform("carrier_pigeon")
        assert "carrier_pigeon" not in PLATFORMS

    @pytest.mark.parametrize(
        ("name", "title"),
        [("rocketChat", "RocketChat"), ("x-y", "X Y"), ("a\n# b", "a # b"), ("\u200b", "Unknown")],
    )
    def test_its_title_comes_from_its_name(self, name: str, title: str) -> None:
        assert platform(name).title == title


class TestValues:
    def test_a_name_is_needed(self) -> None:
        with pytest.raises(ConfigError, match="name"):
            Platform("")

    def test_a_limit_is_above_zero(self) -> None:
        with pytest.raises(ConfigError, match="length limit"):
            Platform("x", length_limit=0)
        assert Platform("x", length_limit=None).length_limit is None

    def test_frozen(self) -> None:
        with pytest.raises(AttributeError):
            MATRIX.title = "?"  # type: ignore[misc]


class TestBuiltIn:
    def test_which_there_are(self, installed: list[EntryPoint]) -> None:
        assert tuple(PLATFORMS) == BUILT_IN
        assert [platform(name).name for name in BUILT_IN] == list(BUILT_IN)

    @pytest.mark.parametrize(
        ("name", "limit", "unit"),
        [
            ("telegram", 4096, "utf16"),
            ("discord", 2000, "characters"),
            ("slack", 40_000, "characters"),
            ("whatsapp", 4096, "characters"),
            ("signal", 2000, "bytes"),
            ("local", None, "characters"),
        ],
    )
    def test_how_long_a_message_may_be(self, name: str, limit: int | None, unit: str) -> None:
        assert (platform(name).length_limit, platform(name).length_unit) == (limit, unit)

    def test_where_ids_are_needed_for_mentions(self) -> None:
        assert [name for name in BUILT_IN if needs_raw_ids(name)] == ["discord", "slack"]

    def test_where_nobody_reads_a_notice(self) -> None:
        assert [name for name in BUILT_IN if not platform(name).notify] == ["api", "webhook"]

    @pytest.mark.parametrize("name", ["discord", "slack"])
    def test_the_agent_is_told_what_it_cannot_do(self, name: str) -> None:
        notes = " ".join(platform(name).notes)
        for word in ("no access", platform(name).title, "search", "pin", "members", "Promise"):
            assert word in notes


class TestRegister:
    def test_a_registered_one_is_found(self) -> None:
        register(MATRIX)
        assert platform("matrix") is MATRIX
        assert "matrix" in PLATFORMS

    def test_the_last_one_counts(self) -> None:
        register(Platform("telegram", "Telegram", length_limit=100))
        assert platform("telegram").length_limit == 100

    @pytest.mark.parametrize("name", ["origin", "Matrix", "a:b", "9", "a b", "x" * 33, "añ"])
    def test_a_name_that_cannot_be_a_target_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError) as caught:
            register(Platform(name))
        assert caught.value.field == "name"
        assert name not in PLATFORMS


class TestEntryPoints:
    def test_a_package_brings_a_platform(self, installed: list[EntryPoint]) -> None:
        installed.append(point("matrix", f"{__name__}:MATRIX"))
        assert "matrix" in PLATFORMS
        assert set(PLATFORMS) == {*BUILT_IN, "matrix"}
        assert len(PLATFORMS) == len(BUILT_IN) + 1
        assert platform("matrix") is sys.modules[__name__].__dict__["MATRIX"]

    def test_none_replaces_a_built_in_one(self, installed: list[EntryPoint]) -> None:
        installed.append(point("telegram", f"{__name__}:MATRIX"))
        assert platform("telegram").title == "Telegram"

    def test_another_group_is_none_of_ours(self, installed: list[EntryPoint]) -> None:
        installed.append(EntryPoint("matrix", f"{__name__}:MATRIX", "console_scripts"))
        assert "matrix" not in PLATFORMS

    @pytest.mark.parametrize("value", ["NOTHING", "MISNAMED"])
    def test_what_is_no_such_platform_is_refused(
        self, installed: list[EntryPoint], value: str
    ) -> None:
        installed.append(point("matrix", f"{__name__}:{value}"))
        with pytest.raises(ConfigError, match="matrix"):
            platform("matrix")

    @pytest.mark.parametrize("value", ["no_such_module_anywhere:X", f"{__name__}:GONE"])
    def test_a_package_that_cannot_be_loaded_says_so(
        self, installed: list[EntryPoint], value: str
    ) -> None:
        installed.append(point("matrix", value))
        with pytest.raises(ConfigError, match="could not be loaded") as caught:
            platform("matrix")
        assert caught.value.__cause__ is not None

    def test_packages_are_looked_at_once_and_only_for_unknown_names(self) -> None:
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

    def test_a_program_asks_for_its_conversation_by_name(self) -> None:
        given = Policies(platforms={"telegram": ResetPolicy("idle")})
        found = registry.policies(given)
        assert found.for_chat("telegram", "dm") == ResetPolicy("idle")
        assert found.for_chat("discord", "dm") == ResetPolicy()
        for name in registry.NAMED_BY_PROGRAMS:
            assert found.for_chat(name, "dm").mode == "none"

    def test_a_policy_for_the_platform_comes_first(self) -> None:
        given = Policies(platforms={"openai-agents": ResetPolicy("daily")})
        assert registry.policies(given).for_chat("openai-agents", "dm").mode == "daily"
