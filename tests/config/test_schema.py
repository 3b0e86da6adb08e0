"""The sections of the configuration are the settings of their modules, with a few more keys."""

from __future__ import annotations

import msgspec
import pytest

from tertulia import Settings
from tertulia.cli.config_reference import reference
from tertulia.config.load import load_config
from tertulia.config.schema import Config, StoreSection
from tertulia.gateway.settings import GatewaySettings
from tertulia.http.settings import HttpSettings
from tertulia.platforms.local import LocalSettings
from tertulia.platforms.settings import PlatformSettings
from tertulia.processes.settings import ProcessSettings
from tests.docs.markdown import ROOT


def test_empty_configuration_has_the_defaults() -> None:
    assert load_config(None, {}).config == Config()


@pytest.mark.parametrize(
    ("section", "settings", "keys"),
    [
        (Config().store_settings, Settings(), {"where"}),
        (Config().gateway_settings, GatewaySettings(), set()),
        (Config().http, HttpSettings(), {"enabled", "owner_token"}),
        (Config().processes, ProcessSettings(), {"enabled", "folder", "ssh", "docker"}),
    ],
)
def test_section_is_its_settings_with_more_keys(
    section: msgspec.Struct, settings: msgspec.Struct, keys: set[str]
) -> None:
    assert isinstance(section, type(settings))
    assert {*section.__struct_fields__} - {*settings.__struct_fields__} == keys
    for name in settings.__struct_fields__:
        assert getattr(section, name) == getattr(settings, name)


def test_store_settings_do_not_contain_the_password_of_the_location() -> None:
    config = Config(store=StoreSection(where="postgresql://ana:TOPSECRET@host/db"))
    assert "TOPSECRET" not in repr(config.store_settings)


def test_connected_platforms_are_the_enabled_ones_without_the_terminal() -> None:
    platforms = {
        "telegram": PlatformSettings(),
        "discord": PlatformSettings(enabled=False),
        "local": LocalSettings(),
    }
    assert Config(platforms=platforms).store_settings.platforms == ("telegram",)


def test_platform_without_a_section_has_the_defaults() -> None:
    assert Config().platform("local") == LocalSettings()
    assert Config().platform("web") == PlatformSettings()


def test_config_page_is_up_to_date() -> None:
    page = (ROOT / "docs/config.md").read_text("utf-8")
    assert page == reference(), "run: python -m tertulia.cli.config_reference > docs/config.md"
