"""Short names and `module:Name` to objects whose fields are their knobs; a key that nothing reads is an error."""

from __future__ import annotations

import dataclasses
import importlib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from rolecall.errors import ConfigError, nearest

T = TypeVar("T")

MODULE = re.compile(r"\w+(\.\w+)*")
"""A name that can be imported; a file such as `03_own_workflow.py` can, though its name is no identifier."""


def load_class(name: str, table: Mapping[str, type[T]], kind: str) -> type[T]:
    """The class of a built-in short name, or of `module:Name`; an import that fails keeps its own traceback."""
    if name in table:
        return table[name]
    if ":" not in name:
        raise ConfigError(f"no {kind} is called {name!r}{nearest(name, table)} (or give module:Name)")
    found = load_attribute(name, kind)
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        raise ConfigError(
            f"{kind} {name!r} is {type(found).__name__} {found!r}; wanted a frozen keyword-only dataclass whose fields "
            f"are its knobs: put @dataclass(frozen=True, kw_only=True) above the class"
        )
    return typing.cast("type[T]", found)


def load_attribute(name: str, kind: str) -> Any:
    """What `module:Name` names; a module that is there and fails to import keeps its own traceback."""
    module_name, _, attribute = name.partition(":")
    if not attribute.isidentifier() or not MODULE.fullmatch(module_name):
        raise ConfigError(f"{kind} {name!r} is not of the form module:Name, such as my_package.my_file:MyClass")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # it was found, and something that it imports was not
        raise ConfigError(
            f"{kind} {name!r}: there is no module {error.name!r} on the Python path; put the folder of its file there, "
            f"e.g. PYTHONPATH=. rolecall ..."
        ) from None
    if not hasattr(module, attribute):
        raise ConfigError(
            f"{kind} {name!r}: module {module_name} has no {attribute!r}{nearest(attribute, vars(module))}"
        )
    return getattr(module, attribute)


def load_named(name: str, table: Mapping[str, type[T]], kind: str, params: Mapping[str, Any] | None = None) -> T:
    """Instance of the class that `name` names, its fields set from `params`: strict keys, checked simple types."""
    cls = load_class(name, table, kind)
    params = dict(params or {})
    fields = {field.name: field for field in dataclasses.fields(typing.cast("Any", cls)) if field.init}
    for key in params:
        if key not in fields:
            raise ConfigError(f"{kind} {name!r} has no setting {key!r}{nearest(key, fields)}")
    for key, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and key not in params:
            raise ConfigError(f"{kind} {name!r} needs a value for {key!r}: it has no default")
    hints = typing.get_type_hints(cls)
    values = {key: coerce(value, hints[key], f"{kind} {name!r}, setting {key!r}") for key, value in params.items()}
    return cls(**values)


def coerce(value: Any, wanted: Any, where: str) -> Any:
    """`value` if it is of a simple type `wanted` (an int passes as a float, a list as a tuple), else `ConfigError`.

    Types that this function does not know are passed through: the class itself checks them.
    """
    origin, args = get_origin(wanted), get_args(wanted)
    if wanted is Any or isinstance(wanted, TypeVar):
        return value
    if origin in (Union, types.UnionType):
        return _coerce_union(value, args, wanted, where)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where}: {value!r} is not one of {', '.join(map(repr, args))}")
        return value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted in (bool, int, float, str, type(None)):
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise ConfigError(f"{where}: {value!r} is {type(value).__name__}, wanted {wanted.__name__}")
        return value
    if origin is tuple or origin in (list, Sequence):
        return _coerce_sequence(value, origin, args, where)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {value!r} is {type(value).__name__}, wanted a table")
        key_type, item_type = args
        return {coerce(key, key_type, where): coerce(item, item_type, f"{where}.{key}") for key, item in value.items()}
    return value


def _coerce_union(value: Any, options: Sequence[Any], wanted: Any, where: str) -> Any:
    for exact in (True, False):
        for option in options:
            if exact and type(value) is not option:
                continue
            try:
                return coerce(value, option, where)
            except ConfigError:
                continue
    raise ConfigError(f"{where}: {value!r} is {type(value).__name__}, wanted {wanted}")


def _coerce_sequence(value: Any, origin: Any, args: Sequence[Any], where: str) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"{where}: {value!r} is {type(value).__name__}, wanted a list")
    if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
        if len(value) != len(args):
            raise ConfigError(f"{where}: {value!r} has {len(value)} items, wanted {len(args)}")
        return tuple(coerce(value[i], kind, f"{where}[{i}]") for i, kind in enumerate(args))
    items = [coerce(item, args[0], f"{where}[{i}]") for i, item in enumerate(value)]
    return items if origin is list else tuple(items)
