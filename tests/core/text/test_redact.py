from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tertulia.core.keys import session_key
from tertulia.core.source import CHAT_TYPES, Source, StoredChatType
from tertulia.core.target import HomeChannel
from tertulia.core.text.redact import Redactor
from tertulia.errors import ConfigError

KEEPING = ("discord", "slack")
SECRET = b"an installation's own secret"
redactor = Redactor(SECRET, KEEPING.__contains__)
other = Redactor(SECRET + b"!", KEEPING.__contains__)

any_id = st.text(alphabet=st.characters(exclude_categories=()), min_size=1)
hiding = st.sampled_from(["telegram", "whatsapp", "signal", "carrier pigeon"])
digits = st.from_regex(r"[1-9][0-9]{7,13}", fullmatch=True)

SEPARATORS = [" ", "-", ".", "/", " - ", "\u00a0", "\u2011", "\u2013", "·", ") ", "\u200b", " ("]
SCRIPTS = ["0", "٠", "۰", "०", "０", "𝟎", "𝟬"]


def spelled(number: str, zero: str) -> str:
    return "".join(chr(ord(zero) + int(digit)) for digit in number)


@st.composite
def phones(draw: st.DrawFn) -> tuple[str, str]:
    """A number's digits, and one way of writing them."""
    number = draw(digits)
    cuts = sorted(draw(st.sets(st.integers(1, len(number) - 1), max_size=4)))
    groups = [number[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    written = groups[0] + "".join(draw(st.sampled_from(SEPARATORS)) + g for g in groups[1:])
    zero = draw(st.sampled_from(SCRIPTS))
    written = re.sub(r"\d", lambda found: spelled(found[0], zero), written)
    return number, draw(st.sampled_from(["", "+", "00", "+ "])) + written


def ascii_digits(text: str) -> str:
    """All digits of a text, whatever their script and whatever stands between them."""
    return "".join(
        str(unicodedata.digit(c)) for c in text if unicodedata.digit(c, None) is not None
    )


def without_pseudonyms(text: str) -> str:
    return re.sub(r"(?:user_)?[0-9a-f]{12}", "", text)


class TestPseudonyms:
    @given(hiding, any_id)
    def test_form_of_pseudonyms(self, platform: str, value: str) -> None:
        assert re.fullmatch(r"user_[0-9a-f]{12}", redactor.user(platform, value))
        assert re.fullmatch(r"[0-9a-f]{12}", redactor.thread(platform, value))
        assert re.fullmatch(r"(?:\w+:)?[0-9a-f]{12}", redactor.chat(platform, value))

    @given(hiding, any_id)
    def test_stable_for_one_secret_and_different_for_another(
        self, platform: str, value: str
    ) -> None:
        again = Redactor(SECRET, KEEPING.__contains__)
        for kind in ("user", "chat", "thread"):
            made = getattr(redactor, kind)(platform, value)
            assert getattr(again, kind)(platform, value) == made
            assert getattr(other, kind)(platform, value) != made

    def test_example_value(self) -> None:
        # Stored exports and logs are compared over time: this may never change.
        assert redactor.user("telegram", "42") == "user_51561fae1703"
        assert redactor.chat("telegram", "42") == "c74875ce7dc1"

    @given(hiding, hiding, any_id, any_id)
    def test_different_people_differ(self, here: str, there: str, one: str, two: str) -> None:
        assume((here, one) != (there, two))
        assert redactor.user(here, one) != redactor.user(there, two)

    def test_person_and_chat_with_one_id_differ(self) -> None:
        made = redactor.user("telegram", "42"), redactor.chat("telegram", "42")
        assert made[0].removeprefix("user_") != made[1]

    @pytest.mark.parametrize("chat", ["telegram:42001", "group:42001", "Telegram:42001"])
    def test_prefix_is_kept(self, chat: str) -> None:
        prefix = chat.partition(":")[0]
        assert redactor.chat("telegram", chat) == f"{prefix}:{redactor.chat('telegram', '42001')}"

    @pytest.mark.parametrize("chat", ["34600123456:7", "alice:bob", "!room:example.org", "a:"])
    def test_only_platform_and_chat_type_are_prefixes(self, chat: str) -> None:
        assert re.fullmatch(r"[0-9a-f]{12}", redactor.chat("telegram", chat))

    @given(hiding, any_id)
    def test_no_pseudonym_looks_like_a_phone_number(self, platform: str, value: str) -> None:
        made = redactor.chat(platform, value).rpartition(":")[2]
        assert redactor.text(made) == made

    @pytest.mark.parametrize("platform", [*KEEPING, "local"])
    def test_ids_stay_where_mentions_need_them(self, platform: str) -> None:
        assert not redactor.hides(platform)
        assert redactor.user(platform, "U42") == "U42"
        assert redactor.chat(platform, "C42") == "C42"
        assert redactor.thread(platform, "17.5") == "17.5"

    def test_short_secret_is_refused(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Redactor(b"short", KEEPING.__contains__)
        assert caught.value.field == "secret"
        assert "short" not in str(caught.value).replace("too short", "")

    def test_the_secret_is_not_shown(self) -> None:
        assert "secret" not in repr(redactor)


class TestPhoneNumbers:
    @pytest.mark.parametrize(
        "written",
        [
            "+34 600 123 456",
            "+34600123456",
            "0034 600 123 456",
            "(202) 555-0134",
            "+1 (202) 555-0134",
            "1-202-555-0134",
            "202.555.0134",
            "(+34) 600-123-456",
            "+34 (0) 600 123 456",
            "+49 30/1234567",
            "555-0134",
            "600_123_456",
            "＋３４　６００　１２３　４５６",
            "٠٦٠٠ ١٢٣ ٤٥٦ ٧",
            "۰۹۱۲ ۳۴۵ ۶۷۸۹",
            "6\u200b0\u200b0\u200b1\u200b2\u200b3\u200b4",
            "6️⃣0️⃣0️⃣1️⃣2️⃣3️⃣4️⃣5️⃣6️⃣",
            "⑥⓪⓪①②③④⑤⑥",
            "600–123–456",
            "600·123·456",
            "[202] 555 0134",
            "+34\n600\n123456",
        ],
    )
    @pytest.mark.parametrize("around", ["{}", "Bob {}", "{} (work)", "Bob{}", "tel:{}!", "({})"])
    @pytest.mark.parametrize("platform", ["whatsapp", "discord"])
    def test_every_notation_is_hidden_in_a_name(
        self, written: str, around: str, platform: str
    ) -> None:
        redacted = redactor.name(platform, around.format(written))
        assert re.search(r"user_[0-9a-f]{12}", redacted)
        assert ascii_digits(without_pseudonyms(redacted)) == ""
        left = without_pseudonyms(redacted)
        assert left.count("(") == left.count(")")

    @given(phones(), hiding, st.text(alphabet="abc ,:;!?'ñ中", max_size=8))
    def test_no_digit_stays_in_a_name(
        self, phone: tuple[str, str], platform: str, words: str
    ) -> None:
        redacted = redactor.name(platform, f"{words}{phone[1]}{words}")
        assert ascii_digits(without_pseudonyms(redacted)) == ""

    @given(phones())
    def test_no_digit_stays_in_a_text(self, phone: tuple[str, str]) -> None:
        redacted = redactor.text(f"He said:\n{phone[1]},\nyes.")
        assert ascii_digits(without_pseudonyms(redacted)) == ""
        assert redacted.startswith("He said:\n")
        assert redacted.endswith(",\nyes.")

    def test_random_id_is_not_a_number(self) -> None:
        text = "delivery 78786b3d78bc888d4b2902723a8dd354 to webhook failed"
        assert redactor.text(text) == text
        with_many_digits = "78786b3d600123456d4b272723a8dd35"
        assert redactor.text(with_many_digits) == with_many_digits
        for other in ("78786b3d78bc888d4b2902723a8dd3", "7878600123456000127272300880354"):
            assert redactor.text(other) != other

    def test_time_in_the_name_of_a_file_is_not_a_number(self) -> None:
        text = "kept in /data/schedules/2/2026-11-16T09-44-46Z-3.md now"
        assert redactor.text(text) == text
        for phone in ("0171/2026-11-16", "+34/600-123-456T09", "1712026-11-16T09-44"):
            assert redactor.text(phone) != phone

    def test_one_number_has_one_pseudonym(self) -> None:
        made = redactor.user("signal", "+34600123456")
        for written in (
            "+34 600 123 456",
            "0034-600-123-456",
            "(+34) 600.123.456",
            "+٣٤ ٦٠٠ ١٢٣ ٤٥٦",
        ):
            assert redactor.name("signal", written) == made
        assert redactor.name("signal", "+34 600 123 457") != made

    @pytest.mark.parametrize(
        "name",
        [
            "Alice",
            "Agent 007",
            "R2D2 & C3PO",
            "Room 101, floor 3",
            "Trip 2026-11-03",
            "From 2026-11-03 to 2026-11-10",
            "2026-11-03T04:00:00.123456+01:00",
            "20261103_040000_ab12cd34",
            "1999",
            "123 456",
            "№ ½ ③",
            "5 € – 10 €",
        ],
    )
    def test_other_text_stays(self, name: str) -> None:
        assert redactor.name("telegram", name) == name
        assert redactor.text(name) == name

    @pytest.mark.parametrize("written", ["6️⃣0️⃣0️⃣1️⃣2️⃣3️⃣4️⃣", "600123⒋", "⑥⓪⓪①②③④", "6́0́0́1́2́3́4́"])
    def test_number_is_replaced_with_its_separators(self, written: str) -> None:
        redacted = redactor.text(f"x {written}, y", source=Source("signal", "1"))
        assert re.fullmatch(r"x user_[0-9a-f]{12}, y", redacted)

    def test_date_before_a_number_does_not_protect_it(self) -> None:
        redacted = redactor.text("2026-11-03 600 123 456")
        assert re.fullmatch(r"2026-11-03 user_[0-9a-f]{12}", redacted)

    def test_long_id_in_a_topic_stays_where_mentions_need_it(self) -> None:
        topic = "ask @123456789012345678"
        assert redactor.name("discord", topic) == topic
        assert "123456789012345678" not in redactor.name("telegram", topic)

    def test_rest_of_a_text_stays_unchanged(self) -> None:
        text = "ﬁn\t２ ½ “x”\u200b 600 123 456\r\nﬁn"
        assert redactor.text(text) == text.replace("600 123 456", redactor.text("600 123 456"))


class TestIds:
    @given(
        hiding,
        st.from_regex(r"[A-Z]{2}[a-z0-9]{6,10}Q", fullmatch=True),
        st.sampled_from(["{}", "Bob {}", "x{}y", "({})", "{}\u200b!"]),
        st.sampled_from(["user_id", "user_id_alt", "chat_id", "chat_id_alt", "thread_id"]),
    )
    def test_id_of_the_source_is_hidden_in_any_name(
        self, platform: str, value: str, around: str, field: str
    ) -> None:
        source = Source(**{"platform": platform, "chat_id": "other-chat", field: value})
        redacted = redactor.name("discord", around.format(value), source=source)
        assert value.lower() not in redacted.lower()
        redacted = redactor.text(f"\n{around.format(value)}\n", source=source)
        assert value.lower() not in redacted.lower()

    def test_id_has_the_same_pseudonym_everywhere(self) -> None:
        source = Source("signal", "group.abcdef==", user_id="+34600123456", thread_id="9876")
        redacted = redactor.text(
            "group.abcdef== | 34 600 123 456 | +34600123456 | 9876", source=source
        )
        person = redactor.user("signal", "+34600123456")
        chat, thread = redactor.chat("signal", "group.abcdef=="), redactor.thread("signal", "9876")
        assert redacted == f"{chat} | {person} | {person} | {thread}"

    def test_number_inside_an_id(self) -> None:
        source = Source("whatsapp", "34600123456@s.whatsapp.net", user_name="+34 600 123 456")
        redacted = redactor.name("whatsapp", "+34 600 123 456", source=source)
        assert redacted == redactor.chat("whatsapp", "34600123456@s.whatsapp.net")

    def test_id_with_active_characters_is_found_in_a_cleaned_name(self) -> None:
        source = Source("telegram", "1", user_id="*[x]*_<y>")
        redacted = redactor.name("telegram", "I am *[x]*_<y>", source=source)
        assert redacted == f"I am {redactor.user('telegram', '*[x]*_<y>')}"

    def test_id_without_its_prefix_is_the_same(self) -> None:
        source = Source("telegram", "telegram:abcdefgh")
        made = redactor.chat("telegram", "telegram:abcdefgh")
        assert redactor.name("telegram", "in abcdefgh", source=source) == f"in {made}"

    def test_id_that_begins_with_another(self) -> None:
        source = Source("telegram", "abcdef", user_id="abcdefgh")
        redacted = redactor.text("abcdefgh, abcdef", source=source)
        person, chat = redactor.user("telegram", "abcdefgh"), redactor.chat("telegram", "abcdef")
        assert redacted == f"{person}, {chat}"

    @pytest.mark.parametrize("written", ["STRASSE99", "straße99", "ＳＴＲＡＳＳＥ９９"])
    def test_id_in_other_letters(self, written: str) -> None:
        source = Source("telegram", "Straße99")
        redacted = redactor.text(f"at {written}", source=source)
        assert redacted == f"at {redactor.chat('telegram', 'Straße99')}"

    def test_homes_are_hidden_by_their_platform(self) -> None:
        homes = {"telegram": HomeChannel("-100777888"), "discord": HomeChannel("99988877766655544")}
        redacted = redactor.text("-100777888, 99988877766655544", homes=homes)
        assert redacted == f"{redactor.chat('telegram', '-100777888')}, 99988877766655544"

    def test_number_inside_a_longer_one_is_not_the_id(self) -> None:
        source = Source("telegram", "600123")
        redacted = redactor.text("600123456, 600123", source=source)
        chat = redactor.chat("telegram", "600123")
        assert redacted == f"{redactor.user('telegram', '600123456')}, {chat}"

    @pytest.mark.parametrize("around", ["({})", "+{}", "1 {}", "[{}]", "7-{}", "{} 7", "x{}"])
    def test_id_too_short_for_a_phone_number(self, around: str) -> None:
        redacted = redactor.name(
            "telegram", around.format("600123"), source=Source("telegram", "600123")
        )
        assert "600123" not in redacted
        short = redactor.text("(12345)", source=Source("telegram", "12345"))
        assert short == f"({redactor.chat('telegram', '12345')})"

    def test_short_id_matches_whole_words(self) -> None:
        source = Source("telegram", "abcd")
        redacted = redactor.text("abcd abcde xabcd", source=source)
        assert redacted == f"{redactor.chat('telegram', 'abcd')} abcde xabcd"

    def test_one_or_two_characters_match_only_the_whole_text(self) -> None:
        source = Source("telegram", "12345678", thread_id="1")
        assert redactor.name("telegram", "Team 1", source=source) == "Team 1"
        assert redactor.name("telegram", "1", source=source) == redactor.thread("telegram", "1")

    @given(any_id, any_id, st.text(alphabet=st.characters(exclude_categories=())))
    def test_any_id_in_any_text_is_accepted(self, chat: str, user: str, text: str) -> None:
        source = Source("telegram", chat, user_id=user)
        redactor.text(text, source=source)
        redactor.name("telegram", text + user + chat, source=source)

    @pytest.mark.parametrize("platform", KEEPING)
    def test_name_keeps_ids_where_mentions_need_them(self, platform: str) -> None:
        source = Source(platform, "C01234567", user_id="U01234567", thread_id="1712345678.123456")
        text = "C01234567 U01234567 1712345678.123456"
        assert redactor.name(platform, text, source=source) == text
        assert redactor.text(text.lower(), source=source) == text.lower()


class TestKeys:
    def test_agent_platform_and_chat_type_stay(self) -> None:
        source = Source("telegram", "-100777", chat_type="group", thread_id="17", user_id="4242")
        chat, thread = redactor.chat("telegram", "-100777"), redactor.thread("telegram", "17")
        person = redactor.user("telegram", "4242")
        made = redactor.key(session_key(source))
        assert made == f"agent:main:telegram:group:{chat}:{thread}:{person}"
        shared = redactor.key(session_key(source, per_user=False))
        assert shared == f"agent:main:telegram:group:{chat}:~{thread}"

    def test_prefix_is_no_part_of_its_own(self) -> None:
        key = session_key(Source("telegram", "telegram:42001"))
        made = redactor.chat("telegram", "42001")
        assert redactor.key(key) == f"agent:main:telegram:dm:telegram%3A{made}"

    def test_without_a_thread_the_participant_follows_the_chat(self) -> None:
        source = Source("telegram", "-100777", chat_type="group", user_id="4242")
        assert redactor.key(session_key(source)).endswith(f":{redactor.user('telegram', '4242')}")

    def test_direct_message(self) -> None:
        chat, thread = redactor.chat("signal", "+34600123456"), redactor.thread("signal", "17")
        key = session_key(Source("signal", "+34600123456", thread_id="17"))
        assert redactor.key(key) == f"agent:main:signal:dm:{chat}:{thread}"
        assert redactor.key(session_key(Source("signal", "", thread_id="17"))).endswith(
            f":dm:~{thread}"
        )
        assert redactor.key("agent:main:signal:dm") == "agent:main:signal:dm"

    @pytest.mark.parametrize("platform", [*KEEPING, "local"])
    def test_key_stays_where_mentions_need_ids(self, platform: str) -> None:
        key = session_key(Source(platform, "C1", chat_type="group", user_id="U1", account="dm"))
        assert redactor.key(key) == key

    @given(
        hiding,
        st.sampled_from([*CHAT_TYPES, StoredChatType("square")]),
        st.lists(st.from_regex(r"Z[a-z:~% ]{3,6}Z", fullmatch=True), min_size=4, max_size=4),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    )
    def test_no_id_stays_in_a_key(
        self,
        platform: str,
        chat_type: str,
        ids: list[str],
        per_user: bool,
        threaded: bool,
        with_account: bool,
    ) -> None:
        source = Source(
            platform,
            ids[0],
            chat_type=chat_type,
            user_id=ids[1],
            thread_id=ids[2] if threaded else None,
            account=ids[3] if with_account else "",
        )
        key = session_key(source, per_user=per_user)
        made = redactor.key(key)
        assert "Z" not in made
        assert made.count(":") == key.count(":")
        assert redactor.key(key) == made

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "telegram:34600123456",
            "agent:main",
            "agent:main:telegram",
            "agent:main:telegram:x:y:34600123456",
            "agent:main:telegram:dm:1:2:34600123456",
            "agent:main:telegram:dm:%FF",
        ],
    )
    def test_invalid_key_is_replaced_as_a_whole(self, text: str) -> None:
        assert re.fullmatch(r"[0-9a-f]{12}", redactor.key(text))


class TestArguments:
    def test_value_of_another_type_is_refused_by_name(self) -> None:
        with pytest.raises(ConfigError) as refused:
            redactor.user("telegram", 5)  # type: ignore[arg-type]
        assert refused.value.field == "user_id"
        with pytest.raises(ConfigError) as refused:
            redactor.text("x", homes="telegram:1")  # type: ignore[arg-type]
        assert refused.value.field == "homes"

    def test_purpose_of_a_key_may_be_any_text(self) -> None:
        assert redactor.derive_key("\ud800") != redactor.derive_key("\ud801")
