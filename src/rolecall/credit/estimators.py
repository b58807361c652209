"""Advantage estimators: pure functions on the rewards of peers, and frozen objects that hold their knobs.

Shapes: `rewards_G` [G] are the rewards of G peers, NaN where a peer has none; the result [G] is finite everywhere. A
peer without a reward takes no part and gets 0. Fewer than two rewards, or rewards that are all equal, give exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rolecall.errors import ConfigError

FloatArray = npt.NDArray[np.float64]


class PeerEstimator(Protocol):
    """Turns the rewards of one set of peers into their advantages; the order of the peers carries no meaning."""

    def __call__(self, rewards_G: FloatArray) -> FloatArray: ...


def center(rewards_G: FloatArray) -> FloatArray:
    """A_j = r_j - mean(r).

    Source: MAGRPO (arXiv 2508.04652); GRPO without its division, as Dr. GRPO has it.

    >>> center(np.array([1.0, 0.0, 0.0, 1.0])).tolist()
    [0.5, -0.5, -0.5, 0.5]
    """
    return _among_valid(rewards_G, lambda valid_G: valid_G - valid_G.mean())


def mean_std(rewards_G: FloatArray, *, ddof: int = 1, epsilon: float = 1e-6) -> FloatArray:
    """A_j = (r_j - mean(r)) / (std(r) + epsilon), std^2 = sum_j (r_j - mean(r))^2 / (G - ddof).

    Source: GRPO (arXiv 2402.03300), with `torch.std` (ddof 1) and epsilon 1e-6 as the public trainers have it.

    >>> mean_std(np.array([1.0, 0.0]), ddof=0, epsilon=0.0).tolist()
    [1.0, -1.0]
    """
    return _among_valid(rewards_G, lambda valid_G: (valid_G - valid_G.mean()) / (valid_G.std(ddof=ddof) + epsilon))


def leave_one_out(rewards_G: FloatArray) -> FloatArray:
    """A_j = r_j - mean_{k != j}(r_k) = (G r_j - sum(r)) / (G - 1).

    Source: RLOO (arXiv 2402.14740).

    >>> leave_one_out(np.array([1.0, 0.0, 0.0])).tolist()
    [1.0, -0.5, -0.5]
    """
    return _among_valid(rewards_G, lambda valid_G: (len(valid_G) * valid_G - valid_G.sum()) / (len(valid_G) - 1))


def running_mean(rewards_N: Iterable[float], baseline: float, *, decay: float = 0.95) -> tuple[FloatArray, float]:
    """A_n = R_n - b_n, then b_{n+1} = decay * b_n + (1 - decay) * R_n: each reward meets the baseline *before* it.

    Returns the advantages [N] and the baseline after the last reward. Source: role-conditioned advantage estimation,
    SPIRAL (arXiv 2506.24119), decay 0.95.

    >>> running_mean([1.0, 1.0], 0.0, decay=0.5)
    (array([1. , 0.5]), 0.75)
    """
    advantages = []
    for reward in rewards_N:
        advantages.append(reward - baseline)
        baseline = decay * baseline + (1.0 - decay) * reward
    return np.array(advantages, dtype=np.float64), baseline


def _among_valid(rewards_G: FloatArray, formula: PeerFormula) -> FloatArray:
    """Apply `formula` to the rewards that exist; 0 elsewhere, and 0 everywhere when they hold nothing to compare."""
    valid_G = rewards_G[~np.isnan(rewards_G)]
    advantages_G = np.zeros(len(rewards_G), dtype=np.float64)
    if len(valid_G) >= 2 and not constant(valid_G):
        advantages_G[~np.isnan(rewards_G)] = formula(valid_G)
    return advantages_G


class PeerFormula(Protocol):
    def __call__(self, valid_G: FloatArray, /) -> FloatArray: ...


def constant(rewards_G: FloatArray) -> bool:
    """Whether all rewards are the same number: compared exactly, so that rounding in a mean cannot make noise."""
    return bool(rewards_G.min() == rewards_G.max())


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanStd:
    """`mean_std` with its knobs."""

    ddof: int = 1
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if self.ddof not in (0, 1):
            raise ConfigError(f"estimator mean_std: ddof is {self.ddof!r}; wanted 0 (divide by G) or 1 (by G - 1)")
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise ConfigError(f"estimator mean_std: epsilon is {self.epsilon!r}; wanted a finite number, 0 or more")

    def __call__(self, rewards_G: FloatArray) -> FloatArray:
        return mean_std(rewards_G, ddof=self.ddof, epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mean:
    """`center`: the difference to the mean of the peers."""

    def __call__(self, rewards_G: FloatArray) -> FloatArray:
        return center(rewards_G)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaveOneOut:
    """`leave_one_out`: the difference to the mean of the other peers."""

    def __call__(self, rewards_G: FloatArray) -> FloatArray:
        return leave_one_out(rewards_G)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningMean:
    """`running_mean` by role: no peers are needed. `initial` is where the baseline of an unseen role starts.

    SPIRAL starts at 0, where its zero-sum games have their mean. Rewards in {0, 1} do not: from 0 the first few dozen
    units of a role all look good. A warm start, `initial` near the team's accuracy before training, avoids that.
    """

    decay: float = 0.95
    initial: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.decay < 1.0:
            raise ConfigError(f"estimator running_mean: decay is {self.decay!r}; wanted a number in [0, 1)")
        if not math.isfinite(self.initial):
            raise ConfigError(f"estimator running_mean: initial is {self.initial!r}; wanted a finite number")

    def step(self, rewards_N: Iterable[float], baseline: float | None) -> tuple[FloatArray, float]:
        """The advantages of one role's rewards in order, and its baseline after them."""
        return running_mean(rewards_N, self.initial if baseline is None else baseline, decay=self.decay)


Estimator = PeerEstimator | RunningMean
