"""The definition of a platform: what its builder gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia.config.build import build_adapters
from tertulia.core.secret import Secret
from tertulia.errors import ConfigError
from tertulia.platforms.definition import BuildContext, PlatformDefinition
from tertulia.platforms.settings import PlatformSettings
from tertulia.platforms.web import WebAdapter
from tests.config.config_file import load_text


class TokenSettings(PlatformSettings, frozen=True, kw_only=True):
    token: Secret | None = None
    token_env: str | None = None


def context(**values: str) -> BuildContext:
    environ = {"MATRIX": "from-environment"}
    settings = TokenSettings(**values)  # type: ignore[arg-type]
    return BuildContext(name="matrix", settings=settings, folder="state", environ=environ)


def test_secret_comes_from_the_settings_or_the_environment() -> None:
    assert context(token="from-file").require_secret("token") == "from-file"
    assert context(token_env="MATRIX").require_secret("token") == "from-environment"
    assert context().get_secret("token") is None


def test_missing_secret_is_reported_with_its_section() -> None:
    with pytest.raises(ConfigError, match=r"platforms\.matrix has no token") as caught:
        context().require_secret("token")
    assert caught.value.data["field"] == "platforms.matrix"
    assert 'token_env = "MATRIX_TOKEN"' in str(caught.value.hint)


def test_builder_gets_the_context() -> None:
    contexts = []

    def build(context: BuildContext) -> WebAdapter:
        contexts.append(context)
        return WebAdapter()

    own = context()
    definition = PlatformDefinition("matrix", settings=TokenSettings, build=build)
    assert isinstance(definition.build_adapter(own), WebAdapter)
    assert contexts == [own]


def test_platform_without_builder_has_no_adapter() -> None:
    with pytest.raises(ConfigError, match="has no adapter"):
        PlatformDefinition("matrix").build_adapter(context())


@pytest.mark.parametrize("name", ["discord", "slack", "telegram", "whatsapp"])
def test_address_without_a_scheme_is_named(tmp_path: Path, name: str) -> None:
    """Else a library would say that it does not support the protocol, and nothing else."""
    text = f"[platforms.{name}]\nbase_url = 'api.example.org'"
    with pytest.raises(
        ConfigError, match=rf"platforms\.{name}\.base_url is not an address"
    ) as error:
        build_adapters(load_text(tmp_path, text).config, str(tmp_path))
    assert "https://" in str(error.value.hint)
