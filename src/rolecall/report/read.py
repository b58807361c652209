"""A run folder as plain data: what is there is read, what is missing or broken is named, nothing is guessed.

Reads the files that `run_folder.py` writes with pyarrow alone, so that a page is made without the training side.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rolecall.errors import UsageError

METRIC_COLUMNS = ("step", "key", "value")
UNREADABLE = (pa.ArrowException, OSError, KeyError, UnicodeDecodeError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One metric over steps, in order of step, each step once; values may be NaN or infinite.

    >>> Series(steps=(1, 2), values=(0.5, 0.7)).last
    0.7
    """

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def finite(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]

    @property
    def last(self) -> float:
        """The last finite value, NaN when there is none."""
        return self.finite[-1] if self.finite else math.nan

    @property
    def last_step(self) -> int | None:
        """The step of `last`."""
        finite = [step for step, value in zip(self.steps, self.values, strict=True) if math.isfinite(value)]
        return finite[-1] if finite else None

    def tail(self, share: float = 0.25, at_least: int = 3) -> list[float]:
        """The finite values of the last steps: `share` of them, and `at_least` so many."""
        finite = self.finite
        return finite[-max(at_least, math.ceil(len(finite) * share)) :]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunData:
    """A run folder, read. `problems` says in words what could not be read; `before` and `after` are None until the
    test set was run. `alarms`: those that the run raised, in its own words. `finished` is whether the folder has its
    summary."""

    path: Path
    label: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    summary: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    metrics: Mapping[str, Series]
    roles: Mapping[str, str]
    alarms: tuple[Mapping[str, Any], ...] = ()
    num_not_finite: int = 0
    problems: tuple[str, ...] = field(default=())

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @property
    def steps(self) -> list[int]:
        return sorted({step for series in self.metrics.values() for step in series.steps})

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(policy for policy in self.roles.values() if policy))

    def rows(self) -> Iterator[tuple[int, str, float]]:
        """Every value as (step, key, value), the metrics one after another."""
        for key, series in self.metrics.items():
            for step, value in zip(series.steps, series.values, strict=True):
                yield step, key, value

    @property
    def trained_roles(self) -> tuple[str, ...]:
        """The roles whose turns enter the loss, as far as the configuration says so."""
        named = self.config.get("train_roles")
        return tuple(
            role
            for role, policy in self.roles.items()
            if (not isinstance(named, list) or role in named) and self.policy_config(policy).get("kind") != "frozen"
        )

    def policy_config(self, policy: str) -> Mapping[str, Any]:
        """The table of one policy: its own row, or the common [model]."""
        own = mapping(self.config.get("policies")).get(policy)
        return mapping(own if own is not None else self.config.get("model"))

    @property
    def models(self) -> tuple[str, ...]:
        """The models of all policies, each once."""
        named = [str(self.policy_config(policy).get("model", "")) for policy in self.policies]
        return tuple(dict.fromkeys(name for name in named if name))

    def alone(self, role: str) -> bool:
        """Whether the role has a policy of its own, so that its share of the policy's gradient says nothing."""
        policy = self.roles.get(role)
        return bool(policy) and sum(other == policy for other in self.roles.values()) == 1

    def series(self, key: str) -> Series:
        return self.metrics.get(key, Series())

    def sampled(self, when: str) -> Mapping[str, Any]:
        """The figures of the test set, sampled, `before` or `after`; empty when there are none."""
        side = self.before if when == "before" else self.after
        return mapping(mapping(side).get("sampled"))


def mapping(value: Any) -> Mapping[str, Any]:
    """The mapping, or an empty one where a file holds something else."""
    return value if isinstance(value, Mapping) else {}


def number_of(value: Any) -> float | None:
    """The value as a finite float, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def read_run(path: Path) -> RunData:
    """Read a run folder; a folder that is not one is a `UsageError`, broken files are named in `problems`."""
    config_file = path / "config.toml"
    if not path.is_dir():
        raise UsageError(f"{str(path)!r} is not a folder; give the folder of a run, e.g. runs/demo")
    if not config_file.is_file():
        raise UsageError(f"{str(path)!r} is not a run folder (no config.toml in it); give the folder of a run")
    try:
        config = tomllib.loads(config_file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{str(config_file)!r} cannot be read ({error}); it is the configuration of the run") from None
    problems: list[str] = []
    summary = _json(path, "summary.json", problems)
    before, after = (_json(path, f"evaluation_{when}.json", problems) for when in ("before", "after"))
    metrics, num_not_finite = _metrics(path, problems)
    return RunData(
        path=path,
        label=path.resolve().name,
        config=config,
        environment=_json(path, "environment.json", problems) or {},
        summary=summary or {},
        before=before,
        after=after,
        metrics=metrics,
        roles=_roles(path, summary or {}, before, problems),
        alarms=tuple(_alarms(path, problems)),
        num_not_finite=num_not_finite,
        problems=tuple(dict.fromkeys(problems)),
    )


def _json(path: Path, name: str, problems: list[str]) -> dict[str, Any] | None:
    """A JSON file as a dict; None when it is not there, and when it is broken, which is then said."""
    try:
        found = json.loads((path / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{name} cannot be read and is left out ({_short(error)})")
        return None
    if not isinstance(found, dict):
        problems.append(f"{name} holds no JSON object and is left out")
        return None
    return found


def _alarms(path: Path, problems: list[str]) -> Iterator[Mapping[str, Any]]:
    """The alarms of `alarms.json`, oldest first; one that is none (another version wrote it) is named and left out."""
    listed = (_json(path, "alarms.json", problems) or {}).get("alarms", [])
    for alarm in listed if isinstance(listed, list) else []:
        if isinstance(mapping(alarm).get("step"), int) and all(name in alarm for name in ("key", "text")):
            yield alarm
        else:
            problems.append(f"alarms.json holds {str(alarm)[:80]!r}, which is no alarm and is left out")


def parts(folder: Path) -> list[Path]:
    """The Parquet files of one kind in order of step; one whose span lies inside another's is a leftover of a kill."""
    spans: dict[Path, tuple[int, int]] = {}
    for part in sorted(folder.glob("[0-9]*.parquet")):
        first, _, last = part.stem.partition("-")
        if first.isdigit() and (last or first).isdigit():
            spans[part] = (int(first), int(last or first))
    return [part for part, span in spans.items() if not any(_inside(span, other) for other in spans.values())]


