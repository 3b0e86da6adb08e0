"""`tertulia platforms` as a person uses it: at a terminal, with the servers of the chat apps.

The secret that was typed stands nowhere afterwards but in the file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.matrix.people import new_account
from tests.platforms.pseudo_terminal import Terminal
from tests.servers.mail import AUTH_SERVER, PASSWORD, MailServers
from tests.servers.synapse import shared_synapse
from tests.servers.telegram import TOKEN, TelegramServer

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

_ROOT = Path(__file__).parents[2]


class Account(NamedTuple):
    """An account to connect: its answers by what is asked, its secret, and who it is there."""

    name: str
    answers: Sequence[tuple[str, str]]
    secret: str
    identity: str
    environ: dict[str, str]


@pytest.fixture(params=["telegram", "matrix", "email"])
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    if request.param == "telegram":
        with TelegramServer() as server:
            environ = {"TERTULIA_PLATFORMS_TELEGRAM_BASE_URL": server.url}
            answers = [("token of the bot", TOKEN)]
            yield Account("telegram", answers, TOKEN, "@tertulia_bot", environ)
    elif request.param == "matrix":
        with shared_synapse() as synapse:
            agent = new_account(synapse, "agent")
            answers = [("homeserver", synapse.base_url), ("Access token", agent.token)]
            yield Account("matrix", answers, agent.token, agent.user_id, {})
    else:
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
            yield Account("email", answers, PASSWORD, address, {})


def terminal(folder: Path, account: Account, *arguments: str) -> Terminal:
    environ = {
        "HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT / "src"),
        "TERM": "xterm", "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder),
        **account.environ,
    }  # fmt: skip
    return Terminal([sys.executable, "-m", "tertulia", *arguments], folder, environ)


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
                is_wrong = answer == account.secret and number == 0
                screen.until(
                    lambda: question in screen.text.rpartition("\n")[2],  # noqa: B023
                    question,
                )
                is_typed = answer == account.secret or number == 0
                screen.press(f"{'1:wrong' if is_wrong else answer if is_typed else ''}\r")
            if number == 0:
                screen.sees("Once more")
        assert screen.ends() == 0
        assert account.identity in screen.text.replace("\n", "")
        assert "tertulia pair approve" in " ".join(screen.text.split())
        texts = [screen.text]
    file = tmp_path / "tertulia" / "config.toml"
    assert account.secret in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    texts.append(run(tmp_path, account, "platforms", "check", account.name))
    assert account.identity in texts[-1].replace("\n", "")
    texts.append(run(tmp_path, account, "platforms", "list", "--json"))
    assert "not running" in texts[-1]
    texts.append(run(tmp_path, account, "config", "show"))
    file.write_text(file.read_text().replace(account.secret, "1:other-secret"))
    texts.append(run(tmp_path, account, "platforms", "check", account.name))
    assert "is accepted" not in texts[-1]
    for secret in (account.secret, "1:other-secret", "1:wrong"):
        assert secret not in "".join(texts).replace("\n", "")
