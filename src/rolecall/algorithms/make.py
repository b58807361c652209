"""From a name and overrides, as a configuration gives them, to an `Algorithm`; a key that nothing reads is an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, get_type_hints

from rolecall.algorithms.base import Algorithm
from rolecall.algorithms.loss import Loss
from rolecall.algorithms.named import agent_grpo, dr_mas, marsrl, mas_grpo, rae, workflow_grpo
from rolecall.credit import ESTIMATORS
from rolecall.credit.units import Grouping
from rolecall.errors import ConfigError, boundary, nearest
from rolecall.registry import coerce, load_attribute, load_named
from rolecall.rewards import REWARDS
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.samplers import IndependentEpisodes

T = TypeVar("T", Grouping, Loss)

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    "mas_grpo": mas_grpo,
    "dr_mas": dr_mas,
    "workflow_grpo": workflow_grpo,
    "rae": rae,
    "agent_grpo": agent_grpo,
    "marsrl": marsrl,
}
GROUPING_KEYS = tuple(field.name for field in fields(Grouping))
PLAIN_KEYS: Mapping[str, type] = {"alone": str, "balance_verdicts": bool, "balance_cap": float}
OVERRIDES = ("n", "reward", "estimator", "loss", *PLAIN_KEYS, *GROUPING_KEYS)


def make_algorithm(name: str, overrides: Mapping[str, Any] | None = None) -> Algorithm:
    """The algorithm that `name` names, with `overrides` in the place of its own choices.

    `name`: one of `ALGORITHMS`, or `module:Name` of a function that returns an `Algorithm`, or of an `Algorithm`.
    `overrides`: parameters that are that function's own; and `n`, `alone`, `balance_verdicts`, `balance_cap`, `unit`,
    `peers`, `reduce`, `merge_copies`; `reward` and `estimator`, a name, a table with a `name` and knobs, or the object
    itself; `loss`, a table of fields.
    """
    given = dict(overrides or {})
    factory = _factory(name)
    own = [] if isinstance(factory, Algorithm) else _parameters(factory)
    for key in given:
        if key not in own and key not in OVERRIDES:
            raise ConfigError(f"algorithm {name!r} has no setting {key!r}{nearest(key, {*own, *OVERRIDES})}")
    algorithm = factory if isinstance(factory, Algorithm) else _call(name, factory, given, own)
    changes: dict[str, Any] = {}
    if "n" in given:
        changes["sampler"] = _with_n(algorithm, coerce(given.pop("n"), int, f"algorithm {name!r}, setting 'n'"))
    if "reward" in given:
        changes["reward"] = _component(given.pop("reward"), REWARDS, "reward")
    if "estimator" in given:
        changes["estimator"] = _component(given.pop("estimator"), ESTIMATORS, "estimator")
    for key, kind in PLAIN_KEYS.items():
        if key in given:
            changes[key] = coerce(given.pop(key), kind, f"algorithm {name!r}, setting {key!r}")
    if "loss" in given:
        changes["loss"] = _loss(algorithm.loss, given.pop("loss"))
    if given:
        changes["grouping"] = _with_fields(algorithm.grouping, given, f"algorithm {name!r}")
    return replace(algorithm, **changes)


def _factory(name: str) -> Callable[..., Algorithm] | Algorithm:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise ConfigError(f"no algorithm is called {name!r}{nearest(name, ALGORITHMS)} (or give module:Name)")
    found = load_attribute(name, "algorithm")
    if isinstance(found, Algorithm) or inspect.isfunction(found):
        return found
    raise ConfigError(
        f"algorithm {name!r} is {type(found).__name__} {found!r}; wanted an `Algorithm`, or a function that returns one"
    )


def _parameters(factory: Callable[..., Algorithm]) -> list[str]:
    """The parameters that are the factory's own; those that are overrides anyway are applied to what it returns."""
    parameters = inspect.signature(factory).parameters.items()
    return [name for name, p in parameters if p.kind is not p.VAR_KEYWORD and name not in OVERRIDES]


def _call(name: str, factory: Callable[..., Algorithm], given: dict[str, Any], own: list[str]) -> Algorithm:
    """Call the factory with the overrides that are its own parameters, which leave `given`."""
    with boundary(ConfigError, f"algorithm {name!r}"):
        algorithm = factory(**{key: given.pop(key) for key in own if key in given})
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(
            f"algorithm {name!r} returned {type(algorithm).__name__} {algorithm!r}; wanted an `Algorithm`"
        )
    return algorithm


def _with_n(algorithm: Algorithm, n: int) -> IndependentEpisodes | AgenticGroups:
    if not isinstance(algorithm.sampler, IndependentEpisodes | AgenticGroups):
        raise ConfigError(
            f"algorithm {algorithm.name!r} draws by {type(algorithm.sampler).__name__}, which has no n; "
            f"leave n out, and set the knobs of the sampler where the algorithm makes it"
        )
    return replace(algorithm.sampler, n=n)


def _component(given: Any, table: Mapping[str, Any], kind: str) -> Any:
    if isinstance(given, str):
        return load_named(given, table, kind, {})
    if isinstance(given, Mapping):
        if not isinstance(given.get("name"), str):
            raise ConfigError(f"{kind} is {dict(given)!r}; wanted a table with a `name`, one of {', '.join(table)}")
        return load_named(given["name"], table, kind, {key: value for key, value in given.items() if key != "name"})
    if not callable(given) and not hasattr(given, "step"):
        raise ConfigError(f"{kind} is {given!r}; wanted a name, a table with a `name`, or a {kind} object")
    return given


def _loss(loss: Loss, given: Any) -> Loss:
    if isinstance(given, Loss):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"loss is {given!r}; wanted a table of its fields")
    return _with_fields(loss, given, "loss")


def _with_fields(settings: T, given: Mapping[str, Any], where: str) -> T:
    """`settings` with the fields in `given` replaced: strict names, checked types."""
    hints = get_type_hints(type(settings))
    for key in given:
        if key not in hints:
            raise ConfigError(f"{where} has no setting {key!r}{nearest(str(key), hints)}")
    values: dict[str, Any] = {
        key: coerce(value, hints[key], f"{where}, setting {key!r}") for key, value in given.items()
    }
    return replace(settings, **values)