def _inside(span: tuple[int, int], other: tuple[int, int]) -> bool:
    return span != other and other[0] <= span[0] and span[1] <= other[1]


def read_table(part: Path, columns: Iterable[str], problems: list[str]) -> pa.Table | None:
    """Some columns of a Parquet file; None, and a line in `problems`, when it is cut short or is something else.

    A file that is gone was folded into a larger one by the run that writes the folder: no problem of the reader's.
    """
    try:
        return pq.ParquetFile(part).read(columns=list(columns)).select(list(columns))
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        problems.append(f"{part.parent.name}/{part.name} cannot be read and is left out ({_short(error)})")
        return None


def read_records(part: Path, wanted: set[str], problems: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The episodes named in `wanted` from one file, a few hundred rows in memory at a time, until all are found."""
    left = set(wanted)
    try:
        for batch in pq.ParquetFile(part).iter_batches(batch_size=256, columns=["episode", "record"]):
            for i, name in enumerate(batch.column("episode").to_pylist()):
                if name in left:
                    left.discard(name)
                    yield name, json.loads(batch.column("record")[i].as_py())
            if not left:
                return
    except FileNotFoundError:
        return
    except (*UNREADABLE, ValueError, TypeError) as error:
        problems.append(f"episodes in {part.parent.name}/{part.name} cannot be read ({_short(error)})")


def _metrics(path: Path, problems: list[str]) -> tuple[dict[str, Series], int]:
    """Every metric by key, and how many values are not finite."""
    found: dict[str, dict[int, float]] = {}
    not_finite = 0
    for part in parts(path / "metrics"):
        table = read_table(part, METRIC_COLUMNS, problems)
        if table is None:
            continue
        for step, key, value in zip(*(table.column(name).to_pylist() for name in METRIC_COLUMNS), strict=True):
            if step is None or key is None:
                continue
            number = math.nan if value is None else float(value)
            not_finite += not math.isfinite(number)
            found.setdefault(key, {})[step] = number
    series = {}
    for key, by_step in found.items():
        steps = tuple(sorted(by_step))
        series[key] = Series(steps=steps, values=tuple(by_step[step] for step in steps))
    return series, not_finite


def _roles(
    path: Path, summary: Mapping[str, Any], before: Mapping[str, Any] | None, problems: list[str]
) -> dict[str, str]:
    """Roles and their policies, in the order of the workflow: from the summary, else from the first evaluation and
    the newest episodes of a run that has none yet."""
    table = mapping(summary.get("roles_to_policies"))
    if table:
        return {str(role): str(policy) for role, policy in table.items()}
    roles = dict.fromkeys(mapping(mapping(mapping(before).get("sampled")).get("roles")), "")
    for part in reversed(parts(path / "episodes")):
        newest = read_table(part, ["episode"], problems)
        if newest is None:
            continue
        for _, record in read_records(part, set(newest.column("episode").to_pylist()[:64]), problems):
            for turn in turns_of(record):
                roles[str(turn["key"][0])] = str(turn.get("policy", ""))
        break
    return roles


def turns_of(record: Any, kind: str = "turns") -> list[dict[str, Any]]:
    """The turns of a stored episode; those that are not turns (another version wrote them) are left out."""
    turns = mapping(mapping(mapping(record).get("graded")).get("episode")).get(kind)
    return [turn for turn in turns if _is_turn(turn)] if isinstance(turns, list) else []


def context_of(record: Any) -> list[dict[str, Any]]:
    """The turns before a candidate of agentic groups on its path: each is counted as a candidate of its own."""
    return turns_of(record, "context")


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, dict) and isinstance(turn.get("key"), list) and len(turn["key"]) == 3


def _short(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:160] or type(error).__name__
