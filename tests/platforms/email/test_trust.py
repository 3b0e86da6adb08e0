"""Trust in a sender: only the word of the own server counts, and only about the domain in From."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.platforms.email.headers import parse_header
from tertulia.platforms.email.trust import own_results, read_trust

OWN = "mx.example.org"
ANA = "ana@example.com"
PASSED = "dmarc=pass header.from=example.com"


@pytest.mark.parametrize(
    ("results", "method"),
    [
        ("dmarc=pass header.from=example.com", "DMARC"),
        ("dkim=pass header.d=example.com", "DKIM"),
        ("dkim=pass (2048-bit key; unprotected) header.i=@example.com header.s=a", "DKIM"),
        ("spf=pass (sender is ok) smtp.mailfrom=bounce@example.com", "SPF"),
        ("dkim=fail header.d=example.com; spf=pass smtp.mailfrom=example.com", "SPF"),
        ('dkim=pass header.d="example.com"', "DKIM"),
        ("DKIM=PASS HEADER.D=EXAMPLE.COM", "DKIM"),
        ("dkim=pass header.d=com", None),
        ("dkim=pass header.d=evil.example", None),
        ("dkim=pass header.d=evil.example.com", None),  # below the domain, not above it
        ("dkim=pass header.d=notexample.com", None),
        ("spf=pass smtp.mailfrom=bounce@evil.example", None),
        ("spf=pass smtp.helo=example.com", None),
        ("dmarc=pass header.from=evil.example", None),
        ("dmarc=fail (pass) header.from=example.com", None),
        ("dkim=neutral header.d=example.com; spf=softfail smtp.mailfrom=example.com", None),
        ("none", None),
        ("", None),
        ("x-dkim=pass header.d=example.com", None),
        ('dkim=fail reason="dkim=pass header.d=example.com" header.d=evil.example', None),
    ],
)
def test_result_counts_for_the_domain_it_is_about(results: str, method: str | None) -> None:
    assert read_trust([f"{OWN}; {results}"], OWN, ANA).method == method


def test_results_after_a_comment_without_an_end_do_not_count() -> None:
    """What a stranger wrote may stand in a comment: nobody knows where it ends."""
    field = f"{OWN}; spf=fail (no (rule; dmarc=pass header.from=example.com"
    assert read_trust([field], OWN, ANA).method is None


@pytest.mark.parametrize(
    "results",
    [
        'spf=pass smtp.mailfrom="a; dkim=pass header.d=example.com x"@evil.example',
        'spf=pass smtp.mailfrom="a\\" smtp.mailfrom=b@example.com x"@evil.example',
        'spf=pass smtp.mailfrom="a; dkim=pass header.d=example.com',
        'spf=pass (of "a); dkim=pass header.d=example.com ("@evil.example) smtp.mailfrom=evil',
        'dkim=fail header.b="x; dmarc=pass header.from=example.com x" header.d=evil.example',
    ],
)
def test_quoted_part_of_an_address_is_no_result(results: str) -> None:
    """A stranger chooses the address of the envelope, and the server repeats it."""
    assert read_trust([f"{OWN}; {results}"], OWN, ANA).method is None


def test_quoted_values_are_read() -> None:
    field = f'{OWN}; dkim=pass reason="2048-bit; key" header.d="example.com"'
    assert read_trust([field], OWN, ANA).method == "DKIM"
    field = f'{OWN}; spf=pass smtp.mailfrom="ana maria"@example.com'
    assert read_trust([field], OWN, ANA).method == "SPF"


def test_domain_above_the_sender_speaks_for_it() -> None:
    field = f"{OWN}; dkim=pass header.d=example.com"
    assert read_trust([field], OWN, "ana@mail.example.com").method == "DKIM"


@pytest.mark.parametrize("name", ["mx.evil.example", "", "mx.example.org.evil.example", "mx"])
def test_foreign_results_do_not_count(name: str) -> None:
    forged = f"{name}; dmarc=pass header.from=example.com"
    assert read_trust([forged], OWN, ANA).method is None


@pytest.mark.parametrize(
    ("top", "method"),
    [
        ("", None),
        ("Received: from evil.example by mx.example.org; today\r\n", None),
        ("received:\r\n\tby mx\r\nReturn-Path: <eve@evil.example>\r\n", None),
        (f"Authentication-Results: {OWN}; spf=fail\r\nReceived: by mx\r\n", None),
        (f"Authentication-Results: {OWN}; {PASSED}\r\nReceived: by mx\r\n", "DMARC"),
    ],
)
def test_without_a_name_only_results_above_what_was_received_count(
    top: str, method: str | None
) -> None:
    """A sender writes everything from the first Received on; nothing of it can verify them."""
    sent = (
        "Received: by evil.example; today\r\n"
        f"Authentication-Results: {OWN}; {PASSED}\r\n"
        f"From: {ANA}\r\n\r\n"
    )
    message = parse_header((top + sent).encode())
    assert read_trust(own_results(message, None), None, ANA).method == method
    assert read_trust(own_results(message, OWN), OWN, ANA).method == (
        None if "spf=fail" in top else "DMARC"
    )


def test_only_the_topmost_results_of_the_own_server_count() -> None:
    """What stands below came with the mail: a server that forgot to remove it must not matter."""
    own, forged = f"{OWN}; spf=fail", f"{OWN}; dmarc=pass header.from=example.com"
    assert read_trust([own, forged], OWN, ANA).method is None
    assert read_trust(["mx.other.example; dkim=fail", forged], OWN, ANA).method == "DMARC"


def test_trust_is_shown_to_people() -> None:
    trust = read_trust([f"{OWN}; dkim=pass header.d=example.com; spf=none"], OWN, ANA)
    assert str(trust) == "sender verified by DKIM"
    assert str(read_trust([f"{OWN} 1; spf=fail"], OWN, ANA)) == "sender not verified (spf=fail)"
    assert "no results" in str(read_trust([], OWN, ANA))


@given(st.text(max_size=300))
def test_any_field_is_read(field: str) -> None:
    read_trust([field, f"{OWN};{field}"], OWN, ANA)
