"""The platform `email`: a mailbox over IMAP and SMTP. A thread of mails is a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from tertulia.core.secret import Secret
from tertulia.core.text.spans import FormattedText
from tertulia.errors import ConfigError
from tertulia.platforms.base import Adapter
from tertulia.platforms.definition import BuildContext, PlatformDefinition, SetupQuestion
from tertulia.platforms.settings import PlatformSettings

# Longer than any answer, and still a mail that every program shows.
MAX_TEXT: Final = 200_000


class EmailSettings(PlatformSettings, frozen=True, kw_only=True):
    """A mailbox.

    address        the address of the agent, such as agent@example.org
    aliases        further addresses whose mails come into this mailbox
    name           the name beside the address in the agent's mails
    imap_url       the IMAP server: imaps://HOST, or imap://HOST for STARTTLS
    smtp_url       the SMTP server: smtps://HOST, or smtp://HOST for STARTTLS
    user           the user at both servers; the address if it is not set
    password       the password at both servers; better kept out of the file
    password_env   the environment variable that contains it
    folder         the folder whose new mails are answered
    senders        whose address is believed: one that the own server has verified by DKIM, SPF or
                   DMARC (verified), or any, although it can be forged (anyone)
    auth_server    the name of the own server in its Authentication-Results fields; without it only
                   results above every Received field count, where no sender can write
    """

    address: str
    aliases: tuple[str, ...] = ()
    name: str | None = None
    imap_url: str
    smtp_url: str
    user: str | None = None
    password: Secret | None = None
    password_env: str | None = None
    folder: str = "INBOX"
    senders: Literal["verified", "anyone"] = "verified"
    auth_server: str | None = None


def format_text(source: str) -> Sequence[FormattedText]:
    """Return Markdown as the texts of mails."""
    from tertulia.core.text.markdown import format_parts

    return format_parts(source, MAX_TEXT, lambda part: len(part.text))


def build(context: BuildContext) -> Adapter:
    """Return the adapter of one mailbox."""
    # The abilities of the platform are asked for by every store: only a gateway needs the adapter.
    from tertulia.platforms.email.adapter import EmailAdapter
    from tertulia.platforms.email.headers import normal_address
    from tertulia.platforms.email.wire import MailServerAddress

    settings: EmailSettings = context.settings
    section = context.section
    for address in (settings.address, *settings.aliases):
        if normal_address(address) is None:
            raise ConfigError(
                f"{section}: {address!r} is not an address.",
                hint='Write for example: address = "agent@example.org"',
                field=f"{section}.address",
            )
    return EmailAdapter(
        settings,
        context.require_secret("password"),
        imap=MailServerAddress.parse(settings.imap_url, "imap", f"{section}.imap_url"),
        smtp=MailServerAddress.parse(settings.smtp_url, "smtp", f"{section}.smtp_url"),
        account=context.account,
    )


PLATFORM = PlatformDefinition(
    "email",
    "E-mail",
    length_limit=MAX_TEXT,
    markdown="html",
    threads=True,
    media=True,
    settings=EmailSettings,
    build=build,
    format=format_text,
    notes=(
        "Each answer is a mail: answer completely, in one message.",
        "You cannot send to other people, search the mailbox or delete mails.",
    ),
    setup=(
        SetupQuestion(key="address", question="The address of the agent"),
        SetupQuestion(key="imap_url", question="The IMAP server (imaps://HOST)"),
        SetupQuestion(key="smtp_url", question="The SMTP server (smtps://HOST)"),
        SetupQuestion(key="user", question="The user, if it is not the address", default=""),
        SetupQuestion(key="password", question="The password", is_secret=True),
        SetupQuestion(
            key="auth_server",
            question="The name after Authentication-Results: in your mails",
            default="",
        ),
    ),
    guide=(
        "E-mail needs a mailbox of its own for the agent, at any provider with IMAP and SMTP. Many"
        " want a password for programs (an app password). Open the source of any mail that came"
        ' into this mailbox: the first word after "Authentication-Results:" is the name of your'
        " server, for example mx.example.org. Only its word counts for who wrote a mail."
    ),
    pairing=(
        "Start the gateway with: tertulia run. Then write a mail to the agent. It answers with a"
        " code; approve it with: tertulia pair approve CODE"
    ),
)
