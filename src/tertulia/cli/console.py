"""`tertulia console`: sign a browser in to the console of a running gateway."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import click

from tertulia.cli import locations, output
from tertulia.cli.options import TEXT, CliCommand, CommandOptions, json_option, program_name
from tertulia.core.text import format
from tertulia.errors import ConfigError
from tertulia.http.settings import NO_TOKEN, is_loopback
from tertulia.records.browsers import CODE_LIFETIME

if TYPE_CHECKING:
    from tertulia.config.schema import HttpSection

_ENTRANCE = "/console/enter"
_CONNECT_SECONDS = 1.0


@click.command(cls=CliCommand)
@click.option("--print", "is_printed_only", is_flag=True, help="Print the link, open no browser.")
@click.option(
    "--as", "name", type=TEXT, metavar="NAME",
    help="The token whose rights the browser gets. Default: the first one of an owner.",
)  # fmt: skip
@click.option(
    "--port", metavar="N", type=click.IntRange(1, 65535),
    help="The port of the gateway, if the configuration says 0.",
)  # fmt: skip
@json_option
@click.pass_obj
def console(
    options: CommandOptions, is_printed_only: bool, name: str | None, port: int | None
) -> None:
    """Open the console of the running gateway in the browser, signed in.

    The link has a code that signs in one browser, within two minutes. Without a browser on this
    machine, open the console elsewhere and type the code.
    """
    http = locations.load_config(options).config.http
    port = port or _port(http)
    token = name or _owner_token(http)
    if name is not None and name not in http.token_roles:
        raise ConfigError(
            f"There is no token {name!r}.",
            hint=f"There are: {', '.join(http.token_roles)}.",
            field="http.tokens",
        )
    with locations.open_existing_store(options) as store:
        code = store.browsers.request_code(token)
        until = store.now() + CODE_LIFETIME
    links = _links(http, port, code)
    is_up = _answers(http, port)
    value = {"code": code, "links": links, "until": format.utc_text(until), "is_running": is_up}
    lines = [*links, f"Or open the console and type {code}. It is valid for two minutes, once."]
    if not is_up:
        command = f"{program_name()} run"
        lines.append(f"Nothing answers on port {port} yet. Start the gateway with: {command}")
    output.print_result(options, value, "\n".join(lines))
    if not (is_printed_only or options.json) and is_up:
        _open_browser(links[0])


def _port(http: HttpSection) -> int:
    if not http.enabled:
        raise ConfigError(
            "HTTP is not enabled, so there is no console.",
            hint="Set: enabled = true under [http], and start the gateway again",
            field="http.enabled",
        )
    if http.port == 0:
        raise ConfigError(
            "http.port is 0, so the port is known to the running gateway only.",
            hint="Give the one that it has logged: tertulia console --port N",
            field="http.port",
        )
    return http.port


def _owner_token(http: HttpSection) -> str:
    """Return the name of a token with all rights; without tokens, that of the generated one."""
    for token in http.tokens:
        if token.role == "owner":
            return token.name
    if http.tokens:
        raise ConfigError(
            "No token has the role owner.",
            hint="Give one of them that role, or name a token: tertulia console --as NAME",
            field="http.tokens",
        )
    return NO_TOKEN


def _links(http: HttpSection, port: int, code: str) -> list[str]:
    """Return the addresses of the entrance. What follows `#` is never sent over the network."""
    names = [f"https://{name}" for name in http.hosts]
    if is_loopback(http.host) or http.host in ("0.0.0.0", "::"):  # noqa: S104
        names += [f"http://tertulia.localhost:{port}", f"http://127.0.0.1:{port}"]
    else:
        host = f"[{http.host}]" if ":" in http.host else http.host
        names.append(f"http://{host}:{port}")
    return [f"{name}{_ENTRANCE}#{code}" for name in names]


def _answers(http: HttpSection, port: int) -> bool:
    host = "127.0.0.1" if http.host in ("0.0.0.0", "::", "localhost") else http.host  # noqa: S104
    with contextlib.suppress(OSError), socket.create_connection((host, port), _CONNECT_SECONDS):
        return True
    return False


def _open_browser(link: str) -> None:
    import webbrowser

    with contextlib.suppress(webbrowser.Error):  # there is none; the link is printed
        webbrowser.open(link)
