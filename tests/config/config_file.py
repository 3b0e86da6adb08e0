"""Configuration files for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tertulia.config.load import LoadedConfig, load_config
from tertulia.errors import ConfigError


def load_text(folder: Path, text: str, **environ: str) -> LoadedConfig:
    """Write a configuration file and return what is read from it and from variables."""
    path = folder / "config.toml"
    path.write_text(text, "utf-8")
    return load_config(str(path), environ)


def load_error(folder: Path, text: str, **environ: str) -> ConfigError:
    """Return the error that reading this configuration raises."""
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, **environ)
    return caught.value
