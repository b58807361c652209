"""From the metrics of a run to what it did to each of its roles, for the map of a matrix."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from rolecall.report.map_data import RoleFigures
from rolecall.report.read import RunData, Series

START = 3
"""Measurements whose mean is a share's start, as for the alarm `role_leaks`."""


def role_figures(run: RunData) -> Mapping[str, RoleFigures]:
    """The figures of every trained role of a run, as far as the run has them."""
    return {role: _figures(run, role) for role in run.trained_roles}


def _figures(run: RunData, role: str) -> RoleFigures:
    others = [name for name in run.roles if name != role]
    alone = run.alone(role)
    masses = [] if alone else run.series(f"dynamics/{role}/mass_share").finite
    told_apart = _risen(run.series(f"behaviour/{role}/told_apart"))
    return RoleFigures(
        policy=run.roles[role],
        copies=bool(run.series(f"dynamics/{role}/copies")),
        turns=_ratio(run.series(f"behaviour/{role}/num_turns").finite, run.series("episodes/started").finite),
        optimizer_steps=run.series(f"dynamics/{role}/total_optimizer_steps").last,
        update_norm=run.series(f"dynamics/{role}/total_update_norm").last,
        kl_base=_mean(run.series(f"dynamics/{role}/kl_base").tail()),
        mass=_mean(masses),
        lost=-told_apart,
        formats=_by_other(run, f"behaviour/{role}/format", others),
        taken_for=_by_other(run, f"behaviour/{role}/taken_for", others),
    )


def _by_other(run: RunData, prefix: str, others: list[str]) -> Mapping[str, float]:
    risen = {other: _risen(run.series(f"{prefix}/{other}")) for other in others}
    return {other: value for other, value in risen.items() if math.isfinite(value)}


def _ratio(above: list[float], below: list[float]) -> float:
    return sum(above) / sum(below) if above and sum(below) > 0.0 else math.nan


def _mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _risen(series: Series) -> float:
    """The mean of the last quarter minus that of the first measurements; nan before there are enough for both."""
    finite = series.finite
    if len(finite) < 2 * START:
        return math.nan
    return statistics.fmean(series.tail()) - statistics.fmean(finite[:START])
