"""Pseudonyms for ids and phone numbers.

Prompts, logs and exports all use this module; routing never does. A pseudonym is a keyed hash: with
the installation's secret it is always the same; without the secret nobody can try all phone numbers
until one matches.

On platforms where people can only be mentioned by their ids, the ids stay, and so do numbers that
are too long for a phone number; a mention does not need the display name, so a phone number in a
display name is hidden there too. The ids of the terminal identify nobody and stay.

A phone number is recognised without a list of numbering plans: seven digits or more, of any script,
with the usual separators between them. A list would miss numbers that are written without their
country; this rule also hides other long numbers, which is the smaller mistake. Dates and session
ids are recognised by their form and stay; so do names of files that begin with a time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from typing import Literal, NamedTuple

from tertulia.core.arguments import checks_arguments
from tertulia.core.keys import MARK, chat_type_index, escape, unescape
from tertulia.core.source import CHAT_TYPES, LOCAL, Source
from tertulia.core.target import HomeChannel
from tertulia.core.text.prompt_safe import clean_line
from tertulia.errors import ConfigError

Kind = Literal["user", "chat", "thread", "account"]

_MAX_PHONE_DIGITS = 15  # by E.164
# The minimum length of an id to be searched for as a whole word, and to be searched inside words.
_MIN_WORD, _MIN_ANYWHERE = 3, 6
_SEPARATORS = r"[ .()/_-]{0,6}"
_SEVEN_DIGITS = rf"(?=[+( ]{{0,4}}\d(?:{_SEPARATORS}\d){{6}})"
_NUMBER = rf"{_SEVEN_DIGITS}(?:\+ ?)?(?:\( ?\+?\d+ ?\)|\d)(?:{_SEPARATORS}\d)*"
_NUMBER_ID = re.compile(rf"-?({_NUMBER})(?:@|$)")
_DATE = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"[t ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:z|[+-]\d\d:?\d\d)?"
_SESSION = r"\d{8}_\d{6}_[0-9a-f]{6,8}"
# A random id, such as that of a delivery: its length and its letters distinguish it from a number.
_RANDOM_ID = r"(?<![0-9a-z])(?=[0-9]*[a-f])[0-9a-f]{32}(?![0-9a-z])"
_FILE_TIME = rf"(?:(?<=[/\\])\d{{1,9}}[/\\])?{_DATE}t\d\d-\d\d-\d\dz(?:-\d{{1,9}})?(?![0-9a-f])"
_NOT_A_NUMBER = (
    rf"(?:(?<![\d+])(?:{_FILE_TIME}|(?:{_DATE}(?:{_TIME})?|{_SESSION})(?![0-9a-f]))|{_RANDOM_ID})"
)
# The kinds of the ids in a key, by which of the ids have a mark.
_Forms = dict[tuple[bool, ...], tuple[Kind, ...]]
_DM_FORMS: _Forms = {
    (): (),
    (True,): ("thread",),
    (False,): ("chat",),
    (False, False): ("chat", "thread"),
}
_GROUP_FORMS: _Forms = {
    (False,): ("chat",),
    (False, True): ("chat", "thread"),
    (False, False): ("chat", "user"),
    (False, False, False): ("chat", "thread", "user"),
}
# Characters that people write instead of the usual separators.
_LOOKALIKES = {**dict.fromkeys("·•‧∙⋅・", "."), "−": "-", "[": "(", "]": ")"}


class _Id(NamedTuple):
    kind: Kind
    platform: str
    value: str


class _IdIndex(NamedTuple):
    """The raw ids to search for, by their folded form and by their digits."""

    forms: dict[str, _Id]
    digits: dict[str, _Id]


@checks_arguments
class Redactor:
    """Replaces ids and phone numbers by pseudonyms.

    `secret` belongs to the installation; `raw_ids` returns whether mentions on a platform, given by
    its name, need the raw ids.
    """

    def __init__(self, secret: bytes, raw_ids: Callable[[str], bool]) -> None:
        if len(secret) < 16:
            raise ConfigError(
                "The secret for redaction is too short to protect anything.",
                hint="Use at least 16 random bytes, for example secrets.token_bytes(32).",
                field="secret",
            )
        self._secret = secret
        self._raw_ids = raw_ids

    def derive_key(self, purpose: str) -> bytes:
        """Return a key for another purpose, from which the secret cannot be computed."""
        message = f"key for {purpose}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, message, hashlib.sha256).digest()

    def hides(self, platform: str) -> bool:
        """Return whether the ids of that platform are replaced."""
        return platform != LOCAL and not self._raw_ids(platform)

    def user(self, platform: str, user_id: str) -> str:
        """Return `user_` and twelve hexadecimal digits."""
        return self._pseudonym(_Id("user", platform, user_id))

    def chat(self, platform: str, chat_id: str) -> str:
        """Return twelve hexadecimal digits, after a prefix like `telegram:` if the id has one."""
        return self._pseudonym(_Id("chat", platform, chat_id))

    def thread(self, platform: str, thread_id: str) -> str:
        """Return twelve hexadecimal digits."""
        return self._pseudonym(_Id("thread", platform, thread_id))

    def name(
        self,
        platform: str,
        text: str,
        *,
        source: Source | None = None,
        homes: Mapping[str, HomeChannel] | None = None,
    ) -> str:
        """Return a name, topic or title as one line, without phone numbers and these ids."""
        return self._redact(clean_line(text), platform, _index(tuple(_list_ids(source, homes))))

    def text(
        self,
        text: str,
        *,
        source: Source | None = None,
        homes: Mapping[str, HomeChannel] | None = None,
    ) -> str:
        """Return any text without phone numbers and these ids; the rest stays as it is."""
        platform = source.platform if source else ""
        return self._redact(text, platform, _index(tuple(_list_ids(source, homes))))

    def key(self, key: str) -> str:
        """Return a session key with its ids replaced; agent, platform and chat type stay.

        A text that is not a valid key is replaced as a whole.
        """
        try:
            return self._redact_key(key.split(":"))
        except ValueError:
            return self._hash("key", "", key)

    def _redact_key(self, parts: list[str]) -> str:
        """Return the key with its ids replaced; raise `ValueError` if it is not a valid key."""
        index = chat_type_index(parts)
        if index is None:
            raise ValueError("not a session key")
        platform, ids = unescape(parts[2]), parts[index + 1 :]
        kinds = _kinds_of_ids(parts[index], ids)
        if not self.hides(platform):
            return ":".join(parts)
        accounts = [self._redact_key_part(part, platform, "account") for part in parts[3:index]]
        pairs = zip(ids, kinds, strict=True)
        redacted = [self._redact_key_part(part, platform, kind) for part, kind in pairs]
        return ":".join((*parts[:3], *accounts, parts[index], *redacted))

    def _redact_key_part(self, part: str, platform: str, kind: Kind) -> str:
        mark, value = part[: part.startswith(MARK)], unescape(part.removeprefix(MARK))
        return mark + escape(self._pseudonym(_Id(kind, platform, value))) if value else part

    def _pseudonym(self, raw_id: _Id) -> str:
        kind, platform, value = raw_id
        if not self.hides(platform):
            return value
        if kind == "user":
            return f"user_{self._hash(kind, platform, value)}"
        prefix, rest = _split_prefix(platform, value) if kind == "chat" else ("", value)
        return prefix + self._hash(kind, platform, rest)

    def _hash(self, kind: str, platform: str, value: str) -> str:
        identity = ":".join((kind, escape(platform), escape(value)))
        for attempt in count():
            message = f"{identity}:{attempt}".encode("utf-8", "surrogatepass")
            digest = hmac.new(self._secret, message, hashlib.sha256).hexdigest()[:12]
            # A pseudonym that looks like a phone number would be replaced again in a log.
            if not re.search(r"\d{7}", digest):
                return digest
        raise AssertionError("some attempt has few digits")

    def _redact(self, text: str, platform: str, index: _IdIndex) -> str:
        folded, offsets = _fold(text)
        if folded in index.forms and self.hides(index.forms[folded].platform):
            return self._pseudonym(index.forms[folded])
        parts, end = [], 0
        for match in _pattern(tuple(index.forms)).finditer(folded):
            pseudonym = self._replacement(match, platform, index)
            if pseudonym is not None:
                parts += [text[end : offsets[match.start()]], pseudonym]
                end = max(offsets[match.end()], offsets[match.end() - 1] + 1)
        return "".join((*parts, text[end:]))

    def _replacement(self, match: re.Match[str], platform: str, index: _IdIndex) -> str | None:
        """Return the pseudonym for a match, or None if the matched text stays."""
        if match["id"] is not None:
            raw_id = index.forms[match["id"]]
            return self._pseudonym(raw_id) if self.hides(raw_id.platform) else None
        if match["number"] is None:
            return None
        digits = _digits(match["number"])
        if digits in index.digits and self.hides(index.digits[digits].platform):
            return self._pseudonym(index.digits[digits])
        if len(digits) > _MAX_PHONE_DIGITS and platform and self._raw_ids(platform):
            return None
        sign = "+" if match["number"].startswith(("+", "(+", "00")) else ""
        return f"user_{self._hash('user', platform, sign + digits)}"


def _list_ids(source: Source | None, homes: Mapping[str, HomeChannel] | None) -> Iterator[_Id]:
    # People come first: in a direct message the chat often has the id of the person.
    if source is not None:
        platform = source.platform
        user_ids = (source.user_id, source.user_id_alt)
        chat_ids = (source.chat_id, source.chat_id_alt)
        yield from (_Id("user", platform, value) for value in user_ids if value)
        yield from (_Id("chat", platform, value) for value in chat_ids if value)
        if source.thread_id:
            yield _Id("thread", platform, source.thread_id)
    # Two homes may have the same id; sorted, so that the pseudonym does not depend on their order.
    for platform, home in sorted((homes or {}).items()):
        yield _Id("chat", platform, home.chat_id)
        if home.thread_id:
            yield _Id("thread", platform, home.thread_id)


@lru_cache(maxsize=256)
def _index(ids: tuple[_Id, ...]) -> _IdIndex:
    index = _IdIndex({}, {})
    for raw_id in ids:
        bare = _split_prefix(raw_id.platform, raw_id.value)[1]
        forms = {_fold(form)[0] for form in (raw_id.value, clean_line(raw_id.value), bare)}
        for form in filter(None, forms):
            index.forms.setdefault(form, raw_id)
        number = _NUMBER_ID.match(_fold(bare)[0])
        if number:
            index.digits.setdefault(_digits(number[1]), raw_id)
    return index


def _split_prefix(platform: str, chat_id: str) -> tuple[str, str]:
    """Split a prefix like `telegram:` or `group:` from an id; the prefix may be empty."""
    word, colon, rest = chat_id.partition(":")
    is_prefix = word.lower() in (platform.lower(), *CHAT_TYPES)
    return (word + colon, rest) if colon and rest and is_prefix else ("", chat_id)


def _digits(number: str) -> str:
    """Return the digits of a phone number, without the 00 before a country code."""
    digits = re.sub(r"\D", "", number)
    return digits[2:] if digits.startswith("00") else digits


@lru_cache(maxsize=256)
def _pattern(ids: tuple[str, ...]) -> re.Pattern[str]:
    """Match the ids, the longest first; then text that only looks like a number; then numbers."""
    forms = [
        _id_pattern(form) for form in sorted(ids, key=len, reverse=True) if len(form) >= _MIN_WORD
    ]
    return re.compile(rf"(?P<id>{'|'.join(forms) or '(?!)'})|{_NOT_A_NUMBER}|(?P<number>{_NUMBER})")


def _id_pattern(form: str) -> str:
    """Match long ids inside words too, but no number inside a longer one, which matches itself.

    One or two characters identify nobody, and removing them would damage the text, so they are
    replaced only if they are the whole text.
    """
    if len(form) < _MIN_ANYWHERE:
        return rf"(?<![^\W_]){re.escape(form)}(?![^\W_])"
    return re.escape(form) + (r"(?!\d)" if re.fullmatch(r"[+-]?\d+", form) else "")


def _fold(text: str) -> tuple[str, list[int] | range]:
    """Return the text in the form for comparison, and the original offset of each character."""
    if text.isascii() and text.isprintable():
        return text.lower().translate(_ASCII_LOOKALIKES), range(len(text) + 1)
    folded, offsets = [], []
    for offset, char in enumerate(text):
        for piece in _fold_char(char):
            folded.append(piece)
            offsets.append(offset)
    return "".join(folded), [*offsets, len(text)]


_ASCII_LOOKALIKES = str.maketrans({"[": "(", "]": ")"})


@lru_cache(maxsize=4096)
def _fold_char(char: str) -> str:
    if char.isspace():
        return "\n" if char.splitlines() == [""] else " "
    pieces = unicodedata.normalize("NFKD", char).casefold()
    return "".join(map(_fold_piece, pieces))


def _fold_piece(char: str) -> str:
    if char in _LOOKALIKES:
        return _LOOKALIKES[char]
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category == "Pd":
        return "-"
    return "" if category in ("Cc", "Cf", "Mn", "Me") else char


def _kinds_of_ids(chat_type: str, ids: list[str]) -> tuple[Kind, ...]:
    """Return the kind of each id of a key, by the rules of `keys`.

    Raise `ValueError` if no key has such ids.
    """
    marked = tuple(part.startswith(MARK) for part in ids)
    forms = _DM_FORMS if chat_type == "dm" else _GROUP_FORMS
    if marked not in forms:
        raise ValueError("not a session key")
    return forms[marked]
