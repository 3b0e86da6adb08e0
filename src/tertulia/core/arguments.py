"""Check the arguments of public methods against their type hints (decision 0055).

`checks_arguments` decorates a class of records. A call whose argument does not fit its hint raises
`ConfigError` with the name of the argument as `field`, on every database alike, before anything is
done. Methods check what a hint cannot say themselves, for example bounds.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tertulia.core import validate
from tertulia.core.source import Source
from tertulia.core.text.excerpt import short_repr
from tertulia.core.usage import Usage
from tertulia.errors import ConfigError

_Class = TypeVar("_Class", bound=type)
_Accepts = Callable[[Any], bool]
# Types of which every value fits; not int and float, which have values that do not.
_ACCEPTED_TYPES = frozenset({str, bytes, bool, types.NoneType, Source, Usage})
_INTEGER_BITS = 1024  # Python refuses to write much longer numbers


def checks_arguments(cls: _Class) -> _Class:
    """Make every public method of a class check its arguments; return the class."""
    for name, method in vars(cls).copy().items():
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(cls, name, _with_checks(method))
    return cls


def _with_checks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with a check of its arguments before it."""

    @functools.cache  # read at the first call: importing the package stays fast
    def read_hints() -> tuple[list[_Hint], dict[str, _Hint]]:
        # Not `inspect.signature`, which takes as long as everything else in a first call.
        code = inspect.unwrap(method).__code__
        _, *names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]  # without self
        hints = [_Hint(method, name) for name in names]
        return hints, {hint.name: hint for hint in hints}

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        by_position, by_name = read_hints()
        for hint, value in zip(by_position, args, strict=False):
            if type(value) not in hint.types:
                hint.check(value)
        for name, value in kwargs.items():
            named = by_name.get(name)
            if named is not None and type(value) not in named.types:
                named.check(value)
        return method(self, *args, **kwargs)

    return call


class _Hint:
    """The type hint of one argument; it is read when the argument is first given.

    `types` are types of which every value fits: nearly all arguments need no other check.
    """

    __slots__ = ("_accepts", "_hint", "_method", "name", "types")

    def __init__(self, method: Callable[..., Any], name: str) -> None:
        self._method = method
        self._hint: Any = None
        self._accepts: _Accepts | None = None  # None: the hint was not read yet
        self.name = name
        self.types: frozenset[type] = frozenset()

    def check(self, value: object) -> None:
        """Raise `ConfigError` if a value does not fit."""
        if self._accepts is None:
            self._hint = self._read_hint()
            self.types = frozenset(
                kind for option in _options(self._hint) for kind in _whole_types(option)
            )
            self._accepts = _acceptor(self._hint)
        if type(value) not in self.types and not self._accepts(value):
            self._refuse(value)

    def _read_hint(self) -> Any:
        annotations = self._method.__annotations__
        if self.name not in annotations:
            return Any
        alone = types.SimpleNamespace(__annotations__={self.name: annotations[self.name]})
        names = inspect.unwrap(self._method).__globals__
        return get_type_hints(alone, names)[self.name]

    def _refuse(self, value: object) -> NoReturn:
        """Raise the `ConfigError` for a value that does not fit."""
        if self._hint is Source:
            validate.source(value)
        if isinstance(value, datetime):
            validate.aware_datetime(self.name, value)
        options = [option for option in _options(self._hint) if option is not types.NoneType]
        if all(get_origin(option) is Literal for option in options):
            words = [word for option in options for word in get_args(option)]
            hint = f"Allowed: {', '.join(words)}."
        else:
            hint = f"Give {' or '.join(map(_describe, options))}."
        raise ConfigError(f"{self.name} is {short_repr(value)}.", hint=hint, field=self.name)


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union; of another hint, the hint."""
    if get_origin(hint) is Annotated:
        return _options(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _whole_types(option: Any) -> Sequence[type]:
    """Return the types of which every value fits one type of a hint; there may be others."""
    if option in _ACCEPTED_TYPES:
        return (option,)
    kind = get_origin(option) or option
    if kind is Literal or kind in _ACCEPTORS or not isinstance(kind, type):
        return ()
    if kind is Mapping:
        return (dict,)
    if kind.__module__ != "collections.abc":
        return (kind,)
    return () if _has_checked_items(option) else (list, tuple)


def _acceptor(hint: Any) -> _Accepts:
    """Return the function that says whether a value fits a type hint."""
    options = _options(hint)
    if len(options) > 1:
        acceptors = [_acceptor(option) for option in options]

        def accepts_any(value: Any) -> bool:
            for accepts in acceptors:  # noqa: SIM110 — any() would make a generator for each call
                if accepts(value):
                    return True
            return False

        return accepts_any
    (option,) = options
    if get_origin(option) is Literal:
        allowed = get_args(option)
        return lambda value: isinstance(value, str) and value in allowed
    accepts = _class_acceptor(get_origin(option) or option)
    if accepts is _is_collection and _has_checked_items(option):
        return _collection_acceptor(_acceptor(*get_args(option)))
    return accepts


def _has_checked_items(collection: Any) -> bool:
    """Return whether the items of a collection are checked here.

    Other items, such as messages, are checked by the methods, which name the wrong one.
    """
    (item,) = get_args(collection)
    return (get_origin(item) or item) in (str, int, tuple)


def _class_acceptor(kind: Any) -> _Accepts:
    if kind in _ACCEPTORS:
        return _ACCEPTORS[kind]
    if not isinstance(kind, type) or Protocol in kind.__bases__:
        return _is_anything
    if kind.__module__ == "collections.abc" and not issubclass(kind, Mapping):
        return _is_collection
    return lambda value: isinstance(value, kind)


def _collection_acceptor(accepts_item: _Accepts) -> _Accepts:
    def accepts(value: Any) -> bool:
        if not _is_collection(value):
            return False
        # An iterator could be read once only: its items are left to the method.
        return not isinstance(value, Collection) or all(map(accepts_item, value))

    return accepts


def _is_anything(value: Any) -> bool:
    return True


def _is_integer(value: Any) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value.bit_length() <= _INTEGER_BITS


def _is_collection(value: Any) -> bool:
    # Lists first: to ask whether something else is iterable takes several times as long.
    return isinstance(value, list) or (
        isinstance(value, Iterable) and not isinstance(value, str | bytes)
    )


def _is_aware(value: Any) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


_ACCEPTORS: dict[Any, _Accepts] = {
    Any: _is_anything,
    int: _is_integer,
    float: validate.is_number,
    datetime: _is_aware,
    types.NoneType: lambda value: value is None,
    Callable: callable,
}


def _describe(option: Any) -> str:
    """Return the values that fit one type of a hint, in words."""
    if get_origin(option) is Literal:
        return " or ".join(get_args(option))
    kind = get_origin(option) or option
    if _class_acceptor(kind) is _is_collection:
        return "a list, also for a single item"
    name = getattr(kind, "__name__", str(kind))
    return _WORDS.get(kind) or f"a value of the class {name}, such as this store returns"


_WORDS: dict[Any, str] = {
    str: "text",
    bytes: "bytes",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    datetime: "a datetime with a time zone",
    os.PathLike: "a path",
    Mapping: "a dict",
    Source: "a Source",
    Usage: "Usage(input=812, output=64)",
    Callable: "a function",
}
