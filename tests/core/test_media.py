"""Files of messages: their type is read from the bytes, and their name is made safe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia import Media
from tertulia.core.media import read_type, safe_name


@pytest.mark.parametrize(
    ("content", "declared", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n....", "image/jpeg", "image/png"),
        (b"\xff\xd8\xff\xe0", None, "image/jpeg"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/png", "image/webp"),
        (b"%PDF-1.7", "text/plain", "application/pdf"),
        (b"MZ\x90\0", "image/png", "application/x-msdownload"),
        (b"PK\x03\x04", "application/vnd.oasis.opendocument.text",
         "application/vnd.oasis.opendocument.text"),
        (b"PK\x03\x04", "image/png", "application/zip"),
        (b"<script>alert(1)</script>", "text/html", "text/plain"),
        (b"a,b\n1,2", "text/csv; charset=utf-8", "text/csv"),
        ("¡hola!".encode() * 1000, None, "text/plain"),
        (b"\xfe\x00\x01\x02\x03\x04\x05", "image/png", "application/octet-stream"),
        (b"", "image/png", "text/plain"),
    ],
)  # fmt: skip
def test_type_is_read_from_the_bytes(content: bytes, declared: str | None, media_type: str) -> None:
    assert read_type(content, declared) == media_type


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ana\\photo.jpg", "photo.jpg"),
        ("cv\u202efdp.exe", "cv_fdp.exe"),
        (None, "file.png"),
        ("...", "file.png"),
        ("a" * 300 + ".png", "a" * 96 + ".png"),
    ],
)
def test_name_is_made_safe(name: str | None, safe: str) -> None:
    assert safe_name(name, "image/png") == safe


@given(st.text(), st.binary())
def test_any_name_and_content_give_something_usable(name: str, content: bytes) -> None:
    media_type = read_type(content, name)
    safe = safe_name(name, media_type)
    assert safe
    assert len(safe) <= 100
    assert not set(safe) & set('/\\\0\n<>:"|?*')
    assert "/" in media_type


def test_stored_form_has_the_promised_keys() -> None:
    media = Media(type="image/png", name="a.png", size=3, hash="ab", source="file-1")
    assert set(media.to_dict()) == {"type", "name", "size", "hash", "source"}
    assert Media.from_dict(media.to_dict() | {"extra": 1}) == media
    assert Media(problem="gone").to_dict()["problem"] == "gone"
