from __future__ import annotations

from tertulia.core.pairing_code import ALPHABET, LENGTH, hash_code, new_code

SECRET = b"0123456789abcdef"


def test_codes_are_random_and_easy_to_read() -> None:
    codes = {new_code() for _ in range(200)}
    assert len(codes) == 200
    assert {len(code) for code in codes} == {LENGTH}
    assert set("".join(codes)) == set(ALPHABET), "every character occurs"
    assert not set("0O1IL") & set(ALPHABET)


def test_hash_ignores_case_and_separators() -> None:
    assert hash_code("abcd-2345", SECRET) == hash_code(" ABCD 2345 ", SECRET)
    assert hash_code("ABCD2345", SECRET) != hash_code("ABCD2346", SECRET)


def test_hash_depends_on_the_secret() -> None:
    assert hash_code("ABCD2345", SECRET) != hash_code("ABCD2345", SECRET[::-1])
