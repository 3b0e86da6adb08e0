"""Files for the tests: a photo as a phone makes it, and files made to break a decoder."""

from __future__ import annotations

import io
import random
import struct
import zlib
from functools import lru_cache

from PIL import Image, ImageCms

GPS = (40.4168, -3.7038)
COMMENT = b"taken at home by Ana"


@lru_cache
def photo(width: int = 4000, height: int = 3000, *, orientation: int = 6) -> bytes:
    """Return a noisy JPEG with Exif data, GPS among it, a comment and a colour profile."""
    small = Image.frombytes("RGB", (100, 75), random.Random(1).randbytes(100 * 75 * 3))
    image = small.resize((width, height))
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "SECRETPHONE"
    gps = exif.get_ifd(0x8825)
    gps[1], gps[2] = "N", (40.0, 25.0, 0.48)
    gps[3], gps[4] = "W", (3.0, 42.0, 13.68)
    buffer = io.BytesIO()
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image.save(buffer, "JPEG", quality=92, exif=exif, comment=COMMENT, icc_profile=profile)
    return buffer.getvalue()


def image(format: str, size: tuple[int, int] = (64, 48), mode: str = "RGB", **color: int) -> bytes:
    """Return a small image of one colour."""
    fill = (200, 30, 60, color.get("alpha", 255))[: len(mode)]
    buffer = io.BytesIO()
    Image.new(mode, size, fill).save(buffer, format)
    return buffer.getvalue()


def png(width: int, height: int, data: bytes, *, depth: int = 1) -> bytes:
    """Return a PNG with that header and those compressed bytes, whether they fit or not."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def pdf(pages: int = 1, text: str = "Hello") -> bytes:
    """Return a PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(pages))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number in range(pages):
        stream = f"BT /F1 12 Tf 50 700 Td ({text} {number + 1}) Tj ET"
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800]"
            f" /Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    return _pdf_file(objects)


def _pdf_file(objects: list[str]) -> bytes:
    parts, offsets = [b"%PDF-1.4\n"], []
    for number, item in enumerate(objects, 1):
        offsets.append(sum(map(len, parts)))
        parts.append(f"{number} 0 obj\n{item}\nendobj\n".encode())
    start = sum(map(len, parts))
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    count = len(objects) + 1
    parts.append(
        f"xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n"
        f"<< /Size {count} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    )
    return b"".join(parts)


def _endless_pdf() -> bytes:
    """Return a PDF whose tree of pages contains itself."""
    return _pdf_file(
        ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"]
    )


@lru_cache
def bombs() -> dict[str, tuple[bytes, str]]:
    """Return files by name, each with a part of the sentence that it costs."""
    zeros = zlib.compress(bytes(30_000 * 3751), 1)
    jpeg = bytearray(image("JPEG"))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", 65_500, 65_500)
    gif = bytearray(image("GIF"))
    gif[6:10] = struct.pack("<HH", 65_535, 65_535)
    vp8x = b"VP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff\xff\xff" * 2
    whole = image("PNG", (640, 480))
    return {
        "decompression.png": (png(30_000, 30_000, zeros), "more than 50 megapixels"),
        "giant.png": (png(2**31 - 1, 2**31 - 1, b""), "more than 50 megapixels"),
        "giant.jpg": (bytes(jpeg), "more than 50 megapixels"),
        "giant.gif": (bytes(gif), "more than 50 megapixels"),
        "giant.webp": (b"RIFF" + struct.pack("<I", 22) + b"WEBP" + vp8x, "it is broken"),
        "cut.png": (whole[: len(whole) // 2], "it is broken"),
        "liar.png": (png(5000, 5000, zlib.compress(b"short")), "it is broken"),
        "program.png": (b"\x7fELF" + bytes(2000), "files of this type cannot be read"),
        "archive.zip": (b"PK\x03\x04" + bytes(2000), "files of this type cannot be read"),
        "endless.pdf": (_endless_pdf(), "it "),
        "long.pdf": (pdf(101), "more than 100 pages"),
        "broken.pdf": (b"%PDF-1.7\n" + bytes(range(256)) * 20, "it is broken"),
        "binary.txt": (b"a" * 5000 + b"\xff\xfe", "not text in UTF-8"),
    }
