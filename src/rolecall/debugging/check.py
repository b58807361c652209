"""`rolecall check`: does a user's workflow, reward, algorithm or engine keep to its contract?"""

from __future__ import annotations

import asyncio
import inspect
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rolecall.algorithms.base import Algorithm
from rolecall.algorithms.make import ALGORITHMS, make_algorithm
from rolecall.engines.base import Engine
from rolecall.engines.scripted import ScriptedEngine
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.errors import ConfigError, EngineError, RolecallError, UsageError, WorkflowError, boundary, nearest
from rolecall.records import Claim, Task
from rolecall.registry import load_attribute, load_class, load_named
from rolecall.rewards import REWARDS
from rolecall.testing import any_reply, check_algorithm, check_engine, check_reward, check_workflow
from rolecall.workflows import WORKFLOWS, check_roles
from rolecall.workflows.base import Workflow

KINDS = ("workflow", "reward", "algorithm", "engine")
PROMPTS = ((5, 6, 7), (8, 9), (10,))
TASKS = (
    Task(id="check:0", question="What is 1 + 1?", answer="2"),
    Task(id="check:1", question="What is 4 - 3?", answer="1"),
    Task(id="check:2", question="", answer="0"),
)
_ENGINE_METHODS = ("generate", "load", "score", "version", "close")
_KNOBS = "@dataclass(frozen=True, kw_only=True)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What was checked, as what, and what is wrong with it."""

    target: str
    kind: str
    complaints: tuple[str, ...]


def check_target(
    target: str, kind: str | None = None, settings: Mapping[str, Any] | None = None, *, policy: str = "policy"
) -> Checked:
    """Check `module:Name`, or a built-in by its short name. `settings` are its knobs; `policy` is one that an engine
    has. `UsageError` when there is no such thing; whatever is wrong with it is a complaint."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"--kind is {kind!r}{nearest(kind, KINDS)}; wanted one of {', '.join(KINDS)}")
    found = find(target)
    kind = kind or kind_of(target, found)
    checks: dict[str, Callable[[], Iterator[str]]] = {
        "workflow": lambda: _workflow(target, settings or {}),
        "reward": lambda: _reward(target, settings or {}),
        "algorithm": lambda: _algorithm(target, settings or {}),
        "engine": lambda: _engine(target, found, settings or {}, policy),
    }
    return Checked(target=target, kind=kind, complaints=tuple(checks[kind]()))


def find(target: str) -> Any:
    """What `target` names."""
    tables: dict[str, Mapping[str, Any]] = {
        "workflow": WORKFLOWS,
        "reward": REWARDS,
        "algorithm": ALGORITHMS,
        "engine": ENGINES,
    }
    for table in tables.values():
        if target in table:
            return table[target]
    if ":" not in target:
        known = sorted(name for table in tables.values() for name in table)
        raise UsageError(f"nothing built in is called {target!r}{nearest(target, known)} (or give module:Name)")
    return load_attribute(target, "target")


def kind_of(target: str, found: Any) -> str:
    """Workflow, reward, algorithm or engine, by what the thing is."""
    is_class = isinstance(found, type)
    returned = _returned(found)
    if isinstance(found, Workflow) or (is_class and issubclass(found, Workflow)):
        return "workflow"
    if isinstance(found, Algorithm) or (returned is not None and returned is Algorithm):
        return "algorithm"
    if all(hasattr(found, name) for name in ("generate", "load")) or hasattr(returned, "generate"):
        return "engine"
    if is_class and hasattr(found, "run") and hasattr(found, "roles"):
        return "workflow"
    if is_class and "__call__" in {name for base in found.__mro__[:-1] for name in vars(base)}:
        return "reward"
    if not is_class and callable(found) and not inspect.isroutine(found):
        return "reward"
    raise UsageError(
        f"{target!r} is {'the class' if is_class else 'a'} {found.__name__ if is_class else type(found).__name__}, and "
        f"not seen to be a workflow (a subclass of Workflow), a reward (a class with __call__(graded)), an algorithm "
        f"(an Algorithm, or a function annotated to return one) or an engine (generate, load, ...); say which it is "
        f"meant to be with --kind"
    )


def _returned(found: Any) -> Any:
    """The annotated return type of a function."""
    if not isinstance(found, types.FunctionType):
        return None
    try:
        return typing.get_type_hints(found).get("return")
    except NameError:  # an annotation that is imported for type checkers alone
        return None


def _complaint(check: Callable[[], None], kind: type[RolecallError], where: str) -> Iterator[str]:
    """What a check raises, as a complaint; what the user's code raises is named, with its line."""
    try:
        with boundary(kind, where):
            check()
    except RolecallError as error:
        frames = traceback.extract_tb(error.__cause__.__traceback__) if error.__cause__ is not None else []
        line = f" (line {frames[-1].lineno} of {frames[-1].filename}, in {frames[-1].name})" if frames else ""
        yield f"{error}{line}"


