"""The id by which a person is known, kept in a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tertulia.platforms.whatsapp.known_ids import KnownIds


def resolve(ids: KnownIds, user_id: str | None, number: str | None) -> tuple[str, str | None]:
    return asyncio.run(ids.resolve(user_id, number))


def test_first_id_stays(tmp_path: Path) -> None:
    ids = KnownIds(str(tmp_path / "a" / "ids"))
    assert resolve(ids, "ES.1", "346") == ("346", "346")
    assert resolve(ids, "ES.1", None) == ("346", "346")
    assert resolve(ids, "ES.2", None) == ("ES.2", None)
    assert resolve(ids, "ES.2", "347") == ("ES.2", None)
    assert resolve(ids, None, "348") == ("348", "348")
    with pytest.raises(ValueError, match="sender"):
        resolve(ids, None, None)


def test_two_gateways_read_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "ids")
    first, second = KnownIds(path), KnownIds(path)
    assert resolve(first, "ES.1", "346") == ("346", "346")
    assert resolve(second, "ES.1", None) == ("346", "346")
    assert resolve(second, "ES.2", None) == ("ES.2", None)
    assert resolve(first, "ES.2", "347") == ("ES.2", None)


def test_line_that_a_crash_cut_off_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    assert resolve(KnownIds(str(path)), "ES.1", "346") == ("346", "346")
    path.write_bytes(path.read_bytes() + b'["ES.2", "34')
    ids = KnownIds(str(path))
    assert resolve(ids, "ES.3", "348") == ("348", "348")
    assert resolve(KnownIds(str(path)), "ES.3", None) == ("348", "348")
    assert resolve(KnownIds(str(path)), "ES.1", None) == ("346", "346")


def test_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "ids"
    resolve(KnownIds(str(path)), "ES.1", "346")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
