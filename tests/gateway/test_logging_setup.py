"""The log: a line for each turn, and nothing in it that should not be there."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Literal

import pytest

from tertulia.agents import Event, ParrotAgent, Request, Step
from tertulia.core.history.formats import Format
from tertulia.core.history.model_traits import ModelTraits
from tertulia.core.text.redact import Redactor
from tertulia.errors import AgentStopped, ConfigError
from tertulia.gateway.logging_setup import LoggedAgent, configured_logging
from tertulia.gateway.settings import LogSettings
from tertulia.platforms.registry import needs_raw_ids

KEY = "agent:main:whatsapp:dm:34600123456"
REDACTOR = Redactor(b"0" * 32, needs_raw_ids)


async def history(
    *, format: Format = "openai", max_tokens: int | None = None, model: ModelTraits | None = None
) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "a secret wish"}]


def request() -> Request:
    return Request(
        text="a secret wish", history=history, session_id="s1", key=KEY, platform="whatsapp"
    )


def answered(given: Request) -> list[Any]:
    async def run() -> list[Any]:
        return [event async for event in LoggedAgent(ParrotAgent()).run(given)]

    return asyncio.run(run())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_turn_is_one_log_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with configured_logging(LogSettings(format="json", file=str(path)), REDACTOR):
        events = answered(request())
    assert isinstance(events[-1], Step)
    (line,) = lines(path)
    assert line["event"] == "turn"
    assert (line["session"], line["platform"], line["agent"]) == ("s1", "whatsapp", "parrot")
    assert (line["outcome"], line["steps"], line["tools"], line["level"]) == (
        "answered", 1, 0, "info",
    )  # fmt: skip
    assert line["input_tokens"] > 0
    assert line["key"].startswith("agent:main:whatsapp:dm:")
    text = path.read_text("utf-8")
    assert "34600123456" not in text
    assert "wish" not in text


def test_cost_is_unknown_if_a_price_is_missing(tmp_path: Path) -> None:
    class Silent(ParrotAgent):
        async def run(self, request: Request) -> AsyncGenerator[Event, None]:
            yield Step(text="yes")

    async def run() -> None:
        async for _ in LoggedAgent(Silent()).run(request()):
            pass

    path = tmp_path / "log"
    with configured_logging(LogSettings(format="json", file=str(path)), REDACTOR):
        asyncio.run(run())
        answered(request())
    assert [line["cost_usd"] for line in lines(path)] == [None, 0.0]


@pytest.mark.parametrize("format", ["json", "text"])
def test_secret_in_an_error_message_is_hidden(
    tmp_path: Path, format: Literal["json", "text"]
) -> None:
    path, key = tmp_path / "log", "sk-abcdefghijklmnopqrstuvwxyz"
    logger = logging.getLogger("tertulia.gateway")
    with configured_logging(LogSettings(format=format, file=str(path)), REDACTOR):
        logger.warning("the program said: %s", f"wrong key {key}")
        problem = ValueError(f"Authorization: Bearer {key}")
        logger.warning("it failed", exc_info=problem)
        logger.warning("turn", extra={"fields": {"problem": f"token={key}"}})
    assert path.read_text("utf-8").count("[hidden]") == 3
    assert "abcdef" not in path.read_text("utf-8")


def test_stopped_turn_has_the_outcome_stopped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    given = request()
    given.stop.set()
    with (
        configured_logging(LogSettings(format="json", file=str(path)), REDACTOR),
        pytest.raises(AgentStopped),
    ):
        answered(given)
    assert [line["outcome"] for line in lines(path)] == ["stopped"]


def test_level_applies_and_is_restored(tmp_path: Path) -> None:
    logger, path = logging.getLogger("tertulia"), tmp_path / "log"
    before = list(logger.handlers), logger.level, logger.propagate
    with configured_logging(LogSettings(level="warning", file=str(path)), REDACTOR):
        answered(request())
        logging.getLogger("tertulia.gateway").warning("no answer for %s", "+34 600 123 456")
    assert (list(logger.handlers), logger.level, logger.propagate) == before
    (line,) = path.read_text("utf-8").splitlines()
    assert "no answer for" in line
    assert "600 123" not in line


def test_quiet_terminal_shows_only_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with configured_logging(LogSettings(), REDACTOR, is_quiet=True):
        answered(request())
        assert capsys.readouterr().err == ""
        logging.getLogger("tertulia.gateway").warning("look here")
    assert "look here" in capsys.readouterr().err


def test_unwritable_log_file_is_an_error(tmp_path: Path) -> None:
    wanted = LogSettings(file=str(tmp_path / "nowhere" / "log"))
    with (
        pytest.raises(ConfigError, match="cannot be written"),
        configured_logging(wanted, REDACTOR),
    ):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "session s1 of agent:main:telegram:dm:joe_bloggs ended (idle).",
        "There is no person 'telegram:joe_bloggs' here.",
        "nothing goes to signal:joe_bloggs: it is not connected",
        "turn of agent:main:whatsapp:group:joe_bloggs:joe_bloggs, retrying",
    ],
)
def test_ids_that_are_no_numbers_are_hidden_in_texts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log"
    with configured_logging(LogSettings(file=str(path)), REDACTOR):
        logging.getLogger("tertulia.gateway").warning("%s", text)
    (line,) = path.read_text("utf-8").splitlines()
    assert "joe" not in line
    assert text.rsplit(maxsplit=1)[-1] in line


def test_key_in_a_text_has_the_pseudonym_of_the_field(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with configured_logging(LogSettings(file=str(path), format="json"), REDACTOR):
        logging.getLogger("tertulia.gateway").warning("session s1 of %s ended", KEY)
    (line,) = lines(path)
    assert line["event"] == f"session s1 of {REDACTOR.key(KEY)} ended"


def test_texts_that_look_like_addresses_stay(tmp_path: Path) -> None:
    path, text = tmp_path / "log", "web: port 8080 at http://127.0.0.1:8080/x, local:cli, api:1"
    with configured_logging(LogSettings(file=str(path), format="json"), REDACTOR):
        logging.getLogger("tertulia.gateway").warning("%s", text)
    assert "http://127.0.0.1:8080/x, local:cli" in lines(path)[0]["event"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_log_file_is_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with configured_logging(LogSettings(file=str(tmp_path / "log")), REDACTOR):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
