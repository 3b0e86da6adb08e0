"""The parts of a mail, from the structure that an IMAP server reports."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.platforms.email.imap import read_tokens
from tertulia.platforms.email.structure import (
    MailPart,
    Structure,
    decode_bytes,
    decode_text,
    decode_transfer,
    read_structure,
    unwrap_flowed,
)

PLAIN = '("text" "plain" ("charset" "utf-8") NIL NIL "7bit" 10 1 NIL NIL NIL NIL)'
HTML = '("text" "html" ("charset" "utf-8") NIL NIL "quoted-printable" 20 1 NIL NIL NIL NIL)'
PNG = (
    '("image" "png" ("name" "cat.png") NIL NIL "base64" 400 NIL'
    ' ("attachment" ("filename" "cat.png")) NIL NIL)'
)


def read(text: str) -> Structure:
    return read_structure(read_tokens(text.encode())[0])


def sections(parts: tuple[MailPart, ...]) -> list[str]:
    return [part.section for part in parts]


def test_simple_mail_is_its_text() -> None:
    structure = read(PLAIN)
    assert (structure.type, sections(structure.texts)) == ("text/plain", ["1"])


def test_plain_text_wins_over_html_and_files_come_along() -> None:
    structure = read(f'(({PLAIN}{HTML} "alternative" NIL NIL NIL NIL){PNG} "mixed" NIL NIL NIL)')
    assert sections(structure.texts) == ["1.1"]
    (file,) = structure.files
    assert (file.section, file.type, file.name, file.decoded_size) == (
        "2",
        "image/png",
        "cat.png",
        300,
    )


def test_html_is_the_text_where_there_is_no_other() -> None:
    assert sections(read(f'({HTML}{PNG} "mixed" NIL NIL NIL)').texts) == ["1"]
    alternative = f'({HTML}("text" "calendar" NIL NIL NIL "7bit" 9 1 NIL NIL NIL) "alternative")'
    structure = read(alternative)
    assert (sections(structure.texts), structure.files) == (["1"], ())


def test_small_pictures_inside_html_are_no_files() -> None:
    logo = '("image" "png" NIL "<logo@x>" NIL "base64" 400 NIL ("inline" NIL) NIL NIL)'
    photo = '("image" "jpeg" NIL "<photo@x>" NIL "base64" 90000 NIL ("inline" NIL) NIL NIL)'
    structure = read(f'({HTML}{logo}{photo} "related" NIL NIL NIL)')
    assert sections(structure.files) == ["3"]


def test_signature_of_a_signed_mail_is_no_file() -> None:
    seal = '("application" "pgp-signature" NIL NIL NIL "7bit" 400 NIL NIL NIL NIL)'
    assert read(f'({PLAIN}{seal} "signed" NIL NIL NIL)').files == ()


def test_mail_inside_a_mail_is_a_file() -> None:
    inner = f'("message" "rfc822" NIL NIL NIL "7bit" 900 (NIL) {PLAIN} 20 NIL NIL NIL)'
    (file,) = read(f'({PLAIN}{inner} "mixed" NIL NIL NIL)').files
    assert (file.type, file.section) == ("message/rfc822", "2")


@pytest.mark.parametrize(
    "parameters",
    [
        '("filename" "=?utf-8?q?a=C3=B1o.txt?=")',
        '("filename*" "utf-8\'\'a%C3%B1o.txt")',
        '("filename*0*" "utf-8\'\'a%C3" "filename*1*" "%B1o.txt")',
    ],
)
def test_name_of_a_file_is_decoded(parameters: str) -> None:
    part = f'("text" "plain" NIL NIL NIL "7bit" 1 1 NIL ("attachment" {parameters}) NIL NIL)'
    (file,) = read(part).files
    assert file.name == "año.txt"


@given(st.text(alphabet='()"\\ abNIL123/', max_size=200))
def test_any_structure_is_read(text: str) -> None:
    tokens = read_tokens(text.encode())
    read_structure(tokens[0] if tokens else None)


def test_structure_that_is_too_deep_has_no_end() -> None:
    read("(" * 500 + PLAIN + ' "mixed")' * 500)


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        (b"a\xc3\xb1o", "utf-8", "año"),
        (b"a\xf1o", "iso-8859-1", "año"),
        (b"a\xf1o", "utf-8", "año"),
        (b"a\xc3\xb1o", "nonsense", "año"),
        (b"a\xc3\xb1o", None, "año"),
        (b"hola", "zip", "hola"),
        (b"hola", "\x00", "hola"),
        ("再见".encode("gb18030"), '"gb18030"', "再见"),
    ],
)
def test_charset_nonsense_is_survived(data: bytes, charset: str | None, text: str) -> None:
    assert decode_bytes(data, charset) == text


@given(st.binary(max_size=100), st.sampled_from(["base64", "quoted-printable", "7bit", "x"]))
def test_any_encoding_is_decoded(data: bytes, encoding: str) -> None:
    decode_transfer(data, encoding)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_cut_base64_yields_the_beginning(data: bytes, size: int) -> None:
    encoded = base64.encodebytes(data)
    assert data.startswith(decode_transfer(encoded[:size], "base64"))
    assert decode_transfer(encoded, "base64") == data


def test_flowed_text_has_one_line_for_each_paragraph() -> None:
    assert unwrap_flowed("one \ntwo\nthree\n-- \nAna") == "one two\nthree\n-- \nAna"
    part = MailPart(section="1", type="text/plain", is_flowed=True)
    assert decode_text(part, b"one \r\ntwo\r\n") == "one two\n"


def test_mail_of_thousands_of_parts_is_cut() -> None:
    leaf = ["image", "png", None, None, None, "base64", "10", None, None]
    structure = read_structure([*([leaf] * 3000), "mixed"])
    assert len(structure.files) == 200
