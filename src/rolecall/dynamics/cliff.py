"""Accuracy that peaks and then falls for good: from the validations of a run to a verdict. Plain numbers, no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from rolecall import intervals

WINDOW = 2
"""Validations in a row whose mean is one point of the smoothed curve: a lucky validation alone is no peak, and an
unlucky one alone is no fall."""

LEAST_FALL = 0.05
"""Falls below this are no cliff, however narrow the interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One validation of the team: its mean in [low, high], after `step` (0: before training).

    >>> Measured(step=10, mean=0.5, low=0.4, high=0.6).mean
    0.5
    """

    step: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Cliff:
    """Where a curve of validations stands. `peak` and `last` are smoothed; `peak_step` is the last step of the peak's
    window. `fall` = peak - last; `width`: how far apart two such figures may be by chance (95 %). `relative`: the
    share of what was gained over `base` that the fall has lost (nan: no base, or nothing gained). `base`: the
    validation before training (nan: none), and `base_width` the width of last against base."""

    peak: float
    peak_step: int
    last: float
    fall: float
    width: float
    relative: float
    base: float
    base_width: float

    @property
    def fell(self) -> bool:
        """At least `LEAST_FALL` below the peak, and outside the interval."""
        return self.fall >= LEAST_FALL and self.fall > self.width

    @property
    def below_base(self) -> bool:
        """Below where training began, by however little: the label of a finished run."""
        return self.last < self.base

    @property
    def lost(self) -> bool:
        """Below where training began by more than the interval."""
        return self.base - self.last > self.base_width

    @property
    def is_cliff(self) -> bool:
        """The label of a run: it fell from its peak, or ended below where it began."""
        return self.fell or self.below_base

    @property
    def acts(self) -> bool:
        """Whether the guard acts while the run goes on: as the label, but chance alone must not explain it. (A run that
        has learned nothing yet is below its base half of the time.)"""
        return self.fell or self.lost

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON; nan is null."""
        figures = asdict(self) | {"cliff": self.is_cliff, "fell": self.fell, "below_base": self.below_base}
        return {name: None if value != value else value for name, value in figures.items()}


def smoothed(curve: Sequence[Measured], window: int = WINDOW) -> list[Measured]:
    """Means of `window` validations in a row, named by the last of them; [] while there are fewer.

    The bounds are the means of the bounds. Validations of one run share their tasks, so that their errors are largely
    the same: the interval is that of one validation, and no narrower.

    >>> points = [Measured(step=s, mean=m, low=m - 0.25, high=m + 0.25) for s, m in ((0, 0.25), (5, 0.75))]
    >>> smoothed(points)
    [Measured(step=5, mean=0.5, low=0.25, high=0.75)]
    """
    return [
        Measured(
            step=part[-1].step,
            mean=_mean(one.mean for one in part),
            low=_mean(one.low for one in part),
            high=_mean(one.high for one in part),
        )
        for part in (curve[end - window : end] for end in range(window, len(curve) + 1))
    ]


def difference_width(high: Measured, low: Measured) -> float:
    """By how much `high` may stand above `low` by chance (`intervals.difference_width`). Validations are of the same
    tasks and differ by less than independent samples, so that it is on the safe side.

    >>> difference_width(Measured(step=1, mean=0.75, low=0.45, high=0.8), Measured(step=2, mean=0.5, low=0.3, high=0.9))
    0.5
    """
    return intervals.difference_width(high.mean, high.low, low.mean, low.high)


def find_cliff(curve: Iterable[Measured], window: int = WINDOW) -> Cliff | None:
    """Peak, last and fall of a curve in order of step; None before `window` validations with a finite mean.

    peak = max over the smoothed curve (the first of equals); last = its last point; a validation of step 0 is the base
    and part of the curve. relative = fall / (peak - base).
    """
    points = [one for one in curve if math.isfinite(one.mean)]
    line = smoothed(points, window)
    if not line:
        return None
    peak, last = max(line, key=lambda one: one.mean), line[-1]
    base = points[0] if points[0].step == 0 else None
    gained = peak.mean - base.mean if base is not None else math.nan
    fall = peak.mean - last.mean
    return Cliff(
        peak=peak.mean,
        peak_step=peak.step,
        last=last.mean,
        fall=fall,
        width=difference_width(peak, last),
        relative=fall / gained if gained > 0.0 else math.nan,
        base=base.mean if base is not None else math.nan,
        base_width=difference_width(base, last) if base is not None else math.nan,
    )


def fall_step(curve: Sequence[Measured], window: int = WINDOW) -> int | None:
    """The step at which a run first fell (`Cliff.fell`), watched as it went; None when it never did."""
    for end in range(window, len(curve) + 1):
        found = find_cliff(curve[:end], window)
        if found is not None and found.fell:
            return curve[end - 1].step
    return None


def curve_of(rows: Iterable[tuple[int, str, float]]) -> list[Measured]:
    """The validations in the metric rows (step, key, value) of a run, in order of step."""
    keys = {"validation/team": "mean", "validation/team_low": "low", "validation/team_high": "high"}
    found: dict[int, dict[str, float]] = {}
    for step, key, value in rows:
        if key in keys:
            found.setdefault(step, {})[keys[key]] = value
    return [Measured(step=step, **found[step]) for step in sorted(found) if len(found[step]) == len(keys)]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)
