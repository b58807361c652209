"""Recipes: TOML files, those that they extend, overrides of the command line; mistakes in words."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from rolecall.config.sections import RunConfig
from rolecall.errors import ConfigError, nearest


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a TOML recipe, apply `key.path=value` overrides, check everything. `ConfigError` names what is wrong. A
    recipe without a name has that of its file."""
    data = apply_overrides(read_recipe(Path(path)), overrides)
    if {"base", "axes"} <= data.keys():
        raise ConfigError(f"{str(path)!r} is a matrix of runs and no recipe; run it with: rolecall matrix {path}")
    if not {"workflow", "algorithm"} & data.keys():
        raise ConfigError(
            f"{str(path)!r} is no whole recipe: [workflow] and [algorithm] are missing. Add them, or write a recipe "
            f'that has them and extends this one, by its path from there: extends = "{Path(path).name}"'
        )
    return make_config({"name": Path(path).stem, **data}, source=str(path))


def make_config(data: Mapping[str, Any], source: str = "configuration") -> RunConfig:
    """Check a configuration given as a mapping."""
    try:
        made = RunConfig.model_validate(dict(data))
    except ValidationError as error:
        lines = [explain(item, RunConfig) for item in error.errors()]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from None
    check_kinds(data, made, source)
    return made


KINDS: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "text"}


def check_kinds(data: Mapping[str, Any], made: BaseModel, source: str) -> None:
    """`ConfigError` for a value of one kind that was read as another: `damping = true` is no damping of 1."""
    for path, given, read in _other_kinds(data, made):
        raise ConfigError(f"{source}: {path} is {given!r}; wanted {KINDS[type(read)]}")


def _other_kinds(data: Any, made: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, value and what pydantic has made of it."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            below = made.get(key) if isinstance(made, Mapping) else getattr(made, str(key), None)
            yield from _other_kinds(value, below, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list | tuple) and isinstance(made, list | tuple):
        for number, (value, below) in enumerate(zip(data, made, strict=False)):
            yield from _other_kinds(value, below, f"{path}.{number}")
    elif KINDS.get(type(data)) != KINDS.get(type(made)) and {type(data), type(made)} <= KINDS.keys():
        yield path, data, made


def read_recipe(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The tables of a recipe; `extends = "other.toml"` (beside it) is read first and overlaid, table by table."""
    if "\0" in str(path):
        raise ConfigError(f"recipe {str(path)!r} has a character of code 0 in its path; give a path to a .toml file")
    if path.resolve() in seen:
        raise ConfigError(f"recipe {str(path)!r} extends itself by way of {' -> '.join(p.name for p in seen)}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"recipe {str(path)!r} cannot be read ({error.strerror}); give a path to a .toml file"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"recipe {str(path)!r} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOML's own, an integer of thousands of digits, brackets without end
        raise ConfigError(f"recipe {str(path)!r} is not TOML: {error}") from None
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"recipe {str(path)!r}: extends = {base!r}; wanted the name of another recipe beside it")
    return overlay(read_recipe(path.parent / base, (*seen, path.resolve())), data)


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`top` over `base`, tables merged, everything else replaced; a component with another `name` starts afresh."""
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            renamed = "name" in value and value["name"] != below.get("name")
            merged[key] = dict(value) if renamed else overlay(below, value)
        else:
            merged[key] = value
    return merged


def apply_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply `learner.lr=1e-4`; the value is TOML (`[1, 2]`, `"text"`, `true`), or plain text when it is none."""
    result: dict[str, Any] = overlay({}, data)
    for item in overrides:
        path, equals, text = item.partition("=")
        keys = [key.strip() for key in path.split(".")]
        if not equals or not all(keys):
            raise ConfigError(f"--set {item!r} is not of the form key.path=value, such as learner.lr=1e-4")
        tree: Any = toml_value(text.strip())
        for key in reversed(keys):
            tree = {key: tree}
        result = overlay(result, tree)
    return result


def toml_value(text: str) -> Any:
    """A TOML value, or the text itself when it is none (or more than one, on lines of their own)."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text


def explain(item: Any, top: type[BaseModel]) -> str:
    """One error of pydantic about a configuration of type `top`, in words; an unknown key names the nearest."""
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        *parents, key = item["loc"]
        return f"unknown key {path!r}{nearest(str(key), _known_keys(parents, top))}"
    if item["type"] == "missing":
        return f"{path!r} is missing"
    message = str(item.get("ctx", {}).get("error") or item["msg"])
    return f"{path or 'table'}: {message}" + ("" if item["type"] == "value_error" else f" (got {item['input']!r})")


def _known_keys(parents: Sequence[Any], top: type[BaseModel]) -> list[str]:
    """The keys that the section at `parents` may have."""
    at: Any = top
    for part in parents:
        if isinstance(at, type) and issubclass(at, BaseModel) and part in at.model_fields:
            at = at.model_fields[part].annotation
        elif is_dataclass(at):
            at = next((f.type for f in fields(at) if f.name == part), at)
        if get_args(at):  # `X | None`, `dict[str, X]`: the section type inside
            at = next((arg for arg in get_args(at) if isinstance(arg, type) and _has_keys(arg)), at)
    if isinstance(at, type) and issubclass(at, BaseModel):
        return list(at.model_fields)
    return [f.name for f in fields(at)] if is_dataclass(at) else []


def _has_keys(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, BaseModel)
