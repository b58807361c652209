"""Equations by hand, and settings that have no meaning."""

from __future__ import annotations

from typing import Any

import pytest

from learner_helpers import make_sample
from rolecall.algorithms.loss import Loss
from rolecall.errors import ConfigError
from rolecall.interventions.formulas import balance_scales, coherence, copy_shares, damping_scale, mean_weight
from rolecall.interventions.settings import Intervention, anchored, check_interventions

ROLES = {"voter": "team", "aggregator": "team", "judge": "judge", "helper": "frozen"}
TRAINED = ("voter", "aggregator", "judge")


def check(loss: Loss | None = None, plain: tuple[str, ...] = (), **table: Intervention) -> None:
    check_interventions(table, roles=ROLES, train_roles=TRAINED, loss=loss or Loss(), plain_bfloat16=plain)


def test_coherence_and_damping_by_hand() -> None:
    assert coherence(-6.0, 3.0, 4.0) == pytest.approx(-0.5)
    assert coherence(0.0, 0.0, 4.0) == 0.0
    assert damping_scale(0.8, 0.5) == pytest.approx(0.6)
    assert damping_scale(-0.8, 0.5) == 1.0
    assert damping_scale(1.0, 0.9, 0.25) == 0.25
    assert mean_weight(32) == 0.03125


def test_balancing_by_hand() -> None:
    assert balance_scales({"a": 1.0, "b": 3.0}) == {"a": 2.0, "b": pytest.approx(2.0 / 3.0)}
    assert balance_scales({"a": 0.0}) == {"a": 1.0}


def test_a_copy_weighs_one_over_the_copies_of_its_role_in_its_episode() -> None:
    three = [make_sample([1], [2 + c], 1.0, role="voter", episode="e1", copy=c) for c in range(3)]
    other = make_sample([1], [2], 1.0, role="aggregator", episode="e1")
    two = [make_sample([1], [2 + c], 1.0, role="voter", episode="e2", copy=c) for c in (0, 2)]
    again = make_sample([1, 9], [2], 1.0, role="voter", episode="e2", copy=2)  # a second turn of the same copy
    alone = make_sample([1], [2], 1.0, role="voter")
    shares = copy_shares([*three, other, *two, again, alone])
    assert shares == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0, 0.5, 0.5, 0.5, 1.0])


def test_an_anchor_is_a_kl_of_one_role_and_leaves_those_of_the_others() -> None:
    loss = anchored(Loss(kl_coef=0.1, kl_by_role={"judge": 0.2}), {"voter": Intervention(kl_anchor=0.01)})
    assert (loss.kl("voter"), loss.kl("judge"), loss.kl("aggregator")) == (0.01, 0.2, 0.1)
    assert anchored(Loss(), {"voter": Intervention(damping=0.1)}) == Loss()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"damping": 1.5}, "damping is 1.5; wanted a share"),
        ({"damping_window": 1}, "damping_window is 1; wanted 2 optimizer steps"),
        ({"kl_anchor": -0.1}, "kl_anchor is -0.1"),
        ({"lr_scale": float("inf")}, "lr_scale is inf"),
        ({"damping_ema": "during"}, "damping_ema is 'during'"),
        ({"apply_to": "weights"}, "apply_to is 'weights'"),
        ({"damping": 1.0, "damping_floor": 0.0}, "freezes a role that keeps its direction"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Intervention(**settings)


@pytest.mark.parametrize(
    ("role", "settings", "words"),
    [
        ("voters", {"damping": 0.3}, "has no such role; did you mean 'voter'"),
        ("helper", {"damping": 0.3}, "is not trained"),
        ("judge", {"balance_mass": True}, "trains no other role"),
        ("voter", {"damping_window": 32}, "damping_window is set and nothing reads it; it needs damping above 0"),
        ("voter", {"kl_anchor": 0.1, "apply_to": "gradient"}, "apply_to is set and nothing reads it"),
    ],
)
def test_a_table_that_has_no_meaning_is_refused(role: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check(**{role: Intervention(**settings)})


def test_two_anchors_of_one_role_contradict() -> None:
    with pytest.raises(ConfigError, match="keep one of them"):
        check(Loss(kl_by_role={"voter": 0.1}), voter=Intervention(kl_anchor=0.1))
    with pytest.raises(ConfigError, match="kl_against = 'last'"):
        check(Loss(kl_against="last"), voter=Intervention(kl_anchor=0.1))


def test_averaging_on_a_gradient_whose_norm_is_set_anyway_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave one of the two out"):
        check(voter=Intervention(average_copies=True, balance_mass=True, apply_to="gradient"))


def test_a_scaled_update_needs_weights_that_can_hold_it() -> None:
    with pytest.raises(ConfigError, match="rounded away"):
        check(plain=("team",), voter=Intervention(lr_scale=0.5))
    check(plain=("team",), voter=Intervention(damping=0.3, apply_to="gradient"))


def test_what_has_a_meaning_is_let_through() -> None:
    check(voter=Intervention(damping=0.3, balance_mass=True, average_copies=True, kl_anchor=0.01, lr_scale=0.5))
    check(judge=Intervention(damping=1.0, damping_ema="before", damping_floor=0.2, apply_to="gradient"))
