"""Decoupled PPO and truncated importance sampling: weights for what was sampled under another policy.

Expected numbers are worked out by hand, or by autograd on a loss that the test writes out itself.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_builders import (
    Tiny,
    advantages_of,
    autograd,
    evaluate,
    learner_with,
    log,
    logits_of,
    targets_of,
)

from learner_helpers import (
    gradient,
    make_sample,
    random_samples,
    relative_error,
)
from rolecall.algorithms.loss import Loss
from rolecall.learner.objective import Objective

SAMPLED, LAST, NOW = (0.5, 0.5, 0.2, 0.4), (0.4, 0.5, 0.6, 0.4), (0.6, 0.5, 0.6, 0.2)
"""w = last / sampled = 0.8, 1, 3, 1; r = now / last = 1.5, 1, 1, 0.5."""
FOUR = [make_sample([1], [2, 3, 4, 5], 2.0, logprobs=log(*SAMPLED).tolist())]
FOUR_WORSE = [make_sample([1], [2, 3, 4, 5], -2.0, logprobs=log(*SAMPLED).tolist())]


def test_decoupled_ppo_clips_around_the_start_of_the_update_and_weighs_by_what_was_sampled() -> None:
    """A = 2: min(r A, clip(r, 0.8, 1.28) A) = 2.56, 2, 2, 1; times w: 2.048, 2, 6, 1. Slopes -w r A, 0 where clipped.
    A = -2: r = 0.5 is clipped to 0.8, r = 1.5 is not: losses 2.4, 2, 6, 1.6."""
    loss = Loss(correction="decoupled")
    made, slope, metrics = evaluate(loss, FOUR, log(*NOW), last=log(*LAST))
    assert made.ratio_N.tolist() == pytest.approx([1.5, 1.0, 1.0, 0.5])
    assert made.loss_N.tolist() == pytest.approx([-2.048, -2.0, -6.0, -1.0])
    assert slope.tolist() == pytest.approx([0.0, -2.0, -6.0, -1.0])
    assert metrics["correction_mean"] == pytest.approx(5.8 / 4)
    assert metrics["dynamics/solver/correction_mean"] == pytest.approx(5.8 / 4)
    assert metrics["correction_max"] == pytest.approx(3.0)
    assert metrics["correction_capped"] == 0.0
    worse, _, _ = evaluate(loss, FOUR_WORSE, log(*NOW), last=log(*LAST))
    assert worse.loss_N.tolist() == pytest.approx([2.4, 2.0, 6.0, 1.6])


def test_a_cap_drops_tokens_under_decoupled_and_cuts_their_weight_under_truncated() -> None:
    """w = 0.8, 1, 3, 1 under a cap of 2: 0.8, 1, 0, 1 and 0.8, 1, 2, 1; the largest before the cap stays in sight."""
    dropped, slope, metrics = evaluate(
        Loss(correction="decoupled", correction_cap=2.0), FOUR, log(*NOW), last=log(*LAST)
    )
    assert dropped.loss_N.tolist() == pytest.approx([-2.048, -2.0, 0.0, -1.0])
    assert slope.tolist() == pytest.approx([0.0, -2.0, 0.0, -1.0])
    assert (metrics["correction_mean"], metrics["correction_capped"]) == (pytest.approx(0.7), 0.25)
    cut, slope, metrics = evaluate(Loss(correction="truncated"), FOUR, log(*NOW), last=log(*LAST))
    assert cut.loss_N.tolist() == pytest.approx([-2.048, -2.0, -4.0, -1.0])
    assert slope.tolist() == pytest.approx([0.0, -2.0, -4.0, -1.0])
    assert (metrics["correction_mean"], metrics["correction_max"]) == (pytest.approx(1.2), pytest.approx(3.0))
    assert metrics["dynamics/solver/correction_capped"] == metrics["correction_capped"] == 0.25
    tighter, _, _ = evaluate(Loss(correction="truncated", correction_cap=1.0), FOUR, log(*NOW), last=log(*LAST))
    assert tighter.loss_N.tolist() == pytest.approx([-2.048, -2.0, -2.0, -1.0])


@pytest.mark.parametrize("correction", ["decoupled", "truncated"])
@pytest.mark.parametrize("ratio", ["token", "turn", "one"])
def test_with_equal_policies_a_correction_is_the_plain_loss(correction: str, ratio: str) -> None:
    plain, plain_slope, _ = evaluate(Loss(ratio=ratio), FOUR, log(*SAMPLED))
    made, slope, metrics = evaluate(Loss(ratio=ratio, correction=correction), FOUR, log(*SAMPLED))
    assert made.loss_N.tolist() == pytest.approx(plain.loss_N.tolist())
    assert slope.tolist() == pytest.approx(plain_slope.tolist())
    assert metrics["correction_mean"] == pytest.approx(1.0)
    assert metrics["correction_capped"] == 0.0


def test_with_one_minibatch_the_start_of_the_update_is_the_present_and_carries_no_gradient() -> None:
    """now / sampled = 1.2, 1, 3, 0.5 is all weight, and r = 1: slopes -w A = -2.4, -2, -6, -1."""
    made, slope, _ = evaluate(Loss(correction="decoupled"), FOUR, log(*NOW))
    assert made.ratio_N.tolist() == [1.0] * 4
    assert slope.tolist() == pytest.approx([-2.4, -2.0, -6.0, -1.0])


def test_a_ratio_of_one_is_weighed_by_token_and_a_ratio_by_turn_by_turn() -> None:
    """By turn: w = (0.8 * 1 * 3 * 1)^(1/4) = 1.24467, r = (1.5 * 0.5)^(1/4) = 0.93060, each the same for all tokens."""
    one, slope, _ = evaluate(Loss(ratio="one", correction="truncated"), FOUR, log(*NOW), last=log(*LAST))
    assert one.loss_N.tolist() == pytest.approx([-1.6, -2.0, -4.0, -2.0])
    assert slope.tolist() == pytest.approx([-1.6, -2.0, -4.0, -2.0])
    turn, slope, metrics = evaluate(Loss(ratio="turn", correction="decoupled"), FOUR, log(*NOW), last=log(*LAST))
    weight, ratio = 2.4**0.25, 0.75**0.25
    assert (weight, ratio) == (pytest.approx(1.24467, abs=1e-5), pytest.approx(0.93060, abs=1e-5))
    assert turn.loss_N.tolist() == pytest.approx([-2.0 * weight * ratio] * 4)
    assert slope.tolist() == pytest.approx([-2.0 * weight * ratio] * 4)
    assert metrics["correction_max"] == pytest.approx(weight)


def test_a_correction_and_the_mask_work_together() -> None:
    loss = Loss(ratio="one", correction="truncated", mask_mastered=True, mastered_tau=0.55)
    made, slope, _ = evaluate(loss, FOUR, log(*NOW), last=log(*LAST))
    assert made.mastered_N is not None
    assert made.mastered_N.tolist() == [True, False, True, False]
    assert slope.tolist() == pytest.approx([0.0, -2.0, 0.0, -2.0])


def test_extreme_weights_stay_finite() -> None:
    sample = [make_sample([1], [2, 3], 1.0, logprobs=(-900.0, 0.0))]
    now = torch.tensor([0.0, -900.0])
    for correction in ("decoupled", "truncated"):
        made, slope, _ = evaluate(Loss(correction=correction), sample, now)
        assert torch.isfinite(made.loss_N).all()
        assert torch.isfinite(slope).all()


@pytest.mark.parametrize("minibatches", [1, 2])
def test_the_learner_keeps_the_start_of_the_update_for_every_minibatch(tiny_model: Tiny, minibatches: int) -> None:
    """Weights are last / sampled with the last of before the first optimizer step, whatever steps were made since."""
    loss = Loss(correction="truncated", correction_cap=1.5)
    learner = learner_with(tiny_model, loss, minibatches=minibatches, lr=0.05)
    samples = [replace(s, logprobs=tuple(-5.0 if p else 0.0 for p in s.logprobs)) for s in random_samples(8)]
    weights = []
    for sample in samples:
        logprobs = logits_of(learner, sample).gather(1, targets_of(sample)[:, None])[:, 0].detach()
        weights.append((logprobs + 5.0).exp().clamp(max=1.5))  # every token was sampled at a log-probability of -5
    wanted = torch.cat(weights)
    report = learner.update(samples)
    assert report.steps == minibatches
    assert report.metrics["learner/team/correction_mean"] == pytest.approx(wanted.mean().item(), rel=1e-5)
    capped = float((wanted == 1.5).float().mean())
    assert 0.0 < capped < 1.0
    assert report.metrics["learner/team/correction_capped"] == pytest.approx(capped)
    assert (report.metrics["learner/team/ratio_max_deviation"] > 1e-3) == (minibatches == 2)


def test_the_corrected_gradient_is_that_of_a_loss_written_out(tiny_model: Tiny) -> None:
    learner = learner_with(tiny_model, Loss(correction="truncated"))
    samples = [replace(s, logprobs=tuple(-5.0 if p else 0.0 for p in s.logprobs)) for s in random_samples(5)]
    total, value = sum(sample.num_trained for sample in samples), torch.zeros(())
    for sample in samples:
        logprobs = logits_of(learner, sample).gather(1, targets_of(sample)[:, None])[:, 0]
        weight = (logprobs.detach() + 5.0).exp().clamp(max=2.0)
        value = value - (weight * advantages_of(sample) * logprobs).sum() / total
    assert relative_error(gradient(learner, samples), autograd(learner, value)) < 1e-5


@given(
    st.lists(st.tuples(*(st.floats(0.01, 1.0),) * 3, st.floats(-2.0, 2.0)), min_size=1, max_size=8),
    st.floats(1.0, 5.0),
)
@settings(deadline=None, max_examples=60)
def test_no_correction_weighs_more_than_its_cap_and_dropping_is_never_above_cutting(rows, cap: float) -> None:
    sampled, last, now, advantages = (list(column) for column in zip(*rows, strict=True))
    samples = [
        make_sample([1], [2], a, episode=str(i), logprobs=[math.log(p)])
        for i, (a, p) in enumerate(zip(advantages, sampled, strict=True))
    ]
    found = {}
    for correction in ("decoupled", "truncated"):
        loss = Loss(correction=correction, correction_cap=cap)
        made, _, metrics = evaluate(loss, samples, log(*now), last=log(*last))
        assert made.correction_N is not None
        applied = Objective(loss=loss).applied(made.correction_N)
        assert float(applied.max()) <= cap * (1 + 1e-6)
        assert metrics["correction_capped"] == pytest.approx(float((made.correction_N > cap).float().mean()))
        found[correction] = applied
    assert bool((found["decoupled"] <= found["truncated"]).all())
