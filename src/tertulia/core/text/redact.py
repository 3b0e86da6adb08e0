"""Pseudonyms for ids and phone numbers.

Prompts, logs and exports all pass through this one place; routing never does. A pseudonym is a
keyed hash: with the installation's secret it is always the same, without it nobody can try all
phone numbers until one fits.

Where people can only be mentioned by their ids, the ids stay, and so do numbers that are too long
for a phone number; a mention needs no display name, so a phone number in one is hidden there too.
The terminal's ids belong to nobody and stay.

What counts as a phone number is judged without a list of numbering plans: seven digits or more,
of any script, with the marks between them that people put there. A list would miss numbers that
are written without their country; this way other long numbers go too, which is the better mistake.
Dates and session ids are told apart by their form and stay.
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

from tertulia.core.keys import MARK, escape, unescape
from tertulia.core.source import CHAT_TYPES, LOCAL, Source
from tertulia.core.target import HomeChannel
from tertulia.core.text.prompt_safe import clean
from tertulia.errors import ConfigError

Kind = Literal["user", "chat", "thread", "account"]

_MOST_DIGITS = 15  # of a phone number, by E.164
_WORD, _ANYWHERE = 3, 6  # how long an id must be to be looked for as a word, and inside words
_BETWEEN = r"[ .()/_-]{0,6}"
_SEVEN_DIGITS = rf"(?=[+( ]{{0,4}}\d(?:{_BETWEEN}\d){{6}})"
_NUMBER = rf"{_SEVEN_DIGITS}(?:\+ ?)?(?:\( ?\+?\d+ ?\)|\d)(?:{_BETWEEN}\d)*"
_NUMBER_ID = re.compile(rf"-?({_NUMBER})(?:@|$)")
_DATE = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"[t ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:z|[+-]\d\d:?\d\d)?"
_SESSION = r"\d{8}_\d{6}_[0-9a-f]{6,8}"
# An id that a program has drawn, such as that of a delivery: its length and its letters tell it
# from a number, unless it has as many digits in a row as one.
_DRAWN = r"(?<![0-9a-z])(?![0-9a-f]*[0-9]{9})[0-9a-f]{32}(?![0-9a-z])"
_KEPT = rf"(?:(?<![\d+])(?:{_DATE}(?:{_TIME})?|{_SESSION})(?![0-9a-f])|{_DRAWN})"
# The ids of a key, told by which of them carry a mark.
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
# People write one sign for another between digits.
_ALIKE = {**dict.fromkeys("·•‧∙⋅・", "."), "−": "-", "[": "(", "]": ")"}


class _Id(NamedTuple):
    kind: Kind
    platform: str
    value: str


class _Known(NamedTuple):
    """The raw ids to look for, by the form in which they are found and by their digits."""

    forms: dict[str, _Id]
    digits: dict[str, _Id]


class Redactor:
    """Replaces ids and phone numbers by pseudonyms.

    `secret` is the installation's own; `raw_ids` tells of a platform's name whether mentions there
    need the raw ids.
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

    def hides(self, platform: str) -> bool:
        """Whether the ids of that platform are replaced."""
        return platform != LOCAL and not self._raw_ids(platform)

    def user(self, platform: str, user_id: str) -> str:
        """`user_` and twelve hexadecimal digits."""
        return self._pseudonym(_Id("user", platform, user_id))

    def chat(self, platform: str, chat_id: str) -> str:
        """Twelve hexadecimal digits; a prefix like `telegram:` is kept before them."""
        return self._pseudonym(_Id("chat", platform, chat_id))

    def thread(self, platform: str, thread_id: str) -> str:
        """Twelve hexadecimal digits."""
        return self._pseudonym(_Id("thread", platform, thread_id))

    def name(
        self,
        platform: str,
        text: str,
        *,
        source: Source | None = None,
        homes: Mapping[str, HomeChannel] | None = None,
    ) -> str:
        """A name, topic or title as one line, without phone numbers and without the given ids."""
        return self._scrub(clean(text), platform, _known(tuple(_ids(source, homes))))

    def text(
        self,
        text: str,
        *,
        source: Source | None = None,
        homes: Mapping[str, HomeChannel] | None = None,
    ) -> str:
        """Any text without phone numbers and without the given ids; all else stays as it is."""
        where = source.platform if source else ""
        return self._scrub(text, where, _known(tuple(_ids(source, homes))))

    def key(self, key: str) -> str:
        """A session key with its ids replaced; agent, platform and chat type stay.

        What is not formed like a key is replaced as a whole.
        """
        try:
            return self._key(key.split(":"))
        except ValueError:
            return self._hash("key", "", key)

    def _key(self, parts: list[str]) -> str:
        at = _chat_type_at(parts)
        platform, ids = unescape(parts[2]), parts[at + 1 :]
        kinds = _kinds(parts[at], ids)
        if not self.hides(platform):
            return ":".join(parts)
        accounts = [self._key_part(part, platform, "account") for part in parts[3:at]]
        named = zip(ids, kinds, strict=True)
        hidden = [self._key_part(part, platform, kind) for part, kind in named]
        return ":".join((*parts[:3], *accounts, parts[at], *hidden))

    def _key_part(self, part: str, platform: str, kind: Kind) -> str:
        mark, value = part[: part.startswith(MARK)], unescape(part.removeprefix(MARK))
        return mark + escape(self._pseudonym(_Id(kind, platform, value))) if value else part

    def _pseudonym(self, known: _Id) -> str:
        kind, platform, value = known
        if not self.hides(platform):
            return value
        if kind == "user":
            return f"user_{self._hash(kind, platform, value)}"
        prefix, rest = _prefix(platform, value) if kind == "chat" else ("", value)
        return prefix + self._hash(kind, platform, rest)

    def _hash(self, kind: str, platform: str, value: str) -> str:
        told = ":".join((kind, escape(platform), escape(value)))
        for attempt in count():
            message = f"{told}:{attempt}".encode("utf-8", "surrogatepass")
            digest = hmac.new(self._secret, message, hashlib.sha256).hexdigest()[:12]
            # A pseudonym that looks like a phone number would be replaced again in a log.
            if not re.search(r"\d{7}", digest):
                return digest
        raise AssertionError("some attempt has few digits")

    def _scrub(self, text: str, platform: str, known: _Known) -> str:
        folded, places = _fold(text)
        if folded in known.forms and self.hides(known.forms[folded].platform):
            return self._pseudonym(known.forms[folded])
        parts, end = [], 0
        for found in _pattern(tuple(known.forms)).finditer(folded):
            pseudonym = self._found(found, platform, known)
            if pseudonym is not None:
                parts += [text[end : places[found.start()]], pseudonym]
                end = max(places[found.end()], places[found.end() - 1] + 1)
        return "".join((*parts, text[end:]))

    def _found(self, found: re.Match[str], platform: str, known: _Known) -> str | None:
        """The pseudonym of what was found, None where it stays."""
        if found["id"] is not None:
            owner = known.forms[found["id"]]
            return self._pseudonym(owner) if self.hides(owner.platform) else None
        if found["number"] is None:
            return None
        digits = _digits(found["number"])
        if digits in known.digits and self.hides(known.digits[digits].platform):
            return self._pseudonym(known.digits[digits])
        if len(digits) > _MOST_DIGITS and platform and self._raw_ids(platform):
            return None
        sign = "+" if found["number"].startswith(("+", "(+", "00")) else ""
        return f"user_{self._hash('user', platform, sign + digits)}"


