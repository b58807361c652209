"""Peaks, falls and their intervals: every number is worked out by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

import pytest

from rolecall.cliff_guard import CliffGuard
from rolecall.config import EvaluationConfig
from rolecall.dynamics.cliff import Cliff, Measured, curve_of, difference_width, fall_step, find_cliff, smoothed
from rolecall.intervals import EMPTY, Estimate
from rolecall.run_state import Checkpoints, Totals


def curve(*means: float, half: float = 0.03, every: int = 10, first: int = 0) -> list[Measured]:
    return [Measured(step=first + every * i, mean=m, low=m - half, high=m + half) for i, m in enumerate(means)]


def found(points: Sequence[Measured]) -> Cliff:
    cliff = find_cliff(points)
    assert cliff is not None
    return cliff


def test_a_point_of_the_smoothed_curve_is_the_mean_of_two_validations_with_the_interval_of_one() -> None:
    assert smoothed(curve(0.5, 0.75, 0.25, half=0.125)) == [
        Measured(step=10, mean=0.625, low=0.5, high=0.75),
        Measured(step=20, mean=0.5, low=0.375, high=0.625),
    ]
    assert smoothed(curve(0.5)) == []
    assert find_cliff(curve(0.5)) is None


def test_peak_last_and_fall_are_of_the_smoothed_curve() -> None:
    # smoothed: 0.5, 0.7, 0.75, 0.6, 0.4; peak 0.75 at 30, last 0.4, gained 0.75 - 0.4
    cliff = found(curve(0.4, 0.6, 0.8, 0.7, 0.5, 0.3))
    assert (cliff.peak, cliff.peak_step, cliff.base) == (0.75, 30, 0.4)
    assert cliff.last == pytest.approx(0.4)
    assert cliff.fall == pytest.approx(0.35)
    assert cliff.relative == pytest.approx(1.0)
    assert cliff.width == pytest.approx(0.03 * math.sqrt(2))
    assert cliff.fell
    assert cliff.is_cliff
    assert cliff.acts


def test_the_width_takes_the_lower_side_of_the_peak_and_the_upper_side_of_the_last() -> None:
    high = Measured(step=1, mean=0.8, low=0.77, high=0.99)
    low = Measured(step=2, mean=0.6, low=0.1, high=0.64)
    assert difference_width(high, low) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("means", "half", "fell"),
    [
        ((0.5, 0.8, 0.8, 0.74, 0.74), 0.03, True),  # 0.06 below, width 0.042
        ((0.5, 0.8, 0.8, 0.74, 0.74), 0.05, False),  # 0.06 below, width 0.071: chance
        ((0.5, 0.8, 0.8, 0.76, 0.76), 0.001, False),  # 0.04 below, certain, and too small
        ((0.5, 0.8, 0.8, 0.8, 0.72), 0.03, False),  # one validation alone: 0.04 below
        ((0.5, 0.6, 0.7, 0.8, 0.9), 0.001, False),  # rises
    ],
)
def test_a_fall_is_five_points_and_outside_the_interval(means: tuple[float, ...], half: float, fell: bool) -> None:
    assert found(curve(*means, half=half)).fell is fell


def test_a_run_that_ends_below_its_base_is_a_cliff_and_the_guard_acts_only_when_it_is_certain() -> None:
    slight = found(curve(0.5, 0.48, 0.48))  # 0.02 below, width 0.042
    assert slight.is_cliff
    assert not slight.fell
    assert not slight.acts
    sure = found(curve(0.5, 0.44, 0.44))  # 0.06 below the base; smoothed peak 0.47 is 0.03 above
    assert sure.is_cliff
    assert not sure.fell
    assert sure.lost
    assert sure.acts


def test_without_a_validation_before_training_there_is_no_base() -> None:
    cliff = found(curve(0.5, 0.4, 0.2, first=10))
    assert math.isnan(cliff.base)
    assert math.isnan(cliff.relative)
    assert not cliff.below_base
    assert not cliff.lost
    assert cliff.fell
    assert cliff.to_dict()["base"] is None
    assert cliff.to_dict()["cliff"] is True


def test_a_run_that_gained_nothing_has_no_relative_fall() -> None:
    assert math.isnan(found(curve(0.5, 0.5, 0.3)).relative)  # peak 0.5 is the base


def test_validations_without_a_figure_are_left_out() -> None:
    points = [*curve(0.5, 0.7), Measured(step=20, mean=math.nan, low=math.nan, high=math.nan)]
    assert found(points) == found(curve(0.5, 0.7))


def test_the_step_of_the_fall_is_the_first_validation_at_which_it_was_seen() -> None:
    assert fall_step(curve(0.5, 0.8, 0.8, 0.7, 0.7, 0.9, 0.9)) == 30  # smoothed 0.75 is 0.05 below 0.8
    assert fall_step(curve(0.5, 0.6, 0.7, 0.7)) is None


def test_a_curve_is_read_from_metric_rows_and_half_measured_steps_do_not_count() -> None:
    rows = [(5, "validation/team", 0.5), (5, "validation/team_low", 0.4), (0, "validation/team", 0.25)]
    rows += [(0, "validation/team_low", 0.125), (0, "validation/team_high", 0.5), (0, "reward/team", 9.0)]
    assert curve_of(rows) == [Measured(step=0, mean=0.25, low=0.125, high=0.5)]


def test_a_validation_in_which_nothing_was_graded_changes_nothing_for_the_guard() -> None:
    # smoothed: 0.8, 0.45, 0.5; the newest is the best so far, so that the guard holds still although it is far below
    guard = CliffGuard(settings=EvaluationConfig(on_cliff="stop"), checkpoints=cast(Checkpoints, None))
    totals = Totals()
    for step, mean in enumerate((0.8, 0.8, 0.1, 0.9)):
        guard.note(totals, step, Estimate(mean=mean, low=mean - 0.02, high=mean + 0.02, n=9, num_tasks=9), is_best=True)
    assert not totals.fallen
    assert guard.note(totals, 4, EMPTY, is_best=False) == {}
    assert (totals.fallen, guard.stops(totals), len(totals.curve)) == (False, False, 4)
    assert json.loads(json.dumps(asdict(totals), allow_nan=False))["curve"][3][0] == 3
