"""`tertulia platforms`: connect an account, check it, and list how all of them are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import tertulia
from tertulia import AccountProblem
from tertulia.cli import platforms
from tertulia.core.secret import Secret
from tertulia.platforms import registry
from tertulia.platforms.base import Adapter, Outgoing, Receive
from tertulia.platforms.definition import BuildContext, PlatformDefinition, SetupQuestion
from tertulia.platforms.settings import PlatformSettings
from tertulia.records.listeners import Connection
from tests.cli.conftest import CommandLine, Demo

TOKEN = "123456:AAH-secret-token-of-the-bot"


class PigeonSettings(PlatformSettings, frozen=True, kw_only=True):
    """A platform for this test."""

    token: Secret | None = None
    token_env: str | None = None


class PigeonAdapter(Adapter):
    name = "pigeon"

    def __init__(self, token: str, account: str) -> None:
        self._token, self.account = token, account

    async def listen(self, receive: Receive) -> None:
        raise NotImplementedError

    async def send(self, message: Outgoing) -> str | None:
        raise NotImplementedError

    async def identify(self) -> str:
        if self._token != TOKEN:
            raise AccountProblem("The token is refused.", hint="Ask for a new one.")
        return "@my_pigeon"


@pytest.fixture(autouse=True)
def _pigeon() -> Iterator[None]:
    registry.register(
        PlatformDefinition(
            "pigeon",
            "Pigeon",
            settings=PigeonSettings,
            build=_build,
            setup=(SetupQuestion(key="token", question="Token", is_secret=True),),
            guide="Ask the pigeon for a token.",
            pairing="Write to the pigeon.",
        )
    )
    yield
    registry.PLATFORMS._loaded.pop("pigeon")


def _build(context: BuildContext) -> Adapter:
    return PigeonAdapter(context.require_secret("token"), context.account)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("TERTULIA_CONFIG", str(path))
    return path


def test_add_asks_checks_and_writes_the_section(cli: CommandLine, config: Path) -> None:
    result = cli("platforms", "add", "pigeon", stdin=f"{TOKEN}\n")
    assert "@my_pigeon" in result.stdout
    assert "Write to the pigeon." in result.stdout
    assert TOKEN not in result.stdout
    assert "[platforms.pigeon]" in config.read_text()
    assert config.stat().st_mode & 0o077 == 0
    assert "configured already" in str(cli.error("platforms", "add", "pigeon", expect=2))
    cli("platforms", "add", "pigeon", "--account", "work", stdin=f"{TOKEN}\n")
    accounts = [(one["name"], one["account"]) for one in cli.json("platforms", "list")]
    assert accounts == [("pigeon", ""), ("pigeon", "work")]
    assert TOKEN not in cli("platforms", "list").stdout
    assert TOKEN not in cli("config", "show").stdout


def test_variables_of_a_platform_do_not_refuse_its_section(
    cli: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('[agent]\nkind = "parrot"\n')
    monkeypatch.setenv("TERTULIA_PLATFORMS_PIGEON_ADMISSION", "everyone")
    cli("platforms", "add", "pigeon", stdin=f"{TOKEN}\n")
    assert "[platforms.pigeon]" in config.read_text()


@pytest.mark.parametrize(
    "name", sorted(n for n in registry.PLATFORMS if registry.PLATFORMS[n].setup)
)
def test_next_steps_are_to_start_the_gateway_and_to_approve_the_code(name: str) -> None:
    pairing = registry.PLATFORMS[name].pairing or platforms._PAIRING
    before, _, _ = pairing.partition("tertulia pair approve CODE")
    assert "tertulia run" in before
    assert before.endswith("code; approve it with: ")


@pytest.mark.parametrize("command", ["add", "check"])
def test_name_that_was_mistyped_is_recognised(cli: CommandLine, config: Path, command: str) -> None:
    config.write_text("")
    error = cli.error("platforms", command, "Telegrm", expect=2)
    assert error["message"] == "There is no platform 'Telegrm'."
    assert error["hint"] == "Did you mean telegram?"
    assert "discord" in cli.error("platforms", command, "x", expect=2)["hint"]


def test_account_that_was_mistyped_is_told_from_others(cli: CommandLine, config: Path) -> None:
    config.write_text(f'[platforms.pigeon.accounts.work]\ntoken = "{TOKEN}"\n')
    for arguments in ((), ("--account", "wrok")):
        error = cli.error("platforms", "check", "pigeon", *arguments, expect=2)
        assert error["hint"] == "There are: pigeon/work. Name an account with --account NAME."


def test_platform_without_questions_is_named(cli: CommandLine, config: Path) -> None:
    error = cli.error("platforms", "add", "webhook", expect=2)
    assert "webhook" in error["message"]
    assert "telegram" in error["hint"]


@pytest.mark.parametrize(("stdin", "reason"), [("", "has ended"), ("\n", "is empty")])
def test_answer_that_is_missing_is_named(
    cli: CommandLine, config: Path, stdin: str, reason: str
) -> None:
    result = cli("platforms", "add", "pigeon", stdin=stdin, expect=2)
    assert f"The answer to 'Token' {'is missing: the input ' if not stdin else ''}" in result.stderr
    assert reason in result.stderr
    assert not config.exists()


def test_wrong_token_is_not_written(cli: CommandLine, config: Path) -> None:
    config.write_text("")
    cli("platforms", "add", "pigeon", stdin="wrong\n", expect=1)
    assert config.read_text() == ""


def test_list_shows_what_gateways_report(cli: CommandLine, config: Path, demo: Demo) -> None:
    config.write_text(f'[platforms.pigeon]\ntoken = "{TOKEN}"\n')
    (status,) = cli.json("platforms")
    assert (status["state"], status["heard_at"]) == ("not running", None)
    heard_at = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
    with tertulia.open(demo.path) as store:
        connection = Connection(
            platform="pigeon", account="", node="n1", listening=True, heard_at=heard_at
        )
        store.listeners.report(connection)
    (status,) = cli.json("platforms", "list")
    assert (status["state"], status["node"]) == ("listening", "n1")
    assert status["heard_at"] == heard_at.isoformat()
    with tertulia.open(demo.path) as store:
        store.listeners.report(
            Connection(
                platform="pigeon", account="", node="n1", listening=False, problem="Token revoked."
            )
        )
    (status,) = cli.json("platforms", "list")
    assert (status["state"], status["problem"]) == ("problem", "Token revoked.")
    assert "Token revoked." in cli("platforms", "list").stdout
    report = cli.json("doctor", expect=1)
    (finding,) = [finding for finding in report["findings"] if finding["name"] == "pigeon"]
    assert (finding["state"], finding["detail"]) == ("problem", "Token revoked.")
    assert finding["advice"] == "Ask it: tertulia platforms check pigeon"


@pytest.mark.parametrize(("name", "hint"), [("api", "no account"), ("local", "its section [pl")])
def test_check_names_no_command_that_would_refuse_the_platform(
    cli: CommandLine, config: Path, name: str, hint: str
) -> None:
    config.write_text("")
    error = cli.error("platforms", "check", name, expect=2)
    assert hint in error["hint"]


def test_check_asks_the_platform(cli: CommandLine, config: Path) -> None:
    config.write_text(f'[platforms.pigeon]\ntoken = "{TOKEN}"\n')
    assert cli.json("platforms", "check", "pigeon")["identity"] == "@my_pigeon"
    config.write_text('[platforms.pigeon]\ntoken = "wrong"\n')
    assert "refused" in cli("platforms", "check", "pigeon", expect=1).stdout
    assert cli.error("platforms", "check", "telegram", expect=2)["code"] == "config"
