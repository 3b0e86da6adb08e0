"""The program that decodes files of strangers, in a process of its own.

It is started by its path, isolated from the environment, and imports nothing of the package: a file
that makes a decoder crash, hang or fill the memory costs this process only. Jobs come on standard
input and results go to standard output, each as two lengths, a JSON object and bytes.
"""

from __future__ import annotations

import io
import json
import logging
import struct
import sys
from typing import IO, Any, Final, NamedTuple

# Two big-endian lengths: of the JSON object and of the bytes after it.
FRAME: Final = struct.Struct(">II")
MEMORY_BYTES: Final = 1_000_000_000
MAX_PIXELS: Final = 50_000_000
LONG_SIDE: Final = 1568
MAX_IMAGE_BYTES: Final = 1_000_000
MAX_PAGES: Final = 100
MAX_TEXT: Final = 100_000

_FORMATS: Final = {
    "image/jpeg": "JPEG",
    "image/png": "PNG",
    "image/webp": "WEBP",
    "image/gif": "GIF",
}
_QUALITIES: Final = (85, 75, 60, 45)
_ALPHA_MODES: Final = ("RGBA", "LA", "PA", "RGBa", "La")


class DecoderResult(NamedTuple):
    """The result of a job; `problem` says in words why there is none."""

    fields: dict[str, Any]
    content: bytes = b""


class Undecodable(Exception):
    """The file cannot be shown; the message says why, for people."""


def decode_image(content: bytes, media_type: str) -> DecoderResult:
    """Return a picture upright, small and without metadata, as JPEG or PNG."""
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None  # the size is checked here, before anything is decoded
    with Image.open(io.BytesIO(content), formats=[_FORMATS[media_type]]) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise Undecodable(f"it has more than {MAX_PIXELS // 1_000_000} megapixels")
        # A JPEG can be decoded at a fraction of its size, which saves most of the memory.
        image.draft("RGB", (LONG_SIDE * 2, LONG_SIDE * 2))
        image.load()
        upright = ImageOps.exif_transpose(image)
        has_alpha = upright.mode in _ALPHA_MODES or "transparency" in upright.info
        pixels = upright.convert("RGBA" if has_alpha else "RGB")
    if has_alpha and pixels.getchannel("A").getextrema()[0] == 255:
        has_alpha, pixels = False, pixels.convert("RGB")
    pixels.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.LANCZOS)
    # A comment, a colour profile or Exif data would be written from here.
    pixels.info = {}
    encoded, size = _encode_image(pixels, is_png=has_alpha)
    fields = {"type": "image/png" if has_alpha else "image/jpeg"}
    return DecoderResult({**fields, "width": size[0], "height": size[1]}, encoded)


def _encode_image(pixels: Any, *, is_png: bool) -> tuple[bytes, tuple[int, int]]:
    """Return the encoded picture, made smaller until it is within the limit."""
    from PIL import Image

    while True:
        for quality in (_QUALITIES[0],) if is_png else _QUALITIES:
            buffer = io.BytesIO()
            if is_png:
                pixels.save(buffer, "PNG", optimize=False)
            else:
                pixels.save(buffer, "JPEG", quality=quality)
            if buffer.tell() <= MAX_IMAGE_BYTES:
                return buffer.getvalue(), pixels.size
        smaller = (max(1, pixels.width * 3 // 4), max(1, pixels.height * 3 // 4))
        pixels = pixels.resize(smaller, Image.Resampling.LANCZOS)


def decode_pdf(content: bytes, media_type: str) -> DecoderResult:
    """Return the number of pages and the text of a PDF."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Undecodable("it is protected by a password")
    count = len(reader.pages)
    if count > MAX_PAGES:
        raise Undecodable(f"it has more than {MAX_PAGES} pages")
    texts, length = [], 0
    for page in reader.pages:
        text = page.extract_text()
        texts.append(text)
        length += len(text)
        if length > MAX_TEXT:
            break
    text = "\n\n".join(texts).encode("utf-8", "replace").decode()
    return DecoderResult({"pages": count, "text": text[:MAX_TEXT], "is_cut": len(text) > MAX_TEXT})


_DECODERS: Final = {"image": decode_image, "pdf": decode_pdf}


def run_job(job: dict[str, Any], content: bytes) -> DecoderResult:
    """Return the result of a job, also for a file that no decoder accepts."""
    try:
        return _DECODERS[job["kind"]](content, job["type"])
    except Undecodable as problem:
        return DecoderResult({"problem": str(problem)})
    except ImportError:
        return DecoderResult({"problem": "this needs the extra 'media' of tertulia"})
    except MemoryError:
        return DecoderResult({"problem": "it needs too much memory"})
    except Exception:  # noqa: BLE001 - decoders raise anything for a file that is broken
        return DecoderResult({"problem": "it is broken"})


def limit_process() -> None:
    """Limit memory and files of this process, where the system can."""
    try:
        import resource
    except ImportError:
        return  # not a Unix
    limits = (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    )
    for name, value in limits:
        try:
            resource.setrlimit(name, (value, value))
        except (ValueError, OSError):
            continue  # the system has a lower limit already


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Return the next job, or None at the end."""
    lengths = stream.read(FRAME.size)
    if len(lengths) < FRAME.size:
        return None
    head, body = FRAME.unpack(lengths)
    fields: dict[str, Any] = json.loads(stream.read(head))
    return fields, stream.read(body)


def pack_frame(fields: dict[str, Any], content: bytes = b"") -> bytes:
    """Return the bytes of a job or a result."""
    head = json.dumps(fields).encode()
    return FRAME.pack(len(head), len(content)) + head + content


def main() -> None:
    """Run jobs until standard input is closed."""
    sys.dont_write_bytecode = True
    limit_process()
    logging.disable(logging.CRITICAL)  # libraries describe every defect of a broken file
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        result = run_job(*frame)
        sys.stdout.buffer.write(pack_frame(result.fields, result.content))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
