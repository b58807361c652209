"""Curves before they are drawn: thinning, scales and ticks. Pure functions on numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rolecall.report.read import Series

MAX_POINTS = 160
SMALLEST = 1e-200


@dataclass(frozen=True, kw_only=True, slots=True)
class Thin:
    """A curve of at most so many points. Each point is the mean of `width` steps, from `low` to `high`; with
    `width` 1 nothing was thinned. A value is None where no step of the point has a finite one.
    """

    steps: tuple[float, ...]
    means: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]
    width: int


def thin(series: Series, limit: int = MAX_POINTS) -> Thin:
    """Means of equally many steps in a row, so that a long curve stays small and no spike disappears from its band.

    >>> thin(Series(steps=(1, 2, 3, 4), values=(0.0, 1.0, 2.0, 4.0)), limit=2).means
    (0.5, 3.0)
    """
    width = max(1, math.ceil(len(series.steps) / limit))
    steps: list[float] = []
    figures: list[tuple[float | None, float | None, float | None]] = []
    for start in range(0, len(series.steps), width):
        window = series.steps[start : start + width]
        finite = [value for value in series.values[start : start + width] if math.isfinite(value)]
        steps.append((window[0] + window[-1]) / 2)
        figures.append((sum(finite) / len(finite), min(finite), max(finite)) if finite else (None, None, None))
    means, lows, highs = (tuple(column) for column in zip(*figures, strict=True)) if figures else ((), (), ())
    return Thin(steps=tuple(steps), means=means, lows=lows, highs=highs, width=width)


def nice_step(span: float, wanted: int = 4) -> float:
    """A step of 1, 2, 2.5 or 5 times a power of ten that divides `span` into about `wanted` parts."""
    raw = span / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)


def scale(values: Iterable[float | None], kind: str) -> tuple[float, float]:
    """The range of an axis. Rates start at 0 and end at 100 % unless all are small; cosines are symmetric about 0;
    other figures include 0 when they are not negative."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if kind == "rate" and low >= 0 and high <= 1:
        return (0.0, 1.0) if high > 0.4 else (0.0, _round_up(max(high, 0.01)))
    if kind == "cosine":
        bound = 1.0 if max(abs(low), abs(high)) > 0.5 else 0.5
        return -bound, bound
    low = min(0.0, low)
    if high - low < max(SMALLEST, 1e-9 * abs(low)):
        high = 0.0 if low < -SMALLEST else low + 1.0
    step = nice_step(high - low)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _round_up(value: float) -> float:
    step = nice_step(value)
    return math.ceil(value / step - 1e-9) * step


def ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    step = nice_step(high - low, wanted)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [0.0 if i == 0 else i * step for i in range(first, last + 1)]


def step_ticks(first: int, last: int) -> list[int]:
    """Whole steps for the horizontal axis; the first and the last step are always there."""
    if last <= first:
        return [first]
    step = max(1, round(nice_step(last - first, 4)))
    start = math.ceil(first / step) * step
    inner = [tick for tick in range(start, last, step) if min(tick - first, last - tick) >= 0.5 * step]
    return [first, *inner, last]
