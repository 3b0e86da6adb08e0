"""Check the arguments of public methods against their type hints.

`checks_arguments` decorates a class of records. A call whose argument does not fit its hint raises
`ConfigError` with the name of the argument as `field`, on every database alike, before anything is
done. Methods check what a hint cannot say themselves, for example bounds.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Literal,
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
from tertulia.errors import ConfigError

_Class = TypeVar("_Class", bound=type)
_Accepts = Callable[[Any], bool]
_LARGEST = 2**63 - 1  # what an integer column of both databases can hold


def checks_arguments(cls: _Class) -> _Class:
    """Make every public method of a class check its arguments; return the class."""
    for name, method in vars(cls).copy().items():
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(cls, name, _checked(method))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    hints: list[_Hint] = []  # read at the first call: importing the package stays fast
    by_name: dict[str, _Hint] = {}

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not hints:
            hints.extend(_read_hints(method))
            by_name.update((hint.name, hint) for hint in hints)
        for hint, value in zip(hints, args, strict=False):
            if not hint.accepts(value):
                hint.refuse(value)
        for name, value in kwargs.items():
            if name in by_name and not by_name[name].accepts(value):
                by_name[name].refuse(value)
        return method(*args, **kwargs)

    return call


def _read_hints(method: Callable[..., Any]) -> list[_Hint]:
    types_by_name = get_type_hints(method)
    return [
        _Hint(name, types_by_name.get(name, Any)) for name in inspect.signature(method).parameters
    ]


class _Hint:
    """The type hint of one argument."""

    def __init__(self, name: str, hint: Any) -> None:
        self.name = name
        self._hint = hint
        self.accepts: _Accepts = _acceptor(hint)

    def refuse(self, value: object) -> None:
        """Raise the `ConfigError` for a value that does not fit."""
        if self._hint is Source:
            validate.source(value)
        words = _describe(self._hint)
        is_choice = get_origin(self._hint) is Literal
        hint = f"Allowed: {', '.join(words)}." if is_choice else f"Give {' or '.join(words)}."
        raise ConfigError(f"{self.name} is {short_repr(value)}.", hint=hint, field=self.name)


def _acceptor(hint: Any) -> _Accepts:
    """Return the function that says whether a value fits a type hint."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        acceptors = [_acceptor(option) for option in get_args(hint)]
        return lambda value: any(accepts(value) for accepts in acceptors)
    if origin is Annotated:
        return _acceptor(get_args(hint)[0])
    if origin is Literal:
        allowed = get_args(hint)
        return lambda value: isinstance(value, str) and value in allowed
    accepts = _class_acceptor(origin or hint)
    if accepts is _is_collection:
        (item,) = get_args(hint)
        # Other items, such as messages, are checked by the methods, which name the wrong one.
        if (get_origin(item) or item) in (str, int, tuple):
            return _collection_acceptor(_acceptor(item))
    return accepts


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
    return isinstance(value, int) and value.__class__ is not bool and abs(value) <= _LARGEST


def _is_collection(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


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


def _describe(hint: Any) -> list[str]:
    """Return the values that fit a type hint, in words."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return [words for option in get_args(hint) for words in _describe(option)]
    if origin is Annotated:
        return _describe(get_args(hint)[0])
    if origin is Literal:
        return list(get_args(hint))
    kind = origin or hint
    if kind in _WORDS:
        return [_WORDS[kind]]
    if _class_acceptor(kind) is _is_collection:
        return ["a list, also for a single item"]
    return [f"a {getattr(kind, '__name__', kind)}"]


_WORDS: dict[Any, str] = {
    str: "text",
    bytes: "bytes",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    datetime: "a datetime with a time zone",
    types.NoneType: "None",
    Callable: "a function",
}
