from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.platform import Platform
from tertulia.errors import ConfigError
from tertulia.platforms.registry import PLATFORMS, platform

any_name = st.text(alphabet=st.characters(exclude_categories=()), min_size=1)

MATRIX = Platform("matrix", "Matrix", threads=True)


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
