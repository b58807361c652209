"""The settings of the loss: checked when they are made."""

from __future__ import annotations

import math

import pytest

from rolecall.algorithms import Loss, make_algorithm
from rolecall.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": "tokens"}, "loss.ratio is 'tokens'; wanted one of token, turn, one; did you mean 'token'"),
        ({"aggregate": "mean"}, "wanted one of token_mean, sequence_mean"),
        ({"kl_estimator": "k4"}, "wanted one of k1, k2, k3"),
        ({"kl_against": "first"}, "wanted one of base, last"),
        ({"clip_low": 1.5}, r"clip_low is 1.5; wanted \[0, 1\]"),
        ({"clip_high": -0.1}, "clip_high is -0.1; wanted 0 or more"),
        ({"dual_clip": 1.0}, r"dual_clip is 1.0; wanted a number above 1 \+ clip_high = 1.28"),
        ({"kl_coef": -1.0}, "kl_coef is -1.0"),
        ({"kl_by_role": {"verifier": float("nan")}}, "kl_by_role.verifier is nan"),
        ({"entropy_coef": float("inf")}, "entropy_coef is inf"),
        ({"probe_share": 1.1}, "probe_share is 1.1"),
        ({"clipped": "yes"}, "clipped is 'yes'; wanted true or false"),
        ({"mask_mastered": 1}, "mask_mastered is 1; wanted true or false"),
        ({"mastered_tau": 99}, r"mastered_tau is 99; wanted a probability in \[0, 1\]"),
        ({"mastered_sigma": -0.2}, "mastered_sigma is -0.2; wanted nats a token, 0"),
        ({"mask_mastered": True, "ratio": "turn"}, "one gradient; use ratio = 'one' or 'token'"),
        ({"correction": "truncate"}, "wanted one of none, decoupled, truncated; did you mean 'truncated'"),
        ({"correction_cap": 2.0}, "correction_cap is 2.0 and loss.correction is 'none', so nothing reads it"),
        ({"correction": "truncated", "correction_cap": 0.5}, "correction_cap is 0.5; wanted 1 or more"),
        ({"correction": "decoupled", "clipped": False}, r"leaves no clip \(ratio = 'token'\); set clipped = true"),
    ],
)
def test_a_setting_out_of_range_is_an_error_with_the_value_wanted(settings, message):
    with pytest.raises(ConfigError, match=message):
        Loss(**settings)


def test_the_anchor_of_one_role_does_not_leak_to_the_next():
    loss = Loss(kl_coef=0.0, kl_by_role={"verifier": 1.0})
    assert (loss.kl("verifier"), loss.kl("solver")) == (1.0, 0.0)
    assert Loss(kl_coef=0.5, kl_by_role={"verifier": 0.0}).kl("verifier") == 0.0


def test_units_with_advantage_zero_need_no_forward_pass_only_when_every_other_term_is_off():
    assert Loss().advantage_only
    assert not Loss(kl_coef=0.1).advantage_only
    assert not Loss(entropy_coef=-0.1).advantage_only
    assert not Loss(kl_by_role={"solver": 0.1}).advantage_only
    assert Loss(kl_by_role={"solver": 0.0}).advantage_only


def test_no_dual_clip_is_a_setting():
    assert Loss(dual_clip=None).dual_clip is None
    assert Loss(clipped=False, ratio="one").dual_clip == 3.0


def test_the_cap_of_a_correction_is_two_when_it_truncates_and_none_when_it_decouples():
    assert (Loss(correction="truncated").cap, Loss(correction="decoupled").cap) == (2.0, math.inf)
    assert Loss(correction="decoupled", correction_cap=5.0).cap == 5.0
    assert Loss(correction="decoupled", ratio="one", clipped=False).correction == "decoupled"


def test_the_loss_of_marsrl_and_corrections_are_reached_from_a_configuration():
    made = make_algorithm(
        "agent_grpo",
        {"loss": {"mask_mastered": True, "mastered_sigma": 1, "correction_cap": 3} | {"correction": "truncated"}},
    ).loss
    assert (made.mask_mastered, made.mastered_tau, made.mastered_sigma) == (True, 0.99, 1.0)
    assert (made.correction, made.cap) == ("truncated", 3.0)
