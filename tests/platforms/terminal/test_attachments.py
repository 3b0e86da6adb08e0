"""Files that go with the next message of the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import pytest

from tertulia.core.media import Media
from tertulia.errors import ConfigError
from tertulia.platforms.terminal.attachments import Attachments, is_attachment_command

T = TypeVar("T")


def run(work: Awaitable[T]) -> T:
    async def wait() -> T:
        return await work

    return asyncio.run(wait())


@pytest.fixture
def attachments() -> Attachments:
    async def store_file(path: str) -> Media:
        file = Path(path)
        if not file.is_file():  # noqa: ASYNC240
            raise ConfigError(f"There is no file {path!r}.", hint="Check the path.")
        return Media(name=file.name, size=len(file.read_bytes()), hash="0")  # noqa: ASYNC240

    attachments = Attachments()
    attachments.store_file = store_file
    return attachments


def names(files: tuple[Media, ...]) -> list[str | None]:
    return [file.name for file in files]


def test_attached_files_go_with_one_message(attachments: Attachments, tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("x" * 2000)
    (tmp_path / "two words.txt").write_text("y")
    said = run(attachments.run(f"/attach {tmp_path}/plan.txt '{tmp_path}/two words.txt'"))
    assert said == "With the next message: [1] plan.txt 2 KB  [2] two words.txt 1 B"
    assert run(attachments.run("/detach 1")) == "Not sent: plan.txt 2 KB"
    text, files = run(attachments.take("look"))
    assert (text, names(files)) == ("look", ["two words.txt"])
    assert run(attachments.take("again")) == ("again", ())


def test_path_after_an_at_sign_is_attached(attachments: Attachments, tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("x")
    text, files = run(attachments.take(f"read @{tmp_path}/plan.txt for @ana, me@b.org"))
    assert names(files) == ["plan.txt"]
    assert text == f"read @{tmp_path}/plan.txt for @ana, me@b.org"
    assert run(attachments.take(rf"read \@{tmp_path}/plan.txt")) == (
        f"read @{tmp_path}/plan.txt",
        (),
    )


def test_missing_file_attaches_nothing(attachments: Attachments, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        run(attachments.run(f"/attach {tmp_path}/none.txt"))
    with pytest.raises(ConfigError, match="There is no file 3"):
        run(attachments.run("/detach 3"))
    assert attachments.description == ""


def test_files_of_a_message_that_was_not_stored_stay(
    attachments: Attachments, tmp_path: Path
) -> None:
    (tmp_path / "plan.txt").write_text("x")
    run(attachments.run(f"/attach {tmp_path}/plan.txt"))
    _, files = run(attachments.take("look"))
    attachments.put_back(files)
    assert attachments.description == "[1] plan.txt 1 B"


@pytest.mark.parametrize(
    ("text", "is_command"),
    [("/attach a", True), ("/detach", True), ("/attached", False), ("", False), ("hi", False)],
)
def test_commands_are_recognised(text: str, is_command: bool) -> None:
    assert is_attachment_command(text) is is_command
