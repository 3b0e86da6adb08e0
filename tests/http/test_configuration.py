"""The settings in force are listed for the owner, by their dotted names."""

from __future__ import annotations

from pathlib import Path

from tertulia.http.app import Api
from tertulia.http.configuration import Setting, flatten_settings
from tests.http.served_gateway import served_gateway


def test_nested_settings_have_dotted_names() -> None:
    table = {
        "http": {"port": 8000, "tokens": [{"name": "a"}], "hosts": []},
        "agents": {},
        "x": None,
    }
    assert [*flatten_settings(table)] == [
        Setting("http.port", 8000),
        Setting("http.tokens", [{"name": "a"}]),
        Setting("http.hosts", []),
        Setting("agents", {}),
        Setting("x", None),
    ]


def test_only_the_owner_sees_them(tmp_path: Path) -> None:
    with served_gateway(tmp_path / "talk.db") as server:
        api: Api = server.app.state.api
        api.configuration = {"agent": {"kind": "parrot", "api_key": "(hidden)"}}
        with server.client() as root, server.client("ana") as ana:
            assert root.get("/settings").json()["items"] == [
                {"name": "agent.kind", "value": "parrot"},
                {"name": "agent.api_key", "value": "(hidden)"},
            ]
            assert ana.get("/settings").status_code == 403
