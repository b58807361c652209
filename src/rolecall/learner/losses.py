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
    log_ratio_T = logprobs_T - old_logprobs_T
    sums = torch.zeros(num_turns, dtype=log_ratio_T.dtype, device=log_ratio_T.device)
    counts = torch.zeros_like(sums).index_add(0, turn_T, torch.ones_like(log_ratio_T))
    means = sums.index_add(0, turn_T, log_ratio_T) / counts.clamp(min=1)
    return _safe_exp(means)[turn_T]


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


def kl_estimate(logprobs_T: Tensor, reference_T: Tensor, estimator: str) -> Tensor:
    """Per-token estimates of KL(pi || reference) from tokens sampled under pi, with d = log reference - log pi. [T]

    k1 = -d, unbiased, of either sign, and with a gradient whose expectation is 0: a number to watch. k2 = d^2 / 2,
    biased, low variance; its gradient is an unbiased one of the KL. k3 = exp(d) - 1 - d, unbiased, never negative
    (Schulman 2020, "Approximating KL divergence").
    """
    difference_T = reference_T - logprobs_T
    if estimator == "k1":
        return -difference_T
    if estimator == "k2":
        return 0.5 * difference_T.square()
    if estimator == "k3":
        return torch.expm1(difference_T) - difference_T
    raise ValueError(f"KL estimator {estimator!r}; wanted k1, k2 or k3")


def _safe_exp(log_ratio: Tensor) -> Tensor:
    return torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
