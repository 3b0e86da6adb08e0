"""Files inside the requests of API clients become files of the store; links are not followed."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tertulia import aio
from tertulia.gateway.request_files import store_files, store_files_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
DATA = base64.b64encode(PNG).decode()


def stored(where: str, *parts: Any) -> list[Any]:
    """Return the files of a request; check that the bytes of each can be read again."""

    async def run() -> list[Any]:
        async with aio.open(where) as store:
            files = await store_files(store, parts)
            for file in files:
                if isinstance(file, dict) and file.get("hash"):
                    assert await store.media.get(file["hash"]) == PNG
            return files

    return asyncio.run(run())


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": url}


def test_images_files_and_audio_are_stored(where: str) -> None:
    file = {"filename": "../plan.png", "file_data": f"data:application/pdf;base64,{DATA}"}
    files = stored(
        where,
        image({"url": f"data:image/jpeg;base64,{DATA}"}),
        image(f"DATA:image/png;base64,{DATA}"),
        {"type": "file", "file": file},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": DATA}},
    )
    assert [file["type"] for file in files] == ["image/png"] * 4  # by the bytes
    assert [file.get("name") for file in files][2] == "plan.png"
    assert len({file["hash"] for file in files}) == 1


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (image({"url": "https://example.org/a.png"}), "links are not followed"),
        (image({"url": "file:///etc/passwd"}), "links are not followed"),
        (image({"url": 5}), "links are not followed"),
        (image(None), "links are not followed"),
        (image({"url": "data:image/png;base64,not/base64!"}), "not valid"),
        (image({"url": "data:image/png;base64,äöü="}), "not valid"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "links are not followed"),
        ({"type": "file", "file": {"filename": 5, "file_data": None}}, "links are not followed"),
        ({"type": "input_audio", "input_audio": {"data": "?"}}, "not valid"),
    ],
)
def test_other_files_are_named_with_a_reason(where: str, part: Any, problem: str) -> None:
    (file,) = stored(where, part)
    assert problem in file["problem"]
    assert file.get("hash") is None


def test_other_parts_stay_as_they_are(where: str) -> None:
    parts = [{"type": "refusal", "refusal": "no"}, {"type": "file", "file": "x"}, "text", None]
    assert stored(where, *parts) == parts


def test_files_of_a_message_are_separate_from_its_text(where: str) -> None:
    content = [{"type": "text", "text": "Look!"}, image({"url": f"data:image/png;base64,{DATA}"})]
    answer = {"role": "assistant", "content": content}
    plain = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}

    async def run() -> None:
        async with aio.open(where) as store:
            message = await store_files_of(store, {"role": "user", "content": content, "x": 1})
            (file,) = message["media"]
            assert (message["content"], message["x"]) == ("Look!", 1)
            assert await store.media.get(file["hash"]) == PNG
            for same in (answer, plain, {"role": "user", "content": "Hello"}):
                assert await store_files_of(store, same) == same

    asyncio.run(run())
