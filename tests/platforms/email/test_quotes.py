"""What a person wrote in a mail, apart from quoted mails and the signature."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.platforms.email.quotes import split_quotes

QUOTE = "> what is it?\n>\n> Ana"


@pytest.mark.parametrize(
    ("mail", "own"),
    [
        ("yes\n\nOn Mon, 2 Nov 2026 at 10:00, Agent <a@x.org> wrote:\n" + QUOTE, "yes"),
        ("yes\n\nOn Mon, 2 Nov 2026 at 10:00, A very long name\n<a@x.org> wrote:\n\n" + QUOTE,
         "yes"),
        ("ja\n\nAm 02.11.26 um 10:00 schrieb Agent:\n" + QUOTE, "ja"),
        ("oui\n\nLe lun. 2 nov. 2026 à 10:00, Agent <a@x.org> a écrit :\n" + QUOTE, "oui"),
        ("sí\n\nEl lun, 2 nov 2026 a las 10:00, Agent (<a@x.org>) escribió:\n" + QUOTE, "sí"),
        ("yes\n\n-----Original Message-----\nFrom: Agent\nSent: Monday\nTo: Ana\n\nwhat?", "yes"),
        ("yes\n\n________________________________\nFrom: Agent <a@x.org>\nSent: Monday\nwhat?",
         "yes"),
        ("yes\n\nFrom: Agent <a@x.org>\nSent: Monday\nTo: Ana\nSubject: hola\n\nwhat?", "yes"),
        ("yes\n\nVon: Agent\nGesendet: Montag\nAn: Ana\nBetreff: hola\n\nwas?", "yes"),
        ("On Monday Agent wrote:\n" + QUOTE + "\n\nyes", "yes"),
        ("yes\n\n-- \nAna Díaz\nExample Inc.", "yes"),
        ("yes\n\n-- \nAna\n\nOn Monday, Agent wrote:\n" + QUOTE, "yes"),
        ("yes\n\nSent from my iPhone\n\nOn Monday, Agent wrote:\n" + QUOTE, "yes"),
        ("yes\n\nSent from my iPhone", "yes"),
        ("plain text", "plain text"),
        ("  indented\n\nlines\n", "  indented\n\nlines"),
    ],
)  # fmt: skip
def test_quotes_and_signature_are_apart(mail: str, own: str) -> None:
    split = split_quotes(mail)
    assert split.text == own
    rest = mail.replace(own, "", 1).split()
    assert sorted(split.quoted.split()) == sorted(rest)


def test_answers_between_the_lines_keep_their_quotes() -> None:
    mail = "On Monday, Agent wrote:\n> red?\nyes\n> blue?\nno"
    assert split_quotes(mail).text == mail


def test_forwarded_mail_is_shown_as_a_whole() -> None:
    mail = "see below\n\n-----Original Message-----\nFrom: Ben\n\nhola"
    assert split_quotes(mail, is_forwarded=True).text == mail


def test_mail_that_replies_to_nothing_keeps_its_quotes() -> None:
    mail = "translate this, please:\n> buenos días"
    assert split_quotes(mail, is_reply=False) == (mail, "")
    assert split_quotes(f"{mail}\n-- \nAna", is_reply=False).text == mail


def test_mail_of_quotes_alone_is_what_the_person_means() -> None:
    assert split_quotes(QUOTE).text == QUOTE


def test_words_that_only_look_like_an_attribution_stay() -> None:
    mail = "On Monday she wrote:\nnothing at all."
    assert split_quotes(mail).text == mail


@given(st.text(alphabet=st.sampled_from("ab> -_:\n\tOnwrote"), max_size=300), st.booleans())
def test_nothing_is_lost(mail: str, is_reply: bool) -> None:
    split = split_quotes(mail, is_reply=is_reply)
    assert sorted("".join(split).split()) == sorted("".join(mail.split("\n")).split()) or (
        sorted(f"{split.text} {split.quoted}".split()) == sorted(mail.split())
    )
    assert split.text.strip() or not mail.strip()
