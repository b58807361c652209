"""Expected numbers are worked out by hand from the formulas in the docstrings."""

from __future__ import annotations

import math

import pytest
import torch

from rolecall.learner import losses


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_clipped_surrogate_takes_the_pessimistic_side_of_asymmetric_bounds() -> None:
    # A > 0: rho 1.5 is clipped to 1.28, rho 0.5 is not clipped; A < 0: rho 0.5 is clipped to 0.8, rho 1.5 is not.
    ratio, advantage = tensor(1.5, 0.5, 0.5, 1.5), tensor(2.0, 2.0, -2.0, -2.0)
    loss = losses.clipped_surrogate(ratio, advantage, 0.2, 0.28)
    assert loss.tolist() == pytest.approx([-2.56, -1.0, 1.6, 3.0])


def test_dual_clip_bounds_the_loss_only_where_the_advantage_is_negative() -> None:
    ratio, advantage = tensor(5.0, 5.0, 2.0), tensor(-1.0, 1.0, -1.0)
    loss = losses.clipped_surrogate(ratio, advantage, 0.2, 0.28, dual_clip=3.0)
    assert loss.tolist() == pytest.approx([3.0, -1.28, 2.0])


def test_a_clipped_token_has_no_gradient_and_is_counted_as_clipped() -> None:
    ratio = tensor(1.5, 1.1, 0.5, 0.5, 5.0, 1.0).requires_grad_()
    advantage = tensor(1.0, 1.0, -1.0, 1.0, -1.0, 0.0)
    losses.clipped_surrogate(ratio, advantage, 0.2, 0.28, 3.0).sum().backward()
    assert ratio.grad is not None
    assert ratio.grad.tolist() == pytest.approx([0.0, -1.0, 0.0, -1.0, 0.0, 0.0])
    clipped = losses.is_clipped(ratio.detach(), advantage, 0.2, 0.28, 3.0)
    assert clipped.tolist() == [True, False, True, False, True, False]


def test_an_extreme_ratio_gives_finite_gradients() -> None:
    logprobs = tensor(0.0, -900.0).requires_grad_()
    ratio = losses.token_ratio(logprobs, tensor(-900.0, 0.0))
    losses.clipped_surrogate(ratio, tensor(-1.0, 1.0), 0.2, 0.28, 3.0).sum().backward()
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()


def test_turn_ratio_is_the_geometric_mean_over_the_turn_and_not_over_the_row() -> None:
    logprobs, old = tensor(-1.0, -2.0, -3.0), tensor(-1.2, -2.4, -2.0)
    ratio = losses.turn_ratio(logprobs, old, torch.tensor([0, 0, 1]), 2)
    assert ratio.tolist() == pytest.approx([math.exp(0.3), math.exp(0.3), math.exp(-1.0)])


def test_turn_ratio_spreads_its_gradient_evenly_over_the_tokens_of_the_turn() -> None:
    logprobs = tensor(-1.0, -2.0, -3.0).requires_grad_()
    losses.turn_ratio(logprobs, logprobs.detach().clone(), torch.tensor([0, 0, 1]), 2)[0].backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.5, 0.5, 0.0])


def test_a_ratio_forced_to_one_has_the_gradient_of_reinforce() -> None:
    logprobs, advantage = tensor(-1.0, -3.0).requires_grad_(), tensor(2.0, -0.5)
    ratio = losses.unit_ratio(logprobs)
    assert ratio.tolist() == [1.0, 1.0]
    losses.clipped_surrogate(ratio, advantage, 0.2, 0.28, 3.0).sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-2.0, 0.5])
    assert losses.plain_surrogate(tensor(1.5), tensor(-2.0)).tolist() == [3.0]


def test_kl_estimators_have_their_values_and_signs() -> None:
    # d = log reference - log pi = ln 2: k1 = -0.693147, k2 = 0.240227, k3 = 2 - 1 - 0.693147 = 0.306853
    logprobs, reference = tensor(-2.0), tensor(-2.0 + math.log(2.0))
    values = [losses.kl_estimate(logprobs, reference, name).item() for name in ("k1", "k2", "k3")]
    assert values == pytest.approx([-0.6931472, 0.2402265, 0.3068528])


def test_kl_estimates_pull_log_probabilities_towards_the_reference() -> None:
    # dk2/dlogpi = -d, dk3/dlogpi = 1 - exp(d): with the reference above, minimising must raise log pi.
    for name, slope in (("k2", -math.log(2.0)), ("k3", -1.0)):
        logprobs = tensor(-2.0).requires_grad_()
        losses.kl_estimate(logprobs, tensor(-2.0 + math.log(2.0)), name).sum().backward()
        assert logprobs.grad is not None
        assert logprobs.grad.item() == pytest.approx(slope)


def test_k3_of_a_token_that_the_policy_has_left_is_finite_and_so_is_its_gradient() -> None:
    logprobs = torch.tensor([-101.0, -1.0], requires_grad=True)  # exp(100) is inf in float32
    found = losses.kl_estimate(logprobs, torch.tensor([-1.0, -101.0]), "k3")
    assert found.tolist() == pytest.approx([math.exp(20.0) - 21.0, 99.0])
    found.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.0, 1.0])  # the other way round it is pulled back as ever


def test_k1_and_k3_are_unbiased_over_the_whole_distribution() -> None:
    policy, reference = tensor(0.7, 0.2, 0.1), tensor(0.3, 0.3, 0.4)
    exact = (policy * (policy / reference).log()).sum().item()
    for name in ("k1", "k3"):
        estimate = (policy * losses.kl_estimate(policy.log(), reference.log(), name)).sum().item()
        assert estimate == pytest.approx(exact)