def _made(target: str, table: Mapping[str, type[Any]], kind: str, settings: Mapping[str, Any]) -> Any:
    """The object with its knobs; a knob that it has not is the caller's mistake, a class of another shape its own."""
    with boundary(UsageError, f"making {kind} {target!r} with {dict(settings) or 'its defaults'}"):
        return load_named(target, table, kind, settings)


def _shape(target: str, table: Mapping[str, type[Any]], kind: str) -> Iterator[str]:
    """A class whose fields are its knobs."""
    try:
        cls = load_class(target, table, kind)
    except UsageError as error:
        yield str(error)
        return
    if not cls.__dataclass_params__.frozen:
        yield f"{kind} {target!r} can be changed while it is used; wanted a frozen dataclass: put {_KNOBS} above it"
    fields = typing.cast("Any", cls).__dataclass_fields__
    for name, annotation in inspect.get_annotations(cls).items():
        if name not in fields and "ClassVar" not in str(annotation):
            yield f"{kind} {target!r}: {name!r} is no field, so no recipe can set it; put {_KNOBS} above the class"


def _workflow(target: str, settings: Mapping[str, Any]) -> Iterator[str]:
    shape = list(_shape(target, WORKFLOWS, "workflow"))
    yield from shape
    if shape:
        return
    workflow = _made(target, WORKFLOWS, "workflow", settings)
    if not isinstance(workflow, Workflow):
        yield (
            f"workflow {target!r} is {type(workflow).__name__}, which is no Workflow; "
            f"make it a subclass of rolecall.workflows.Workflow"
        )
        return
    wrong = list(_complaint(lambda: check_roles(target, workflow.roles), ConfigError, "the roles"))
    yield from wrong
    if wrong:
        return
    yield from _claims(workflow)
    yield from _max_calls(workflow)
    yield from _complaint(lambda: check_workflow(workflow, TASKS), WorkflowError, f"workflow {target}")


def _claims(workflow: Workflow) -> Iterator[str]:
    """`claim` says something of any text, and the same again."""
    name = type(workflow).__name__
    for role in workflow.roles:
        for text, truncated in ((None, True), ("", False), ("Answer: 7\nVerdict: correct", False)):
            try:
                with boundary(WorkflowError, f"{name}.claim({role!r}, {text!r}, {truncated})"):
                    first: object = workflow.claim(role, text, truncated)
                    again: object = workflow.claim(role, text, truncated)
            except RolecallError as error:
                yield f"{error}; wanted a Claim or None for any text: a model may say anything, or nothing"
                return
            if not (first is None or isinstance(first, Claim)):
                yield f"{name}.claim({role!r}, {text!r}) gave {first!r:.60}; wanted a Claim or None"
                return
            if first != again:
                yield f"{name}.claim({role!r}, {text!r}) gave {first} and then {again}; wanted a pure function"
                return


def _max_calls(workflow: Workflow) -> Iterator[str]:
    for role in workflow.max_calls():
        if role not in workflow.roles:
            yield (
                f"{type(workflow).__name__}.max_calls() names {role!r}{nearest(role, workflow.roles)}; "
                f"wanted roles of the workflow alone"
            )


def _reward(target: str, settings: Mapping[str, Any]) -> Iterator[str]:
    shape = list(_shape(target, REWARDS, "reward"))
    yield from shape
    if shape:
        return
    reward = _made(target, REWARDS, "reward", settings)
    found: list[str] = []
    yield from _complaint(
        lambda: found.extend(check_reward(reward)), RolecallError, f"reward {target}, on a made-up episode,"
    )
    yield from found


def _algorithm(target: str, settings: Mapping[str, Any]) -> Iterator[str]:
    found: list[str] = []

    def check() -> None:
        found.extend(check_algorithm(make_algorithm(target, settings)))

    yield from _complaint(check, RolecallError, f"algorithm {target}, on made-up episodes,")
    yield from found


def _engine(target: str, found: Any, settings: Mapping[str, Any], policy: str) -> Iterator[str]:
    engine = found
    if isinstance(found, type) or inspect.isroutine(found):
        with boundary(UsageError, f"making engine {target!r} with {dict(settings) or 'no arguments'}"):
            engine = found(**settings)
    elif settings:
        raise UsageError(f"engine {target!r} is an object, made already: --set needs a class or a function")
    missing = [name for name in _ENGINE_METHODS if not callable(getattr(engine, name, None))]
    if missing:
        yield f"{type(engine).__name__} has no {', '.join(missing)}; wanted all of {', '.join(_ENGINE_METHODS)}"
        return
    where = f"engine {target}"
    yield from _complaint(lambda: check_engine(engine, policy, PROMPTS), EngineError, where)
    yield from _complaint(lambda: asyncio.run(engine.close()), EngineError, f"closing {where}")


def _local() -> Engine:
    """The local engine with the model that rolecall ships."""
    from rolecall.engines.local import LocalEngine

    spec = PolicySpec(name="policy", kind="frozen", model="builtin:tiny")
    return LocalEngine([spec], LocalSettings(mode="inline", deterministic=True))


def _scripted() -> Engine:
    return ScriptedEngine(any_reply, policies={"policy": 0})


ENGINES: Mapping[str, Callable[[], Engine]] = {"local": _local, "scripted": _scripted}
