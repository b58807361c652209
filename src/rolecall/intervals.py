"""Accuracy figures with honest intervals: pure functions on plain lists.

Samples of one task are not independent, so every interval here is clustered by task.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean in [low, high] (95 %) over `n` samples from `num_tasks` tasks.

    >>> wilson(5, 10).mean
    0.5
    """

    mean: float
    low: float
    high: float
    n: int
    num_tasks: int

    def to_dict(self) -> dict[str, float]:
        return {"mean": self.mean, "low": self.low, "high": self.high, "n": self.n, "num_tasks": self.num_tasks}


EMPTY = Estimate(mean=math.nan, low=math.nan, high=math.nan, n=0, num_tasks=0)


def _wilson_bounds(p: float, n: float) -> tuple[float, float]:
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2)) / (1 + Z95**2 / n)
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))  # at 0 and 1 rounding may pass p


def wilson(successes: float, n: int) -> Estimate:
    """The Wilson score interval of a proportion of `n` independent trials (Wilson 1927)."""
    if n == 0:
        return EMPTY
    low, high = _wilson_bounds(successes / n, n)
    return Estimate(mean=successes / n, low=low, high=high, n=n, num_tasks=n)


def proportion(clusters: Sequence[Sequence[float]]) -> Estimate:
    """The mean of values in [0, 1], grouped by task, with a Wilson interval at the effective sample size.

    With task sums s_c, sizes m_c and mean p = sum(s)/sum(m), the cluster-robust variance of a ratio is
    C/(C-1) * sum((s_c - p*m_c)^2) / sum(m)^2; the effective size is p(1-p)/variance, kept between sum(m)^2/sum(m^2),
    which is its value when all samples of a task agree, and the number of samples. Empty clusters are ignored; no
    samples give NaN and n = 0.
    """
    filled = [cluster for cluster in clusters if cluster]
    n = sum(map(len, filled))
    if n == 0:
        return EMPTY
    p = min(1.0, max(0.0, sum(map(sum, filled)) / n))
    size = n**2 / sum(len(cluster) ** 2 for cluster in filled)
    if len(filled) > 1:
        spread = sum((sum(c) - p * len(c)) ** 2 for c in filled)
        variance = len(filled) / (len(filled) - 1) * spread / n**2
        if variance > 0:
            size = min(float(n), max(size, p * (1 - p) / variance))
    low, high = _wilson_bounds(p, size)
    return Estimate(mean=p, low=low, high=high, n=n, num_tasks=len(filled))


def paired_difference(clusters: Sequence[Sequence[float]]) -> Estimate:
    """The mean of differences in [-1, 1] grouped by task; a normal interval with the clustered variance above, within
    [-1, 1]. One task says nothing of the spread: its interval is all of [-1, 1]."""
    filled = [cluster for cluster in clusters if cluster]
    n = sum(map(len, filled))
    if n == 0:
        return EMPTY
    mean = sum(map(sum, filled)) / n
    half = math.inf
    if len(filled) > 1:
        spread = sum((sum(c) - mean * len(c)) ** 2 for c in filled)
        half = Z95 * math.sqrt(len(filled) / (len(filled) - 1) * spread) / n
    low, high = max(-1.0, mean - half), min(1.0, mean + half)
    return Estimate(mean=mean, low=low, high=high, n=n, num_tasks=len(filled))


def difference_width(mean: float, low: float, other: float, high: float) -> float:
    """By how much `mean`, whose interval begins at `low`, may stand above `other`, whose interval ends at `high`, by
    chance: sqrt((mean - low)^2 + (high - other)^2), the lower limit of a difference of two proportions by the
    square-and-add method (Newcombe 1998, method 10). It is for independent samples.

    >>> difference_width(0.75, 0.45, 0.5, 0.9)
    0.5
    """
    return math.hypot(mean - low, high - other)


T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantile of Student's t for 1 to 10 degrees of freedom."""


def student_half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of two or more independent values (Student's t; from 11 degrees of freedom
    on that of 10, which is wider).

    >>> round(student_half_width([0.4, 0.6]), 4)
    1.2706
    """
    return T_975[min(len(values) - 1, len(T_975)) - 1] * statistics.stdev(values) / math.sqrt(len(values))


def pass_at_k(num_right: int, n: int, k: int) -> float:
    """The unbiased chance that at least one of k samples is right, given `num_right` of `n` (Chen et al. 2021, eq. 1).

    1 - C(n - num_right, k) / C(n, k).
    """
    if not 1 <= k <= n or not 0 <= num_right <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= right <= n; got k={k}, n={n}, right={num_right}")
    return 1.0 - math.comb(n - num_right, k) / math.comb(n, k)


def majority_at_k(answers: Sequence[Hashable | None], right: Sequence[float], k: int) -> float:
    """The chance that the most frequent of the first k answers is right; ties share evenly, no answer never wins.
    Answers are one where they are equal: give what stands for all that the grader takes for one (`grading.votes`)."""
    if not 1 <= k <= len(answers) or len(answers) != len(right):
        raise ValueError(f"majority@k needs 1 <= k <= {len(answers)} and one grade per answer; got k={k}")
    votes = Counter(a for a in answers[:k] if a is not None)
    if not votes:
        return 0.0
    top = max(votes.values())
    winners = [answer for answer, count in votes.items() if count == top]
    truth = {a: r for a, r in zip(answers[:k], right[:k], strict=True) if a is not None}
    return sum(truth[winner] for winner in winners) / len(winners)
