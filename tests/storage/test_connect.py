"""Opening and inspecting a store by its location."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

import tertulia
from tertulia import ConfigError, Settings
from tertulia.install_command import install_command
from tertulia.storage import connect
from tertulia.storage.sqlite.database import SqliteDatabase

SETTINGS = Settings(zone="UTC")


def test_path_and_sqlite_address_open_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "talk.db"
    for where in (path, str(path), f"sqlite:///{path}"):
        database = connect.open_database(where, SETTINGS)
        assert isinstance(database, SqliteDatabase)
        assert database.path == str(path)
        database.close()


@pytest.mark.parametrize("where", ["", "sqlite:///", None, 7, "mysql://host/talk"])
def test_invalid_location_is_refused_with_a_hint(where: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        connect.open_database(where, SETTINGS)
    assert caught.value.hint
    assert caught.value.field == "where"


def test_public_name_has_no_password() -> None:
    assert connect.public_name("sqlite:///talk.db") == "talk.db"
    name = connect.public_name("postgresql://ana:secret@db.example/talk")
    assert name == "postgresql://db.example/talk"
    name = connect.public_name("postgresql://ana:secret@127.0.0.1:54329/talk")
    assert name == "postgresql://127.0.0.1:54329/talk"


def test_invalid_server_address_does_not_show_its_parts() -> None:
    with pytest.raises(ConfigError) as caught:
        connect.public_name('postgresql://ana:se cret"@[db.example/talk')
    assert "cret" not in str(caught.value)


def test_applied_migrations_of_a_missing_file_are_none(tmp_path: Path) -> None:
    path = str(tmp_path / "talk.db")
    assert connect.applied_migrations(path) == []
    assert not (tmp_path / "talk.db").exists()
    tertulia.open(path).close()
    assert connect.applied_migrations(path) == connect.inspect_store(path).applied != []


def test_server_without_psycopg_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real_import = builtins.__import__

    def refuse_postgres(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("tertulia.storage.postgres"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse_postgres)
    with pytest.raises(ConfigError, match="psycopg") as caught:
        connect.open_database("postgresql://host/talk", SETTINGS)
    assert install_command("postgres") in (caught.value.hint or "")
