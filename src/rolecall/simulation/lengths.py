"""How long completions are: distributions by their quantile function, drawn by counter-based uniforms.

A length depends on the run's seed and on the path that leads to the completion, and on nothing else: every schedule
and every number of engines has the same work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Protocol

MASK = (1 << 64) - 1
STANDARD = NormalDist()
LARGEST_POWER = 709.0


def mix(value: int) -> int:
    """A 64-bit hash of a 64-bit counter (the finaliser of SplitMix64, Steele, Lea and Flood, OOPSLA 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def uniform(hashed: int) -> float:
    """A number in (0, 1), never one of the ends, from a 64-bit hash."""
    return ((hashed >> 12) + 0.5) * 2.0**-52


class Distribution(Protocol):
    def quantile(self, u: float) -> float:
        """The length that a share `u` of completions does not pass, u in (0, 1), in tokens, without a limit."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every completion has as many tokens."""

    tokens: int

    def quantile(self, u: float) -> float:
        return float(self.tokens)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp of a normal variable: `median` tokens, `sigma` the standard deviation of the logarithm."""

    median: float
    sigma: float

    def quantile(self, u: float) -> float:
        return self.median * _exp(self.sigma * STANDARD.inv_cdf(u))


@dataclass(frozen=True, slots=True)
class ParetoTail:
    """Log-normal, but the longest `tail_share` of completions falls as a power: P(length > x) is proportional to
    x ** -tail_index there. The smaller the index, the longer the tail; at 1 or less the mean is that of the limit."""

    body: LogNormal
    tail_share: float
    tail_index: float

    def quantile(self, u: float) -> float:
        beyond = 1.0 - u
        if beyond >= self.tail_share:
            return self.body.quantile(u)
        start = self.body.quantile(1.0 - self.tail_share)
        return start * _exp(math.log(self.tail_share / beyond) / self.tail_index)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Lengths that a run had, each as likely as another: `tokens` in increasing order."""

    tokens: tuple[int, ...]

    def quantile(self, u: float) -> float:
        return float(self.tokens[int(u * len(self.tokens))])


def draw(distribution: Distribution, hashed: int, limit: int) -> int:
    """A length in tokens, 1 to `limit`; what would be longer is cut there."""
    return max(1, round(min(limit, distribution.quantile(uniform(hashed)))))


def mean_tokens(distribution: Distribution, limit: int, points: int = 2000) -> float:
    """The mean length under a limit, from `points` evenly spaced quantiles.

    >>> mean_tokens(Fixed(300), 256)
    256.0
    """
    return fmean(min(limit, distribution.quantile((i + 0.5) / points)) for i in range(points))


def share_at_limit(distribution: Distribution, limit: int, points: int = 2000) -> float:
    """The share of completions that the limit cuts."""
    return sum(distribution.quantile((i + 0.5) / points) >= limit for i in range(points)) / points


def _exp(value: float) -> float:
    """e to that power, infinity where no number holds it."""
    return math.exp(value) if value < LARGEST_POWER else math.inf
