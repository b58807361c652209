"""The simulator's benchmarks, small: a fit gives back what it was fitted on, and the bound is not beaten."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


def small(ulorl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TASKS": 16, "ROWS": 128, "ENGINES": 2, "STEPS": 24}.items():
        monkeypatch.setattr(ulorl, name, value)


def shape(ulorl: ModuleType, **changes: object) -> object:
    settings = {
        "mean": 16000,
        "sigma": 0.9,
        "tail_index": None,
        "batch_cost": 0.25,
        "prompt_cost": 0.0,
        "slots": 2.0,
        "same_batch": False,
    }
    return ulorl.Shape(**{**settings, **changes})


@pytest.mark.parametrize("changes", [{}, {"slots": 1.0, "prompt_cost": 0.002}, {"same_batch": True, "tail_index": 1.5}])
def test_a_fit_simulated_again_takes_the_measured_time(load, monkeypatch: pytest.MonkeyPatch, changes):
    ulorl = load("simulator_ulorl")
    small(ulorl, monkeypatch)
    one = shape(ulorl, **changes)
    found = ulorl.fit(one)
    steps = {1: 1240.0, 2: 774.0, 4: found.four_s}
    for segments, seconds in steps.items():
        again, _ = ulorl.simulate(one, segments, token_step_s=found.token_step_s, learn_s=found.learn_s)
        assert again == pytest.approx(seconds, rel=0.05)
    assert 1.5 < found.times_faster < 4


def test_the_benchmarks_have_the_figures_that_they_list(load, monkeypatch: pytest.MonkeyPatch):
    ulorl, bound = load("simulator_ulorl"), load("simulator_bound")
    small(ulorl, monkeypatch)
    few = {"MEANS": (16000,), "SPREADS": ((0.9, None),), "BATCH_COSTS": (0.25,), "PROMPT_COSTS": (0.0,), "STEPS": 3}
    for name, value in few.items():
        monkeypatch.setattr(ulorl, name, value)
    found = ulorl.run(1)
    assert set(found) == set(ulorl.FIGURES)
    assert found["fits"]["value"] + found["no_fit"]["value"] == 2 * 3
    for one in found.values():
        assert one["low"] <= one["value"] <= one["high"]
    place = "8_engines/7_to_1"
    names = [f"{place}/{name}" for name in (*bound.UPDATES, "staleness", "overlapped/0.5")]
    assert set(names) < set(bound.FIGURES)
    few = {"ENGINES": (8,), "RATIOS": (7,), "SHARES": (0.5,), "FIGURES": dict.fromkeys(names, "")}
    for name, value in few.items():
        monkeypatch.setattr(bound, name, value)
    found = bound.run(1)
    assert set(found) == set(names)
    assert found["8_engines/7_to_1/staleness"]["value"] <= 2


def test_the_lengths_of_a_shape_have_its_mean_under_the_limit(load):
    ulorl = load("simulator_ulorl")
    for one in (shape(ulorl), shape(ulorl, mean=20000, sigma=1.1), shape(ulorl, tail_index=1.5)):
        mean = ulorl.mean_tokens(ulorl.lengths(one), ulorl.LIMIT)
        assert mean == pytest.approx(one.mean, rel=0.01)


@pytest.mark.parametrize("ratio", [1, 7])
def test_the_overlapped_pipeline_is_near_the_bound_and_the_barrier_is_not(load, ratio: int):
    bound = load("simulator_bound")
    overlapped, staleness = bound.measure("overlapped", 4, ratio)
    barrier, fresh = bound.measure("barrier", 4, ratio)
    assert 1.0 <= overlapped.over_bound < 1.05
    assert staleness <= 2
    assert barrier.over_bound > 1.3
    assert fresh == 0


@pytest.mark.parametrize("name", ["barrier", "pipeline_segments"])
def test_in_ticks_the_number_of_learners_changes_no_tick(load, name: str):
    bound = load("simulator_bound")
    one, seven = bound.simulate(name, 4, 1), bound.simulate(name, 4, 4)
    for moved, simulated in zip(
        bound.with_learners(one.moments, bound.sized(4, 4).learners), seven.moments, strict=True
    ):
        assert moved.trained == simulated.trained
        assert moved.end_s == pytest.approx(simulated.end_s)
        assert moved.begin_s == pytest.approx(simulated.begin_s)
        assert moved.learners_s == pytest.approx(simulated.learners_s)


def test_the_scheduler_s_own_time_is_counted_by_event(load, monkeypatch: pytest.MonkeyPatch):
    events = load("simulator_events")
    found = events.measure(2)
    assert 0 < found["scheduler"] < found["simulation"]
    assert found["events"] > 300
    assert found["in_flight"] > 32
