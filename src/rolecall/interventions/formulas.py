"""The equations of interventions: plain numbers in, plain numbers out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from rolecall.records import Sample

EPSILON = 1e-12


def coherence(product: float, norm: float, mean_norm: float) -> float:
    """c = <g, m> / (||g|| ||m|| + eps): how far a gradient g keeps the direction of the mean m of earlier ones, from
    their inner product and their norms.

    >>> round(coherence(6.0, 4.0, 3.0), 9)
    0.5
    """
    return product / (norm * mean_norm + EPSILON)


def damping_scale(c: float, strength: float, floor: float = 0.0) -> float:
    """s = max(1 - strength * clamp(c, 0, 1), floor): I6 of the workflow study (arXiv 2605.24202), which has no floor.

    A role that pulls where it pulled before is slowed down; one that turns is not.

    >>> damping_scale(0.5, 0.3), damping_scale(-0.5, 0.3), damping_scale(1.0, 1.0, 0.1)
    (0.85, 1.0, 0.1)
    """
    return max(1.0 - strength * min(max(c, 0.0), 1.0), floor)


def mean_weight(window: int) -> float:
    """1 - tau = 1 / window: what a new gradient weighs in the running mean m <- tau m + (1 - tau) g.

    >>> mean_weight(128)
    0.0078125
    """
    return 1.0 / window


def balance_scales(norms: Mapping[str, float]) -> dict[str, float]:
    """median(||g||) / ||g_i|| by role, over the roles that have a gradient: with these scales all pull equally hard. A
    role without a gradient keeps a scale of 1. (Our proposal against the capture of a shared policy by one role.)

    >>> balance_scales({"a": 4.0, "b": 1.0, "c": 2.0, "d": 0.0})
    {'a': 0.5, 'b': 2.0, 'c': 1.0, 'd': 1.0}
    """
    middle = median([norm for norm in norms.values() if norm > 0.0] or [0.0])
    return {role: middle / norm if norm > 0.0 else 1.0 for role, norm in norms.items()}


def copy_shares(samples: Sequence[Sample]) -> list[float]:
    """1 / N for each sample: N, the copies of its role with trained tokens in its episode. A sample without an episode
    stands alone. (Our proposal: the loss of a role with N copies, divided by N.)"""
    copies: dict[tuple[str, str], set[int]] = defaultdict(set)
    for sample in samples:
        copies[sample.episode_id, sample.role].add(sample.copy)
    return [1.0 / len(copies[s.episode_id, s.role]) if s.episode_id else 1.0 for s in samples]
