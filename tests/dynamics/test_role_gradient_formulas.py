from __future__ import annotations

import pytest
import torch
from torch import nn

from rolecall.dynamics.formulas import (
    capture_index,
    cosine,
    cosine_with_total,
    energy_shares,
    mass_shares,
    role_metrics,
    total_norm,
)
from rolecall.dynamics.role_gradients import RoleGradients, inner_product
from rolecall.learner.progress import UpdateTally

# g_a = (3, 0), g_b = (0, 4), g_c = (-1, 0)
GRAM = [[9.0, 0.0, -3.0], [0.0, 16.0, 0.0], [-3.0, 0.0, 1.0]]


def test_shares_are_of_norms_and_of_squared_norms() -> None:
    assert mass_shares(GRAM) == pytest.approx([3 / 8, 4 / 8, 1 / 8])
    assert capture_index(GRAM) == pytest.approx(4 / 8 - 1 / 3)
    assert capture_index([[1.0, 0.5], [0.5, 1.0]]) == capture_index([[0.0, 0.0], [0.0, 0.0]]) == 0.0
    assert energy_shares(GRAM) == pytest.approx([9 / 26, 16 / 26, 1 / 26])


def test_cosines_between_roles_and_with_the_total() -> None:
    assert cosine(GRAM, 0, 2) == pytest.approx(-1.0)
    assert cosine(GRAM, 0, 1) == 0.0
    assert total_norm(GRAM) == pytest.approx(20**0.5)  # g = (2, 4)
    assert cosine_with_total(GRAM, 0) == pytest.approx(6 / (3 * 20**0.5))
    assert cosine_with_total(GRAM, 2) == pytest.approx(-2 / 20**0.5)


def test_role_metrics_have_exactly_these_keys() -> None:
    metrics = role_metrics(["a", "b"], [[4.0, 1.0], [1.0, 1.0]], {"a": 3, "b": 1})
    assert metrics == {
        "dynamics/a/grad_norm": 2.0,
        "dynamics/a/mass_share": pytest.approx(2 / 3),
        "dynamics/a/energy_share": pytest.approx(0.8),
        "dynamics/a/token_share": 0.75,
        "dynamics/a/cosine_total": pytest.approx(5 / (2 * 7**0.5)),
        "dynamics/a/cosine/b": 0.5,
        "dynamics/b/grad_norm": 1.0,
        "dynamics/b/mass_share": pytest.approx(1 / 3),
        "dynamics/b/energy_share": pytest.approx(0.2),
        "dynamics/b/token_share": 0.25,
        "dynamics/b/cosine_total": pytest.approx(2 / 7**0.5),
        "dynamics/b/cosine/a": 0.5,
    }


def test_a_policy_without_any_gradient_has_norms_of_zero_and_neither_shares_nor_cosines() -> None:
    metrics = role_metrics(["a", "b"], [[0.0, 0.0], [0.0, 0.0]], {"a": 3, "b": 1})
    assert metrics == {
        "dynamics/a/grad_norm": 0.0,
        "dynamics/a/token_share": 0.75,
        "dynamics/b/grad_norm": 0.0,
        "dynamics/b/token_share": 0.25,
    }


def test_a_role_without_a_gradient_has_a_share_of_zero_and_no_cosines() -> None:
    metrics = role_metrics(["a", "b"], [[4.0, 0.0], [0.0, 0.0]], {"a": 3, "b": 1})
    assert (metrics["dynamics/a/mass_share"], metrics["dynamics/b/mass_share"]) == (1.0, 0.0)
    assert metrics["dynamics/a/cosine_total"] == 1.0
    assert not [key for key in metrics if "b/cosine" in key or "cosine/b" in key]


def test_an_optimizer_step_without_a_gradient_is_no_part_of_the_mean_of_shares_and_cosines() -> None:
    tally = UpdateTally()
    tally.add_roles({"a": 1, "b": 1}, {("a", "a"): 9.0, ("b", "b"): 1.0, ("a", "b"): 0.0, ("b", "a"): 0.0})
    tally.add_roles({"a": 1, "b": 1}, {})
    means = tally.roles.means()
    assert (means["dynamics/a/mass_share"], means["dynamics/a/grad_norm"]) == (0.75, 1.5)
    assert means["dynamics/a/cosine/b"] == 0.0
    assert tally.captures == [0.25]


def test_role_gradients_add_up_and_untouched_parameters_stay_without_gradient() -> None:
    first, second, idle = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    collected = RoleGradients([first, second, idle], ["a", "b"])
    (first * torch.tensor([3.0, 0.0])).sum().backward()
    collected.take("a")
    (first * torch.tensor([0.0, 4.0]) + second * 2.0).sum().backward()
    collected.take("b")
    gram = collected.finish()
    assert gram == [[9.0, 0.0], [0.0, 24.0]]
    assert first.grad is not None
    assert first.grad.tolist() == [3.0, 4.0]
    assert second.grad is not None
    assert second.grad.tolist() == [2.0, 2.0]
    assert idle.grad is None


def test_inner_products_of_long_vectors_do_not_lose_what_a_float32_sum_would() -> None:
    many = torch.full((1 << 24,), 0.1)
    assert inner_product(many, many) == pytest.approx((1 << 24) * float(many[0]) ** 2, rel=1e-4)


def test_a_single_role_needs_no_buffer_and_keeps_its_gradient_in_place() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    collected = RoleGradients([parameter], ["a"])
    (parameter * torch.tensor([3.0, 4.0])).sum().backward()
    held = parameter.grad
    collected.take("a")
    assert collected.finish() == [[25.0]]
    assert parameter.grad is held
    assert not collected.buffers
