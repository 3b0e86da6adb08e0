"""`tertulia platforms` as a person uses it: at a terminal, with the servers of the chat apps.

The secret that was typed stands nowhere afterwards but in the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.matrix.people import new_account
from tests.platforms.pseudo_terminal import Terminal
from tests.servers import discord, signal, slack, telegram, whatsapp
from tests.servers.mail import AUTH_SERVER, PASSWORD, MailServers
from tests.servers.synapse import shared_synapse

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

_ROOT = Path(__file__).parents[2]


class Account(NamedTuple):
    """An account to connect: its answers by what is asked, its secrets, and who it is there.

    `mistyped` is the answer that is wrong at first.
    """

    name: str
    answers: Sequence[tuple[str, str]]
    mistyped: str
    secrets: Sequence[str]
    identity: str
    environ: dict[str, str]


@contextmanager
def telegram_account() -> Iterator[Account]:
    with telegram.TelegramServer() as server:
        environ = {"TERTULIA_PLATFORMS_TELEGRAM_BASE_URL": server.url}
        token = telegram.TOKEN
        answers = [("token of the bot", token)]
        yield Account("telegram", answers, token, (token,), "@tertulia_bot", environ)


@contextmanager
def discord_account() -> Iterator[Account]:
    with discord.DiscordServer() as server:
        environ = {"TERTULIA_PLATFORMS_DISCORD_BASE_URL": f"{server.url}/api/v10"}
        token = discord.TOKEN
        answers = [("token of the bot", token)]
        yield Account("discord", answers, token, (token,), "Tertulia", environ)


@contextmanager
def slack_account() -> Iterator[Account]:
    with slack.SlackServer() as server:
        environ = {"TERTULIA_PLATFORMS_SLACK_BASE_URL": f"{server.url}/api"}
        secrets = (slack.BOT_TOKEN, slack.APP_TOKEN)
        answers = [("Bot token", slack.BOT_TOKEN), ("App-level token", slack.APP_TOKEN)]
        yield Account("slack", answers, slack.BOT_TOKEN, secrets, "@tertulia in Acme", environ)


@contextmanager
def whatsapp_account() -> Iterator[Account]:
    with whatsapp.WhatsAppServer() as server:
        environ = {"TERTULIA_PLATFORMS_WHATSAPP_BASE_URL": f"{server.url}/v23.0"}
        secrets = (whatsapp.TOKEN, whatsapp.APP_SECRET, whatsapp.VERIFY_TOKEN)
        answers = [
            ("Phone number ID", whatsapp.NUMBER_ID),
            ("Access token", whatsapp.TOKEN),
            ("App secret", whatsapp.APP_SECRET),
            ("Verify token", whatsapp.VERIFY_TOKEN),
        ]
        identity = "+1 555-078-3881 (Acme)"
        yield Account("whatsapp", answers, whatsapp.TOKEN, secrets, identity, environ)


@contextmanager
def signal_account() -> Iterator[Account]:
    with signal.SignalServer() as server:
        number = signal.NUMBER
        answers = [("phone number", number), ("address of the daemon", server.url)]
        yield Account("signal", answers, number, (), number, {})


@contextmanager
def matrix_account() -> Iterator[Account]:
    with shared_synapse() as synapse:
        agent = new_account(synapse, "agent")
        answers = [("homeserver", synapse.base_url), ("Access token", agent.token)]
        yield Account("matrix", answers, agent.token, (agent.token,), agent.user_id, {})


@contextmanager
def email_account() -> Iterator[Account]:
    with MailServers() as mail:
        address = mail.add_mailbox()
        answers = [
            ("address of the agent", address),
            ("IMAP server", mail.imap_url),
            ("SMTP server", mail.smtp_url),
            ("The user", ""),
            ("The password", PASSWORD),
            ("Authentication-Results", AUTH_SERVER),
        ]
        yield Account("email", answers, PASSWORD, (PASSWORD,), address, {})


ACCOUNTS = {
    "telegram": telegram_account,
    "discord": discord_account,
    "slack": slack_account,
    "whatsapp": whatsapp_account,
    "signal": signal_account,
    "matrix": matrix_account,
    "email": email_account,
}


@pytest.fixture(params=ACCOUNTS)
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    with ACCOUNTS[request.param]() as running:
        yield running


def environment(folder: Path, account: Account) -> dict[str, str]:
    return {
        "HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT / "src"),
        "TERM": "xterm", "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder),
        **account.environ,
    }  # fmt: skip


def terminal(folder: Path, account: Account, *arguments: str) -> Terminal:
    return Terminal(
        [sys.executable, "-m", "tertulia", *arguments], folder, environment(folder, account)
    )


def run(folder: Path, account: Account, *arguments: str) -> str:
    """Run a command; return what stands on the screen."""
    with terminal(folder, account, *arguments) as screen:
        screen.ends()
        return screen.text


def test_account_is_connected_at_a_terminal(tmp_path: Path, account: Account) -> None:
    with terminal(tmp_path, account, "platforms", "add", account.name) as screen:
        # Mistyped at first: the program says so, and asks again; other answers are repeated.
        for number in range(2):
            for question, answer in account.answers:
                is_wrong = answer == account.mistyped and number == 0
                screen.until(
                    lambda: question in screen.text.rpartition("\n")[2],  # noqa: B023
                    question,
                )
                is_typed = answer in (account.mistyped, *account.secrets) or number == 0
                screen.press(f"{'1:wrong' if is_wrong else answer if is_typed else ''}\r")
            if number == 0:
                screen.sees("Once more")
        assert screen.ends() == 0
        assert account.identity in screen.text.replace("\n", "")
        assert "tertulia pair approve" in " ".join(screen.text.split())
        texts = [screen.text]
    file = tmp_path / "tertulia" / "config.toml"
    assert account.mistyped in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    texts.append(run(tmp_path, account, "platforms", "check", account.name))
    assert account.identity in texts[-1].replace("\n", "")
    texts.append(run(tmp_path, account, "platforms", "list", "--json"))
    assert "not running" in texts[-1]
    texts.append(run(tmp_path, account, "config", "show"))
    file.write_text(file.read_text().replace(account.mistyped, "1:other-secret"))
    texts.append(run(tmp_path, account, "platforms", "check", account.name))
    assert "is accepted" not in texts[-1]
    wrong = ("1:other-secret", "1:wrong") if account.secrets else ()
    for secret in (*account.secrets, *wrong):
        assert secret not in "".join(texts).replace("\n", "")


def test_account_is_connected_from_a_pipe(tmp_path: Path, account: Account) -> None:
    """As a script does it: one line for each question, and nothing is complained about."""
    program = [sys.executable, "-m", "tertulia", "platforms", "add", account.name]

    def run_with(lines: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            program, input="".join(f"{line}\n" for line in lines), capture_output=True,
            encoding="utf-8", check=False, cwd=tmp_path, env=environment(tmp_path, account),
            start_new_session=True,
        )  # fmt: skip

    ended = run_with([])
    assert ended.returncode == 2
    assert "the input has ended" in ended.stderr
    lines = [answer for _, answer in account.answers]
    added = run_with(lines)
    assert (added.returncode, added.stderr) == (0, "")
    assert account.identity in added.stdout.replace("\n", "")
