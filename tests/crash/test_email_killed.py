"""A gateway with a mailbox that is killed with -9, at each station of a mail; and two of them.

Each mail is answered once. Only if the process died around a send, nobody can tell whether the
answer went out: then the delivery is `unknown`, which is shown, and it is not sent again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import tertulia
from tests.crash.email_process import STEPS
from tests.crash.telegram_process import SETTINGS
from tests.servers.mail import MailServers
from tests.servers.postgres import Server

pytestmark = pytest.mark.check

if os.name == "nt":
    pytest.skip("kills with signals", allow_module_level=True)

_ROOT = Path(__file__).parents[2]
PATIENCE = 180.0


@pytest.fixture(scope="module")
def servers() -> Iterator[MailServers]:
    with MailServers() as running:
        yield running


@pytest.fixture
def mail(servers: MailServers) -> MailServers:
    servers.sent.clear()
    return servers


@contextmanager
def node(
    where: str, mail: MailServers, address: str, step: str = "none", lease: float = 2.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a gateway; in the end it is killed if it still runs."""
    program = [sys.executable, "-m", "tests.crash.email_process"]
    child = subprocess.Popen(
        [*program, where, mail.imap_url, mail.smtp_url, address, step, str(lease)],
        cwd=_ROOT, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield child
    finally:
        child.kill()
        child.wait(PATIENCE)


def wait_listening(where: str) -> int:
    """Wait until a node says that it listens; return its process id."""
    deadline = time.monotonic() + PATIENCE
    with tertulia.open(where, settings=SETTINGS) as store:
        while time.monotonic() < deadline:
            for connection in store.listeners.connections():
                pid = int(connection.node.split(":")[1])
                if connection.listening and connection.is_fresh and _is_alive(pid):
                    return pid
            time.sleep(0.05)  # the database has no other way to tell another process's progress
    raise AssertionError("no node listens")


def _is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in ("Z", "T")


def wait_settled(where: str, answers: int) -> dict[str, str]:
    """Wait until there are so many answers, and none is on its way; return their states."""
    deadline = time.monotonic() + PATIENCE
    states: dict[str, str] = {}
    with tertulia.open(where, settings=SETTINGS) as store:
        while time.monotonic() < deadline:
            items = store.outbox.find(limit=500).items
            states = {item.body["text"]: item.state for item in items}
            if len(states) == answers and not {"waiting", "sending"} & {*states.values()}:
                return states
            time.sleep(0.1)
    raise AssertionError(f"not settled: {states}")


def kill_at(where: str, mail: MailServers, step: str) -> None:
    address = mail.add_mailbox()
    with node(where, mail, address) as child:
        wait_listening(where)  # the position is stored: from now on every mail counts
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    mail.write(address, "hola")
    with node(where, mail, address, step) as child:
        assert child.wait(PATIENCE) == -signal.SIGKILL
    with node(where, mail, address) as child:
        wait_settled(where, 1)
        mail.write(address, "and then")
        states = wait_settled(where, 2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 0
    texts = Counter(sent.text for sent in mail.sent)
    assert texts["re and then"] == 1
    if states["re hola"] == "unknown":
        assert step in ("answered", "sending", "sent")
        assert texts["re hola"] <= 1
        assert step != "sending" or texts["re hola"] == 0
    else:
        assert (states["re hola"], texts["re hola"]) == ("sent", 1)
        assert step not in ("sending", "sent")


def test_mail_is_answered_once_after_a_kill(mail: MailServers, tmp_path: Path) -> None:
    kill_at(str(tmp_path / "talk.db"), mail, "sent")


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_twenty_kills_at_each_station(mail: MailServers, tmp_path: Path, step: str) -> None:
    for number in range(20):
        mail.sent.clear()
        kill_at(str(tmp_path / f"talk-{number}.db"), mail, step)


@pytest.mark.slow
def test_random_kills_lose_and_double_nothing(mail: MailServers, tmp_path: Path) -> None:
    where, address = str(tmp_path / "talk.db"), mail.add_mailbox()
    chance = random.Random(7)
    with node(where, mail, address):
        wait_listening(where)
    mails = 0
    for _ in range(20):
        with node(where, mail, address) as child:
            for _ in range(chance.randint(1, 3)):
                # Not all of one person: so many within a minute count as those of a program.
                mail.write(address, f"m{mails}", sender=f"person{mails % 7}@example.com")
                mails += 1
            goal, deadline = len(mail.sent) + chance.randint(0, 2), time.monotonic() + 3
            while len(mail.sent) <= goal and time.monotonic() < deadline:
                time.sleep(0.005)
            child.kill()
    with node(where, mail, address):
        states = wait_settled(where, mails)
    texts = Counter(sent.text for sent in mail.sent)
    print(f"{mails} mails, 20 kills: {Counter(states.values())}")
    for number in range(mails):
        text = f"re m{number}"
        if states[text] == "sent":
            assert texts[text] == 1, text
        else:
            assert states[text] == "unknown", text
            assert texts[text] <= 1, text


@pytest.mark.parametrize(
    "trouble",
    ["killed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("stopped", "drained"))],
)
def test_another_node_listens_when_the_listener_is_gone(
    mail: MailServers, postgres: Server, trouble: str
) -> None:
    """With the lease of production if the node is gone without a word: within 20 s."""
    where, address = postgres.database(postgres.template), mail.add_mailbox()
    lease = 15.0
    with ExitStack() as stack:
        children = [stack.enter_context(node(where, mail, address, lease=lease)) for _ in "ab"]
        nodes = {child.pid: child for child in children}
        listener = nodes[wait_listening(where)]
        mail.write(address, "before")
        mail.wait_sent(1)
        signals = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "drained": signal.SIGTERM}
        os.kill(listener.pid, signals[trouble])
        began = time.monotonic()
        mail.write(address, "meanwhile")
        mail.wait_sent(2)
        print(f"{trouble}: answered by the other node after {time.monotonic() - began:.1f} s")
        if trouble == "stopped":
            os.kill(listener.pid, signal.SIGCONT)
        mail.write(address, "after")
        mail.wait_sent(3)
        wait_settled(where, 3)
        assert wait_listening(where) != listener.pid
    texts = ["re before", "re meanwhile", "re after"]
    assert [sent.text for sent in mail.sent] == texts
    postgres.drop(where)
