"""Losses and their ingredients: pure functions on one-dimensional tensors over trained tokens, shape [T].

Signs: every function returns something to *minimise*. A token's contribution to the loss is its weight (fixed before
packing, see `weights.py`) times what these functions return, so none of them takes a mean over tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to plus and minus this before exp: beyond it a token has no gradient and is never inf."""


def token_ratio(logprobs_T: Tensor, old_logprobs_T: Tensor) -> Tensor:
    """rho_t = pi(t) / pi_old(t) = exp(log pi(t) - log pi_old(t)), as in PPO (Schulman et al. 2017, eq. 6). [T]"""
    return _safe_exp(logprobs_T - old_logprobs_T)


def turn_ratio(logprobs_T: Tensor, old_logprobs_T: Tensor, turn_T: Tensor, num_turns: int) -> Tensor:
    """rho_turn = exp(mean over the turn's tokens of log pi - log pi_old), repeated for each of its tokens. [T]

    `turn_T` holds the number of each token's turn, in [0, num_turns). Length-normalised sequence ratio of GSPO (Zheng
    et al. 2025, eq. 7), applied by turn as ReMA does (Wan et al. 2025).
    """
    return _safe_exp(turn_mean(logprobs_T - old_logprobs_T, turn_T, num_turns))[turn_T]


def turn_mean(values_T: Tensor, turn_T: Tensor, num_turns: int) -> Tensor:
    """The mean of the values over the tokens of each turn, 0 for a turn without tokens. [num_turns]"""
    sums = torch.zeros(num_turns, dtype=values_T.dtype, device=values_T.device)
    counts = torch.zeros_like(sums).index_add(0, turn_T, torch.ones_like(values_T))
    return sums.index_add(0, turn_T, values_T) / counts.clamp(min=1)


def unit_ratio(logprobs_T: Tensor) -> Tensor:
    """exp(log pi - stop_gradient(log pi)): the value is 1, the gradient that of log pi (POIS of UloRL, which takes
    the latest policy for every old one; its gradient is REINFORCE's). [T]"""
    return torch.exp(logprobs_T - logprobs_T.detach())


def clipped_surrogate(
    ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """L = -min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A), and where A < 0: L = min(L, -dual_clip A). [T]

    PPO's clipped surrogate (Schulman et al. 2017, eq. 7) with the asymmetric bounds of DAPO (Yu et al. 2025) and the
    dual clip of Ye et al. 2020, which bounds the loss of an unlikely token with a negative advantage.
    """
    clipped_T = ratio_T.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss_T = -torch.minimum(ratio_T * advantages_T, clipped_T * advantages_T)
    if dual_clip is None:
        return loss_T
    return torch.where(advantages_T < 0, torch.minimum(loss_T, -dual_clip * advantages_T), loss_T)


def plain_surrogate(ratio_T: Tensor, advantages_T: Tensor) -> Tensor:
    """L = -rho A, not clipped; with `unit_ratio` its gradient is that of -A log pi (REINFORCE, Williams 1992). [T]"""
    return -ratio_T * advantages_T


def is_clipped(
    ratio_T: Tensor, advantages_T: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Tensor:
    """Which tokens have no gradient in `clipped_surrogate`: above the upper bound with A > 0; below the lower bound, or
    above the dual clip, with A < 0. bool [T]"""
    clipped_T = ((advantages_T > 0) & (ratio_T > 1.0 + clip_high)) | ((advantages_T < 0) & (ratio_T < 1.0 - clip_low))
    if dual_clip is not None:
        clipped_T = clipped_T | ((advantages_T < 0) & (ratio_T > dual_clip))
    return clipped_T


def mastered_positive(
    logprobs_T: Tensor,
    entropies_T: Tensor,
    advantages_T: Tensor,
    turn_T: Tensor,
    num_turns: int,
    tau: float,
    sigma: float,
) -> Tensor:
    """I_t = 1[A_t > 0] 1[pi(t) >= tau] 1[H(turn of t) < sigma]: tokens that a good turn no longer needs. bool [T]

    H(turn) = -1/|o| sum_t sum_v p_t(v) log p_t(v): the mean over the turn's tokens of `entropies_T`, in nats, like
    `logprobs_T` at the sampling temperature. `turn_T` as in `turn_ratio`. The surrogate of token t is multiplied by
    1 - I_t, which carries no gradient; its weight, 1 over all tokens, stays.

    Source: dynamic masking of mastered positive tokens, UloRL (arXiv 2507.19766, tau 0.99, sigma 0.2), whose printed H
    lacks the minus sign. There a positive token is one with R = 1; among peers with rewards in {0, 1} that are not all
    equal A > 0 holds exactly then, and where they are all equal there is no loss to mask.
    """
    entropy_of_turn_T = turn_mean(entropies_T, turn_T, num_turns)[turn_T]
    return ((advantages_T > 0) & (logprobs_T.exp() >= tau) & (entropy_of_turn_T < sigma)).detach()


def dropped_weight(weight_T: Tensor, cap: float) -> Tensor:
    """w where w <= cap, else 0: a token whose weight is above the cap is left out. [T]

    Decoupled PPO (Hilton et al. 2021, "Batch size-invariance for policy optimization"; AReaL, arXiv 2505.24298):
    L = -w min(r A, clip(r) A) with w = pi_prox / pi_behav and r = pi / pi_prox, prox the policy at the start of the
    update and behav the one that sampled; w carries no gradient. The cap is that of AReaL's code.
    """
    return torch.where(weight_T <= cap, weight_T, 0.0).detach()


def truncated_weight(weight_T: Tensor, cap: float) -> Tensor:
    """min(w, cap), w = pi_prox / pi_behav: truncated importance sampling. [T]

    It multiplies the surrogate as in `dropped_weight`, and carries no gradient either. Source: Ionides 2008; as the
    correction between an engine and a learner, Yao et al. 2025, "Your efficient RL framework secretly brings you
    off-policy RL training".
    """
    return weight_T.clamp(max=cap).detach()


def kl_estimate(logprobs_T: Tensor, reference_T: Tensor, estimator: str) -> Tensor:
    """Per-token estimates of KL(pi || reference) from tokens sampled under pi, with d = log reference - log pi. [T]

    k1 = -d, unbiased, of either sign, and with a gradient whose expectation is 0: a number to watch. k2 = d^2 / 2,
    biased, low variance; its gradient is an unbiased one of the KL. k3 = exp(d) - 1 - d, unbiased, never negative
    (Schulman 2020, "Approximating KL divergence"); d is cut at `MAX_LOG_RATIO`, as in ratios, because exp(d) of a token
    that the policy has left would be inf.
    """
    difference_T = reference_T - logprobs_T
    if estimator == "k1":
        return -difference_T
    if estimator == "k2":
        return 0.5 * difference_T.square()
    if estimator == "k3":
        difference_T = difference_T.clamp(max=MAX_LOG_RATIO)
        return torch.expm1(difference_T) - difference_T
    raise ValueError(f"KL estimator {estimator!r}; wanted k1, k2 or k3")


def _safe_exp(log_ratio: Tensor) -> Tensor:
    return torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
