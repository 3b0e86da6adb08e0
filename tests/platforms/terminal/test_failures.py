"""Why there is no answer: said to the owner in each output, and to scripts by the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tertulia.cli.errors import DENIED, NO_ANSWER
from tests.platforms.pseudo_terminal import PROMPT, tertulia
from tests.servers.models import ModelServer, refuses
from tests.servers.ports import free_port

pytestmark = pytest.mark.check

_SOURCES = str(Path(__file__).parents[3] / "src")
_KEY = "sk-a-key-that-nobody-may-see"


class Failure(NamedTuple):
    """A configuration without an answer: its text, what is said, and the exit code."""

    config: str
    texts: tuple[str, ...]
    code: int

    def environ(self, folder: Path) -> dict[str, str]:
        """Write the configuration below the home in a folder; return variables for a program."""
        settings = folder / "home/.config/tertulia"
        settings.mkdir(parents=True)
        (settings / "config.toml").write_text(self.config)
        return {
            "HOME": str(folder / "home"), "PATH": os.environ["PATH"], "TZ": "UTC",
            "PYTHONPATH": _SOURCES, "MY_KEY": _KEY,
        }  # fmt: skip


def _model(url: str) -> str:
    return (
        f'[agent]\nkind = "openai"\nmodel = "test"\nbase_url = "{url}"\n'
        'api_key_env = "MY_KEY"\n[agent.retry]\ntries = 1\n'
    )


@pytest.fixture(params=["wrong key", "no server", "no program", "no budget"])
def failure(request: pytest.FixtureRequest) -> Iterator[Failure]:
    if request.param == "no program":
        config = '[agent]\nkind = "command"\ncommand = ["no-such-one"]\n'
        yield Failure(config, ("'no-such-one' cannot be started", "/retry"), NO_ANSWER)
    elif request.param == "no budget":
        config = '[[store.budgets]]\nper = "person"\nperiod = "day"\ntokens = 1\n'
        yield Failure(config, ("The budget is spent:", "of 1 tokens"), DENIED)
    elif request.param == "no server":
        url = f"http://127.0.0.1:{free_port()}/v1"
        yield Failure(_model(url), (f"{url} cannot be reached", "/retry"), NO_ANSWER)
    else:
        with ModelServer() as server:
            server.script(*[refuses(401, f"Incorrect API key provided: {_KEY}.")] * 8)
            texts = ("answered 401: Incorrect API key provided", "MY_KEY", "/retry")
            yield Failure(_model(server.url), texts, NO_ANSWER)


def test_pipe_gets_it_on_standard_error_and_as_an_exit_code(
    tmp_path: Path, failure: Failure
) -> None:
    environ = failure.environ(tmp_path)
    # The first message of a person is within a budget; then nothing is left.
    said = "one\ntwo\n" if failure.code == DENIED else "one\n"
    done = subprocess.run(
        [sys.executable, "-m", "tertulia", "chat"],
        input=said, capture_output=True, text=True, env=environ, check=False,
    )  # fmt: skip
    assert done.returncode == failure.code
    for text in failure.texts:
        assert text in done.stderr
        assert text not in done.stdout
    assert _KEY not in done.stdout + done.stderr


@pytest.mark.parametrize("option", [(), ("--plain",)], ids=["terminal", "plain"])
def test_person_at_the_terminal_is_told_the_cause(
    tmp_path: Path, failure: Failure, option: tuple[str, ...]
) -> None:
    prompt = "You:" if option else PROMPT.strip()
    failure.environ(tmp_path)
    with tertulia(tmp_path, "chat", *option, MY_KEY=_KEY) as talk:
        talk.sees(prompt)
        talk.press("one\r")
        if failure.code == DENIED:
            talk.sees("Say “help”")
            talk.press("two\r")

        def words() -> str:
            return " ".join(talk.text.split())

        talk.until(lambda: all(text in words() for text in failure.texts), "the cause")
        assert _KEY not in words()
        assert "Traceback" not in words()
        talk.press("\x04")
        assert talk.ends() == 0  # a person has read it: only scripts need a code


def test_json_of_ask_names_the_failure(tmp_path: Path, failure: Failure) -> None:
    environ = failure.environ(tmp_path)
    command = [sys.executable, "-m", "tertulia", "ask", "--json", "one"]
    if failure.code == DENIED:
        subprocess.run(command, capture_output=True, env=environ, check=True)
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == failure.code
    assert done.stdout == ""
    assert failure.texts[0] in json.loads(done.stderr)["error"]["message"]
