import pytest

from benchmarks.corpus import RARE_WORD, Corpus, text_bytes, vocabulary

pytestmark = pytest.mark.check


def test_the_same_seed_gives_the_same_text() -> None:
    assert Corpus(7).turns(3) == Corpus(7).turns(3)
    assert Corpus(7).turns(3) != Corpus(8).turns(3)


def test_every_message_of_a_turn_has_its_size() -> None:
    for turn in Corpus().turns(50):
        assert [message["role"] for message in turn] == ["user", "assistant", "tool", "assistant"]
        assert text_bytes(turn) == 4 * 400


def test_a_talk_has_the_rare_word_as_often_as_asked() -> None:
    talk = list(Corpus().session_turns(400, rare=10))
    assert RARE_WORD not in vocabulary()
    assert len(talk) == 100
    assert sum(RARE_WORD in str(turn[0]["content"]) for turn in talk) == 10
