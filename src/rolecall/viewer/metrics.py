"""The metrics of one run by key, read once a file and kept by the file's stamp."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from rolecall.viewer.arrays import floats, integers
from rolecall.viewer.parts import Part, Unreadable, read_columns, step_parts

Series = tuple[NDArray[np.int64], NDArray[np.float64]]
COLUMNS = ("step", "key", "value")


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """One file's rows by key, or the words of why there are none."""

    stamp: tuple[int, int]
    series: Mapping[str, Series]
    problem: str = ""


class Metrics:
    """All series of one run; `refresh` reads only files that are new or changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, Loaded] = {}
        self._order: list[Path] = []

    def refresh(self) -> None:
        """Look at the folder again; FileNotFoundError when a file vanished while it was read: look once more."""
        parts = step_parts(self.folder)
        files = {part.path: self._load(part) for part in parts}
        self._files, self._order = files, [part.path for part in parts]

    @property
    def problems(self) -> list[str]:
        return [loaded.problem for loaded in self._files.values() if loaded.problem]

    def names(self) -> list[str]:
        """Every key, in the order of its first appearance."""
        return list(dict.fromkeys(key for path in self._order for key in self._files[path].series))

    def series(self, key: str) -> Series:
        """Steps and values of one key, by step; of two values for one step the later file's counts."""
        found = [self._files[path].series[key] for path in self._order if key in self._files[path].series]
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.float64)
        steps = np.concatenate([steps for steps, _ in found])
        values = np.concatenate([values for _, values in found])
        steps, last = np.unique(steps[::-1], return_index=True)
        return steps, values[::-1][last]

    def at(self, step: int) -> dict[str, float]:
        """All values of one step."""
        found: dict[str, float] = {}
        for path in self._order:
            for key, (steps, values) in self._files[path].series.items():
                where = int(np.searchsorted(steps, step))
                if where < len(steps) and steps[where] == step:
                    found[key] = float(values[where])
        return found

    def _load(self, part: Part) -> Loaded:
        known = self._files.get(part.path)
        if known is not None and known.stamp == part.stamp:
            return known
        try:
            table = read_columns(part, COLUMNS)
        except Unreadable as error:
            return Loaded(stamp=part.stamp, series={}, problem=str(error))
        encoded = pc.dictionary_encode(table["key"].combine_chunks())
        codes, steps, values = integers(encoded.indices), integers(table["step"]), floats(table["value"])
        order = np.lexsort((steps, codes))
        codes, steps, values = codes[order], steps[order], values[order]
        names = encoded.dictionary.to_pylist()
        edges = np.searchsorted(codes, np.arange(len(names) + 1))
        return Loaded(
            stamp=part.stamp,
            series={n: (steps[a:b], values[a:b]) for n, a, b in zip(names, edges[:-1], edges[1:], strict=True)},
        )


def thinned(series: Series, points: int) -> tuple[list[int], list[float | None]]:
    """A series of at most about `points` points that keeps the first, the last, and each bucket's least and greatest
    value, so that no spike is lost. A value that is not finite becomes None."""
    steps, values = series
    if len(steps) > points:
        edges = np.linspace(0, len(steps), max(1, points // 2) + 1).astype(int)
        kept = {0, len(steps) - 1}
        for start, stop in itertools.pairwise(edges):
            bucket = np.where(np.isfinite(values[start:stop]), values[start:stop], 0.0)
            kept |= {int(start + np.argmin(bucket)), int(start + np.argmax(bucket))}
        chosen = np.array(sorted(kept))
        steps, values = steps[chosen], values[chosen]
    return [int(step) for step in steps], [finite(value) for value in values]


def finite(value: Any) -> float | None:
    """A float that JSON can hold: None instead of nan and infinities."""
    return float(value) if value is not None and math.isfinite(value) else None


def alarms(raised: object, metrics: Metrics) -> list[dict[str, Any]]:
    """The alarms of `alarms.json` in the words that the run printed; those whose kind still stands first, each with the
    last step in which it stood."""
    found = []
    active, _ = metrics.series("alarms/active")
    for alarm in raised if isinstance(raised, list) else []:
        if not isinstance(alarm, dict) or not {"key", "subject", "step", "text"} <= alarm.keys():
            continue  # another version wrote it
        steps, values = metrics.series(f"alarms/{alarm['key']}")
        last = int(steps[values > 0].max(initial=alarm["step"]))
        now = int(active.max(initial=last))
        found.append(
            {name: alarm[name] for name in ("key", "subject", "step", "text")}
            | {"last": last}
            | {"stands": last == now}
        )
    return sorted(found, key=lambda alarm: (not alarm["stands"], alarm["step"]))


def role_names(keys: Sequence[str], config: Mapping[str, Any], summary: Mapping[str, Any]) -> list[str]:
    """The roles of a run in the workflow's order: from the summary, else from what is measured and configured."""
    named = summary.get("roles_to_policies")
    if isinstance(named, dict) and named:
        return list(named)
    split = [key.split("/") for key in keys]
    measured = [p[1] for p in split if len(p) == 3 and p[0] == "behaviour" and p[2] == "truncated"]
    rewarded = [p[1] for p in split if len(p) == 3 and p[0] == "reward" and p[2] == "total"]
    return list(dict.fromkeys([*measured, *rewarded, *config.get("roles", {})]))


def policy_names(keys: Sequence[str]) -> list[str]:
    """The policies that a run measures."""
    split = [key.split("/") for key in keys]
    return list(dict.fromkeys(p[1] for p in split if len(p) == 3 and p[0] in ("policy", "learner")))