def _ids(source: Source | None, homes: Mapping[str, HomeChannel] | None) -> Iterator[_Id]:
    # People come first: in a direct message the chat often has the id of the person.
    if source is not None:
        where = source.platform
        yield from (_Id("user", where, v) for v in (source.user_id, source.user_id_alt) if v)
        yield from (_Id("chat", where, v) for v in (source.chat_id, source.chat_id_alt) if v)
        yield from (_Id("thread", where, v) for v in (source.thread_id,) if v)
    # Two homes may have one id; which of them it is taken for must not hang on their order.
    for platform, home in sorted((homes or {}).items()):
        yield _Id("chat", platform, home.chat_id)
        if home.thread_id:
            yield _Id("thread", platform, home.thread_id)


@lru_cache(maxsize=256)
def _known(ids: tuple[_Id, ...]) -> _Known:
    known = _Known({}, {})
    for found in ids:
        bare = _prefix(found.platform, found.value)[1]
        forms = {_fold(form)[0] for form in (found.value, clean(found.value), bare)}
        for form in filter(None, forms):
            known.forms.setdefault(form, found)
        number = _NUMBER_ID.match(_fold(bare)[0])
        if number:
            known.digits.setdefault(_digits(number[1]), found)
    return known


def _prefix(platform: str, chat_id: str) -> tuple[str, str]:
    """What an id says about itself (`telegram:`, `group:`), and the id."""
    word, colon, rest = chat_id.partition(":")
    tells = word.lower() in (platform.lower(), *CHAT_TYPES)
    return (word + colon, rest) if colon and rest and tells else ("", chat_id)


