"""Copies of a role: amplification by hand and in the learner, its control, and an update that does not notice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from learner_helpers import adapter_spec, identical, learner_of, make_sample, model_spec, random_samples, snapshot
from rolecall.dynamics.formulas import amplification, copy_metrics, mean_cosine, total_norm
from rolecall.dynamics.monitor import DynamicsMonitor
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.errors import ConfigError
from rolecall.learner import learner as learner_module
from rolecall.learner.config import LearnerConfig
from rolecall.learner.copies import CopyGrams, copy_gradients, relabelled
from rolecall.learner.learner import Learner
from rolecall.learner.packing import Weighted
from rolecall.records import Sample

Tiny = Callable[..., str]
EVERY_STEP = DynamicsSettings(copies_every_steps=1)


def gram_of(*vectors: Sequence[float]) -> list[list[float]]:
    return [[sum(a * b for a, b in zip(x, y, strict=True)) for y in vectors] for x in vectors]


def test_amplification_is_the_number_of_copies_when_they_are_equal_and_its_root_when_they_are_orthogonal() -> None:
    assert amplification(gram_of([3, 4], [3, 4], [3, 4])) == pytest.approx(3.0)
    assert amplification(gram_of([2, 0, 0], [0, 2, 0], [0, 0, 2])) == pytest.approx(math.sqrt(3.0))
    assert amplification(gram_of([1, 0], [-1, 0])) == 0.0
    # norms 3 and 1 at a right angle: sqrt(10) over a mean of 2
    assert amplification(gram_of([3, 0], [0, 1])) == pytest.approx(math.sqrt(10.0) / 2.0)
    assert mean_cosine(gram_of([1, 0], [1, 1], [0, 1])) == pytest.approx(2 * math.sqrt(0.5) / 3)


def test_with_equal_norms_amplification_and_mean_cosine_say_the_same() -> None:
    angle = 0.7
    gram = gram_of([1, 0], [math.cos(angle), math.sin(angle)], [math.cos(2 * angle), math.sin(2 * angle)])
    assert amplification(gram) ** 2 == pytest.approx(3 * (1 + 2 * mean_cosine(gram)))


def rows_of(copies: int, units: int, role: str = "voter") -> list[Weighted]:
    """One row a trajectory; its advantage is its number."""
    samples = [
        make_sample([1], [2], float(number), role=role, copy=copy, episode=f"e{number}")
        for number in range(units)
        for copy in range(copies)
    ]
    return [Weighted(sample=s, weights=(1.0,), number=i) for i, s in enumerate(samples)]


def by_vectors(
    parameter: nn.Parameter, vector: Callable[[Sample], torch.Tensor]
) -> Callable[[Sequence[Weighted]], None]:
    """A backward pass in which each row's gradient is the vector given."""

    def backward(rows: Sequence[Weighted]) -> None:
        for row in rows:
            (parameter * vector(row.sample)).sum().backward()

    return backward


