"""`tertulia console`: links with a code that signs a browser in."""

from __future__ import annotations

import os
import socket
import stat
import webbrowser
from pathlib import Path

import pytest

import tertulia
from tertulia.cli import locations, serve
from tertulia.config.schema import HttpSection
from tertulia.errors import NotFound
from tertulia.http import Token
from tertulia.private_files import read_or_make_secret
from tests.cli.conftest import CommandLine, Demo

OWNER = "[[http.tokens]]\nname = 'me'\nrole = 'owner'\ntoken = 'owner-0123456789abcdef'\n"
MEMBER = "[[http.tokens]]\nname = 'ana'\ntoken = 'ana-0123456789abcdef'\n"


def write_config(text: str) -> tuple[str, str]:
    Path("mine.toml").write_text(f"[http]\n{text}", "utf-8")
    return ("--config", "mine.toml")


def test_link_signs_a_browser_in_once(cli: CommandLine, demo: Demo) -> None:
    config = write_config("enabled = true\nport = 8460\n")
    value = cli.json("console", "--print", *config)
    assert value["links"] == [
        f"http://tertulia.localhost:8460/console/enter#{value['code']}",
        f"http://127.0.0.1:8460/console/enter#{value['code']}",
    ]
    with tertulia.open(demo.path) as store:
        assert store.browsers.sign_in(value["code"], address="a").browser.name == "owner"
        with pytest.raises(NotFound):
            store.browsers.sign_in(value["code"], address="a")
    assert "Start the gateway with: tertulia run" in cli("console", "--print", *config).stdout


def test_browser_is_opened_if_the_gateway_answers(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = write_config(f"enabled = true\nport = {listener.getsockname()[1]}\n")
        printed = cli("console", *config).stdout
        assert "Nothing answers" not in printed
        assert opened == [printed.splitlines()[0]]
        cli("console", "--print", *config)
    assert len(opened) == 1


def test_rights_are_those_of_a_token(cli: CommandLine, demo: Demo) -> None:
    config = write_config(
        f"enabled = true\nhost = '192.0.2.7'\nhosts = ['bot.example.com']\n{MEMBER}{OWNER}"
    )
    with tertulia.open(demo.path) as store:
        for options, name in (((), "me"), (("--as", "ana"), "ana")):
            value = cli.json("console", "--print", *options, *config)
            assert store.browsers.sign_in(value["code"], address="a").browser.name == name
    assert value["links"] == [
        f"https://bot.example.com/console/enter#{value['code']}",
        f"http://192.0.2.7:8460/console/enter#{value['code']}",
    ]
    assert "me" in cli.error("console", "--as", "bob", *config, expect=2)["hint"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "enabled = true"),
        ("enabled = true\nport = 0\n", "--port"),
        (f"enabled = true\n{MEMBER}", "--as"),
    ],
)
def test_missing_setting_is_named(cli: CommandLine, text: str, hint: str) -> None:
    assert hint in cli.error("console", *write_config(text), expect=2)["hint"]


class TestOwnerToken:
    def test_is_made_once_for_a_server_without_tokens(self) -> None:
        first = serve.with_owner_token(HttpSection(enabled=True))
        assert first.token_roles == {"owner": "owner"}
        assert serve.with_owner_token(HttpSection(enabled=True)).tokens == first.tokens
        path = os.path.join(locations.data_folder(), "owner-token")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert Path(path).read_text().strip() == first.tokens[0].resolve_secret()

    def test_is_not_made_if_there_are_tokens_or_none_is_wanted(self) -> None:
        token = Token(name="ana", secret="ana-0123456789abcdef")
        for section in (HttpSection(tokens=(token,)), HttpSection(owner_token=False)):
            assert serve.with_owner_token(section) is section
        assert not os.path.exists(locations.data_folder())

    def test_a_secret_that_another_program_made_is_used(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "owner-token"
        secret = read_or_make_secret(path)
        assert len(secret) >= 40
        assert read_or_make_secret(path) == secret
        assert list(path.parent.iterdir()) == [path]