def _digits(number: str) -> str:
    digits = re.sub(r"\D", "", number)
    return digits[2:] if digits.startswith("00") else digits


@lru_cache(maxsize=256)
def _pattern(ids: tuple[str, ...]) -> re.Pattern[str]:
    """Known ids first, the longest first; then what looks like a number and is none."""
    forms = [_id_pattern(form) for form in sorted(ids, key=len, reverse=True) if len(form) >= _WORD]
    return re.compile(rf"(?P<id>{'|'.join(forms) or '(?!)'})|{_KEPT}|(?P<number>{_NUMBER})")


def _id_pattern(form: str) -> str:
    """Long ids are found inside words, but no number inside a longer one, which is found itself.

    One or two characters say nothing about anyone, and taking them out would tear up the text, so
    they only count as the whole of it.
    """
    if len(form) < _ANYWHERE:
        return rf"(?<![^\W_]){re.escape(form)}(?![^\W_])"
    return re.escape(form) + (r"(?!\d)" if re.fullmatch(r"[+-]?\d+", form) else "")


def _fold(text: str) -> tuple[str, list[int] | range]:
    """The text as it is compared, and for each of its characters the place it came from."""
    if text.isascii() and text.isprintable():
        return text.lower().translate(_ASCII_ALIKE), range(len(text) + 1)
    folded, places = [], []
    for place, char in enumerate(text):
        for piece in _folded(char):
            folded.append(piece)
            places.append(place)
    return "".join(folded), [*places, len(text)]


_ASCII_ALIKE = str.maketrans({"[": "(", "]": ")"})


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    if char.isspace():
        return "\n" if char.splitlines() == [""] else " "
    pieces = unicodedata.normalize("NFKD", char).casefold()
    return "".join(map(_piece, pieces))


def _piece(char: str) -> str:
    if char in _ALIKE:
        return _ALIKE[char]
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.decimal(char))
    if category == "Pd":
        return "-"
    return "" if category in ("Cc", "Cf", "Mn", "Me") else char


def _chat_type_at(parts: list[str]) -> int:
    """Where the chat type stands in the parts of a key."""
    if parts[0] == "agent":
        for at in (3, 4):
            if parts[at : at + 1] and (parts[at] in CHAT_TYPES or parts[at].startswith(MARK)):
                return at
    raise ValueError("no key")


def _kinds(chat_type: str, ids: list[str]) -> tuple[Kind, ...]:
    """What each id of a key is, by the rules that `keys` writes them with."""
    marked = tuple(part.startswith(MARK) for part in ids)
    forms = _DM_FORMS if chat_type == "dm" else _GROUP_FORMS
    if marked not in forms:
        raise ValueError("no key")
    return forms[marked]
