"""The mail servers of the tests, and pauses that are as short as tests want them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tertulia.core.backoff import Backoff
from tests.servers.mail import MailServers


@pytest.fixture(scope="session")
def mail_servers() -> Iterator[MailServers]:
    with MailServers() as running:
        yield running


@pytest.fixture
def mail(mail_servers: MailServers, monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServers]:
    """The servers, with nothing sent yet; each test adds its own mailbox."""
    from tertulia.platforms.email import adapter

    monkeypatch.setattr(adapter, "_RECONNECT", Backoff(first=0.02, longest=0.2))
    mail_servers.sent.clear()
    yield mail_servers
    mail_servers.smtp.mend()
