"""Decoding: pictures become upright, small and anonymous; PDFs and bad files are told apart."""

from __future__ import annotations

import io
import logging
import random

import pytest
from PIL import Image

from tertulia.core.media import read_type
from tertulia.gateway.media_decoder import (
    LONG_SIDE,
    MAX_IMAGE_BYTES,
    MAX_TEXT,
    decode_image,
    decode_pdf,
    run_job,
)
from tests.gateway import media_samples as samples


def opened(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


def test_photo_of_12_megapixels_loses_its_metadata() -> None:
    content = samples.photo()
    assert b"SECRETPHONE" in content
    result = decode_image(content, "image/jpeg")
    image = opened(result.content)
    # It was stored on its side: 4000 x 3000 with the orientation "turn by 90 degrees".
    assert image.size == (1176, 1568) == (result.fields["width"], result.fields["height"])
    assert image.format == "JPEG"
    assert len(result.content) <= MAX_IMAGE_BYTES
    assert dict(image.getexif()) == {}
    assert not {"exif", "icc_profile", "comment", "xmp"} & image.info.keys()
    for secret in (b"SECRETPHONE", samples.COMMENT, b"Exif", b"GPS", b"ICC_PROFILE"):
        assert secret not in result.content


def test_noise_is_made_smaller_until_it_fits() -> None:
    noise = Image.frombytes("RGB", (1600, 1600), random.Random(2).randbytes(1600 * 1600 * 3))
    buffer = io.BytesIO()
    noise.save(buffer, "PNG", compress_level=0)
    result = decode_image(buffer.getvalue(), "image/png")
    assert len(result.content) <= MAX_IMAGE_BYTES
    assert max(opened(result.content).size) <= LONG_SIDE


@pytest.mark.parametrize(
    ("format", "mode", "alpha", "expected"),
    [
        ("JPEG", "RGB", 255, "image/jpeg"),
        ("WEBP", "RGB", 255, "image/jpeg"),
        ("GIF", "RGB", 255, "image/jpeg"),
        ("PNG", "RGB", 255, "image/jpeg"),
        ("PNG", "RGBA", 255, "image/jpeg"),  # a channel that hides nothing
        ("PNG", "RGBA", 90, "image/png"),
        ("WEBP", "RGBA", 90, "image/png"),
    ],
)
def test_result_is_jpeg_or_png(format: str, mode: str, alpha: int, expected: str) -> None:
    content = samples.image(format, mode=mode, alpha=alpha)
    result = decode_image(content, read_type(content))
    assert result.fields == {"type": expected, "width": 64, "height": 48}
    assert read_type(result.content) == expected


def test_type_by_the_bytes_chooses_the_decoder() -> None:
    """No other decoder is tried: a file cannot choose the weakest one."""
    gif = samples.image("GIF")
    fields = run_job({"kind": "image", "type": "image/png"}, gif).fields
    assert fields == {"problem": "it is broken"}


def test_pdf_gives_pages_and_text() -> None:
    assert decode_pdf(samples.pdf(2, "Hola"), "").fields == {
        "pages": 2,
        "text": "Hola 1\n\nHola 2",
        "is_cut": False,
    }
    assert logging.root.manager.disable == logging.NOTSET  # only the own process logs nothing
    long = decode_pdf(samples.pdf(90, "x" * 2000), "").fields
    assert len(long["text"]) == MAX_TEXT
    assert long["is_cut"]


@pytest.mark.parametrize("name", samples.bombs())
def test_bombs_give_one_reason(name: str) -> None:
    content, reason = samples.bombs()[name]
    media_type = read_type(content)
    if media_type == "application/pdf" or media_type.startswith("image/"):
        kind = "pdf" if name.endswith(".pdf") else "image"
        fields = run_job({"kind": kind, "type": media_type}, content).fields
        assert list(fields) == ["problem"]
        assert reason in fields["problem"]
