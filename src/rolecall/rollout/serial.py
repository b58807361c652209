"""Records as plain data (dicts, lists, strings, numbers) and back, so that they can be stored as JSON or Parquet."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

from rolecall.errors import UsageError, nearest

T = TypeVar("T")


def to_dict(record: Any) -> dict[str, Any]:
    """A record (a dataclass of `records.py` or `transcript.py`) as plain data; equal after `from_dict`."""
    plain = _plain(record, type(record).__name__)
    assert isinstance(plain, dict)
    return plain


def from_dict(cls: type[T], data: Mapping[str, Any]) -> T:
    """The record that `to_dict` made plain; a key that the record has not is an error."""
    record: T = _record(cls, data)
    return record


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, Enum) else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name), f"{where}.{field.name}")
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise UsageError(f"{where} has keys that are not strings, {list(value)[:3]}; plain data has string keys")
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise UsageError(
        f"{where} is {type(value).__name__} {value!r:.60}, which cannot be stored; "
        f"an effect returns plain data: None, bool, int, float, str, and lists and dicts of these"
    )


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _record(cls: Any, data: Mapping[str, Any]) -> Any:
    hints = _hints(cls)
    for key in data:
        if key not in hints:
            raise UsageError(f"a stored {cls.__name__} has {key!r}, which the record has not{nearest(key, hints)}")
    return cls(**{key: _typed(hints[key], value) for key, value in data.items()})


def _typed(wanted: Any, value: Any) -> Any:
    """`value` as type `wanted`; a type that plain data already is passes as it is."""
    origin, args = get_origin(wanted), get_args(wanted)
    if value is None or wanted is Any:
        return value
    if origin in (Union, types.UnionType):
        return _typed(next(option for option in args if option is not type(None)), value)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return wanted(value)
    if dataclasses.is_dataclass(wanted):
        return _record(wanted, value)
    if isinstance(wanted, type) and issubclass(wanted, tuple) and hasattr(wanted, "_fields"):
        return wanted(*value)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_typed(args[0], item) for item in value)
        return tuple(_typed(kind, item) for kind, item in zip(args, value, strict=True))
    if origin in (list, Sequence):
        return [_typed(args[0], item) for item in value]
    if origin in (dict, Mapping):
        return {key: _typed(args[1], item) for key, item in value.items()}
    return value