def independent(size: int) -> Callable[[Sample], torch.Tensor]:
    drawn: dict[Any, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    return lambda sample: drawn.setdefault((sample.episode_id, sample.copy), torch.randn(size, generator=generator))


def test_identical_copies_amplify_by_their_number_and_independent_ones_by_about_its_root() -> None:
    parameter = nn.Parameter(torch.zeros(20_000))
    rows = rows_of(4, 6)
    same = {f"e{i}": torch.randn(20_000, generator=torch.Generator().manual_seed(i)) for i in range(6)}
    equal = copy_gradients(rows, rows, [parameter], by_vectors(parameter, lambda s: same[s.episode_id]), seed=0, step=1)
    assert amplification(equal["voter"].true) == pytest.approx(4.0, rel=1e-5)
    # dealt at random, a copy holds some episodes twice and others not at all: less alike than the copies were
    assert 2.0 < amplification(equal["voter"].control) < 3.9
    apart = copy_gradients(rows, rows, [parameter], by_vectors(parameter, independent(20_000)), seed=0, step=1)
    for gram in (apart["voter"].true, apart["voter"].control):
        assert amplification(gram) == pytest.approx(2.0, rel=0.03)
        assert mean_cosine(gram) == pytest.approx(0.0, abs=0.03)
    assert parameter.grad is None
    assert (len(apart["voter"].true), apart["voter"].units) == (4, 24)


def test_a_signal_in_every_row_amplifies_the_more_the_larger_the_batch() -> None:
    parameter = nn.Parameter(torch.zeros(5_000))
    signal = torch.ones(5_000) * 0.3
    seen = []
    for units in (2, 64):
        noise, rows = independent(5_000), rows_of(3, units)
        pull = by_vectors(parameter, lambda s, noise=noise: noise(s) + signal)
        found = copy_gradients(rows, rows, [parameter], pull, seed=0, step=1)["voter"]
        seen.append((amplification(found.true), amplification(found.control)))
    assert seen[0][0] < 2.2 < 2.7 < seen[1][0]
    assert seen[1][1] == pytest.approx(seen[1][0], rel=0.02)  # the control tells this from copies that are alike


def test_copies_that_pull_apart_cancel_and_their_control_does_not() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    rows = rows_of(2, 40)
    towards = torch.tensor([1.0, 2.0, 2.0])
    pull = by_vectors(parameter, lambda s: towards if s.copy else -towards)
    found = copy_gradients(rows, rows, [parameter], pull, seed=0, step=1)["voter"]
    assert amplification(found.true) == pytest.approx(0.0, abs=1e-6)
    assert found.true[0][0] == pytest.approx((40 * 3.0) ** 2)
    assert found.control[0][0] < 0.3 * found.true[0][0]


def test_relabelling_keeps_the_sizes_of_the_copies_and_depends_on_nothing_but_its_draws() -> None:
    samples = [row.sample for row in rows_of(3, 10)][:-2]  # copies of 10, 9 and 9
    labels = relabelled(samples, seed=1, step=2)
    assert [list(labels.values()).count(copy) for copy in range(3)] == [10, 9, 9]
    assert labels == relabelled(samples[::-1], seed=1, step=2)
    assert labels != relabelled(samples, seed=1, step=3)
    assert labels != relabelled(samples, seed=2, step=2)
    assert 0 < sum(label == copy for (_, _, copy), label in labels.items()) < 20


def test_the_samples_of_one_trajectory_stay_together() -> None:
    samples = [
        make_sample([1], [token], 1.0, role="voter", copy=copy, episode=f"e{number}")
        for number in range(4)
        for copy in range(2)
        for token in (5, 6)
    ]
    assert len(relabelled(samples, 0, 1)) == 8


def test_a_step_in_which_a_copy_has_no_gradient_has_no_figures_of_copies() -> None:
    """Two equal gradients beside one of 0 would give 2 g over a mean of 2/3 g: 3, as if all three pulled one way."""
    parameter = nn.Parameter(torch.zeros(2))
    rows = rows_of(3, 2)
    same = by_vectors(parameter, lambda s: torch.tensor([1.0, 1.0]))
    assert copy_gradients(rows, [row for row in rows if row.sample.copy < 2], [parameter], same, seed=0, step=1) == {}
    found = copy_gradients(rows, rows, [parameter], same, seed=0, step=1)["voter"]
    figures = copy_metrics("voter", found.true, found.control, found.units)
    assert figures == {
        "dynamics/voter/copies": 3.0,
        "dynamics/voter/copy_units": 6.0,
        "dynamics/voter/amplification": pytest.approx(3.0),
        "dynamics/voter/amplification_control": pytest.approx(3.0),
        "dynamics/voter/copy_cosine": pytest.approx(1.0),
        "dynamics/voter/copy_cosine_control": pytest.approx(1.0),
    }


def team(folder: str, kind: Callable[..., object], settings: DynamicsSettings, **knobs: object) -> Learner:
    learner = learner_of(kind("team", folder), LearnerConfig(lr=1e-3, max_grad_norm=0.1, **knobs))  # type: ignore[arg-type]
    learner.watch_with(settings)
    return learner


def voting(seed: int = 0, *, alike: bool = False) -> list[Sample]:
    """Voters of three copies, and an aggregator; with `alike` the copies of an episode say the same."""
    drawn = random_samples(18, roles=("voter",), seed=seed)
    voters = [replace(s, copy=i % 3, episode_id=f"e{i // 3}") for i, s in enumerate(drawn)]
    if alike:
        voters = [replace(voters[i - i % 3], copy=i % 3, episode_id=f"e{i // 3}") for i in range(18)]
    return [*voters, *random_samples(6, roles=("aggregator",), seed=seed + 100)]


@pytest.mark.parametrize("kind", [model_spec, adapter_spec], ids=["model", "adapter"])
def test_the_gradients_of_copies_and_of_their_control_add_up_to_the_roles(
    tiny_model: Tiny, kind: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, CopyGrams]] = []

    def noted(*args: Any, **kwargs: Any) -> dict[str, CopyGrams]:
        seen.append(copy_gradients(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(learner_module, "copy_gradients", noted)
    metrics = team(tiny_model(), kind, EVERY_STEP).update(voting(), 1).metrics
    [found] = seen
    assert list(found) == ["voter"]
    for gram in (found["voter"].true, found["voter"].control):
        assert total_norm(gram) == pytest.approx(metrics["dynamics/voter/grad_norm"], rel=1e-4)
    assert 0.0 < metrics["dynamics/voter/amplification"] < 3.0
    assert metrics["dynamics/voter/copies"] == 3.0
    assert metrics["dynamics/voter/copy_units"] == 18.0
    assert "dynamics/aggregator/amplification" not in metrics


def test_copies_that_say_the_same_amplify_by_their_number_in_shared_and_in_isolated_mode(tiny_model: Tiny) -> None:
    folder = tiny_model()
    shared = team(folder, model_spec, EVERY_STEP).update(voting(alike=True), 1).metrics
    alone = [s for s in voting(alike=True) if s.role == "voter"]
    isolated = team(folder, model_spec, EVERY_STEP).update(alone, 1).metrics
    for metrics in (shared, isolated):
        assert metrics["dynamics/voter/amplification"] == pytest.approx(3.0, rel=1e-4)
        assert metrics["dynamics/voter/copy_cosine"] == pytest.approx(1.0, rel=1e-4)
        assert metrics["dynamics/voter/amplification_control"] < metrics["dynamics/voter/amplification"] - 0.01


@pytest.mark.parametrize("kind", [model_spec, adapter_spec], ids=["model", "adapter"])
def test_weights_and_all_other_figures_are_the_same_bit_for_bit_with_and_without_copies(
    tiny_model: Tiny, kind: Callable[..., object]
) -> None:
    ends = []
    for settings in (EVERY_STEP, DynamicsSettings(copies_every_steps=0)):
        learner = team(tiny_model(), kind, settings, minibatches=2)
        found = [learner.update(voting(step), step).metrics for step in (1, 2)]
        ends.append((snapshot(learner), found))
    (weights, on), (others, off) = ends
    assert identical(weights, others)
    for mine, its in zip(on, off, strict=True):
        added = mine.keys() - its.keys()
        assert {key.split("/")[1] for key in added} == {"voter"}
        assert len(added) == 6
        assert {key: mine[key] for key in its} == its


def test_copies_are_measured_in_due_steps_only_and_their_cost_is_told(tiny_model: Tiny) -> None:
    settings = DynamicsSettings(copies_every_steps=3, probe_every_steps=0)
    learner = team(tiny_model(), model_spec, settings)
    monitor = DynamicsMonitor({"team": learner}, {"voter": "team", "aggregator": "team"}, settings)
    due, costs = [], []
    for step in range(1, 5):
        monitor.before_update(step, [])
        due.append("dynamics/voter/amplification" in learner.update(voting(step), step).metrics)
        costs.append(monitor.after_update(step).get("time/copies_s", 0.0))
    assert due == [True, False, True, False]
    assert [cost > 0.0 for cost in costs] == due
    assert not DynamicsSettings(gradients=False).copies_due(1)
    with pytest.raises(ConfigError, match="copies_every_steps is -1"):
        DynamicsSettings(copies_every_steps=-1)


def test_idle_rows_take_no_pass_for_the_copies_either(tiny_model: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = voting()
    quiet = [
        replace(s, spans=tuple(replace(x, advantage=0.0) for x in s.spans)) if s.episode_id in ("e0", "e1") else s
        for s in samples
    ]
    learner = team(tiny_model(), model_spec, EVERY_STEP, microbatch_tokens=1)
    passes: list[int] = []
    real = learner._loss
    monkeypatch.setattr(learner, "_loss", lambda *args: passes.append(1) or real(*args))
    metrics = learner.update(quiet, 1).metrics
    trained = [s for s in quiet if any(span.advantage for span in s.spans)]
    assert len(passes) == len(trained) + sum(s.role == "voter" for s in trained)
    assert metrics["dynamics/voter/copy_units"] == 18.0
