"""Figures about role gradients, from their inner products: plain numbers in, plain numbers out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Gram = Sequence[Sequence[float]]
"""Inner products of the role gradients: `gram[i][j]` = <g_i, g_j>, shape [roles][roles]."""


def norms(gram: Gram) -> list[float]:
    """||g_i|| = sqrt(<g_i, g_i>). [roles]"""
    return [math.sqrt(max(gram[i][i], 0.0)) for i in range(len(gram))]


def mass_shares(gram: Gram) -> list[float]:
    """||g_i|| / sum_j ||g_j||: each role's share of the policy's gradient mass; 0 where there is no gradient. [roles]

    >>> mass_shares([[9.0, 0.0], [0.0, 1.0]])
    [0.75, 0.25]
    """
    return _shares(norms(gram))


def energy_shares(gram: Gram) -> list[float]:
    """||g_i||^2 / sum_j ||g_j||^2. [roles]

    >>> energy_shares([[9.0, 0.0], [0.0, 1.0]])
    [0.9, 0.1]
    """
    return _shares([max(gram[i][i], 0.0) for i in range(len(gram))])


def capture_index(gram: Gram) -> float:
    """The largest mass share minus what an equal one would be, max_i m_i - 1/n over n roles: 0 when all pull as hard,
    1 - 1/n when one does all of it (or 0, when there is no gradient).

    >>> capture_index([[9.0, 0.0], [0.0, 1.0]])
    0.25
    """
    return max(0.0, max(mass_shares(gram)) - 1.0 / len(gram))


def cosine(gram: Gram, i: int, j: int) -> float:
    """<g_i, g_j> / (||g_i|| ||g_j||), 0 when either is zero.

    >>> cosine([[4.0, 3.0], [3.0, 9.0]], 0, 1)
    0.5
    """
    return ratio(gram[i][j], math.sqrt(max(gram[i][i], 0.0)) * math.sqrt(max(gram[j][j], 0.0)))


def total_norm(gram: Gram) -> float:
    """||sum_j g_j|| = sqrt(sum of all inner products).

    >>> total_norm([[4.0, 3.0], [3.0, 6.0]])
    4.0
    """
    return math.sqrt(max(sum(sum(row) for row in gram), 0.0))


def cosine_with_total(gram: Gram, i: int) -> float:
    """<g_i, g> / (||g_i|| ||g||) with g = sum_j g_j: how far the policy's gradient goes role i's way.

    >>> round(cosine_with_total([[9.0, 0.0], [0.0, 16.0]], 0), 3)
    0.6
    """
    return ratio(sum(gram[i]), math.sqrt(max(gram[i][i], 0.0)) * total_norm(gram))


def role_metrics(roles: Sequence[str], gram: Gram, tokens: Mapping[str, int]) -> dict[str, float]:
    """The figures of one policy's roles, keyed `dynamics/<role>/...`.

    `grad_norm` is before clipping; shares and cosines are within the policy. `tokens`: trained tokens of each role.
    Where no role has a gradient there are no shares of it, and of a role without one there are no cosines: neither is
    0, and a mean over optimizer steps would take it for that.
    """
    sizes, mass, energy = norms(gram), mass_shares(gram), energy_shares(gram)
    share = _shares([float(tokens.get(role, 0)) for role in roles])
    metrics: dict[str, float] = {}
    for i, role in enumerate(roles):
        area = f"dynamics/{role}"
        metrics[f"{area}/grad_norm"] = sizes[i]
        metrics[f"{area}/token_share"] = share[i]
        if any(sizes):
            metrics[f"{area}/mass_share"] = mass[i]
            metrics[f"{area}/energy_share"] = energy[i]
        if sizes[i]:
            metrics[f"{area}/cosine_total"] = cosine_with_total(gram, i)
            others = [j for j in range(len(roles)) if j != i and sizes[j]]
            metrics |= {f"{area}/cosine/{roles[j]}": cosine(gram, i, j) for j in others}
    return metrics


def amplification(gram: Gram) -> float:
    """||sum_c g_c|| / mean_c ||g_c|| of N copies, in [0, N]: N when all pull one way, about sqrt(N) when they are
    independent and of one size, 0 when they cancel out (or there is no gradient).

    >>> amplification([[4.0, 4.0], [4.0, 4.0]]), amplification([[4.0, -4.0], [-4.0, 4.0]])
    (2.0, 0.0)
    """
    return ratio(total_norm(gram), sum(norms(gram)) / len(gram))


def mean_cosine(gram: Gram) -> float:
    """Mean over the pairs i < j of `cosine`; with equal norms amplification^2 = N (1 + (N - 1) mean_cosine).

    >>> mean_cosine([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    0.3333333333333333
    """
    pairs = [cosine(gram, i, j) for j in range(len(gram)) for i in range(j)]
    return sum(pairs) / len(pairs)


def copy_metrics(role: str, true: Gram, control: Gram, units: int) -> dict[str, float]:
    """The figures of a role's copies, keyed `dynamics/<role>/...`. `control`: the same trajectories dealt to the copies
    at random; `units`: how many there are."""
    area = f"dynamics/{role}"
    return {
        f"{area}/copies": float(len(true)),
        f"{area}/copy_units": float(units),
        f"{area}/amplification": amplification(true),
        f"{area}/amplification_control": amplification(control),
        f"{area}/copy_cosine": mean_cosine(true),
        f"{area}/copy_cosine_control": mean_cosine(control),
    }


def update_metrics(
    norm_by_role: Mapping[str, float], along: Mapping[str, float], update_norm: float
) -> tuple[dict[str, float], dict[str, float]]:
    """What one optimizer step, delta = weights after - before, did for each role: cosines, and pushes.

    `along[r]` = -<g_r, delta> is, to first order, how much the step lowered role r's loss. cosine_r = along_r /
    (||g_r|| ||delta||): 1 when the step went straight down role r's gradient, below 0 when it went up.
    push_r = along_r / ||g_r||: the length of the step along role r's descent direction, in units of weights;
    update_norm_r = ||delta||: that of the whole step, which moved the weights that role r speaks with.

    >>> update_metrics({"a": 2.0}, {"a": 3.0}, 6.0)
    ({'dynamics/a/cosine_update': 0.25}, {'dynamics/a/push': 1.5, 'dynamics/a/update_norm': 6.0})
    """
    cosines = {f"dynamics/{r}/cosine_update": ratio(d, norm_by_role[r] * update_norm) for r, d in along.items()}
    pushes = {f"dynamics/{r}/push": ratio(d, norm_by_role[r]) for r, d in along.items()}
    return cosines, pushes | {f"dynamics/{r}/update_norm": update_norm for r in along}


def perplexity_ratio(mean_log_ratio: float) -> float:
    """PPL(learner) / PPL(sampler) on the sampled tokens = exp(-mean(log pi - log pi_sampled)).

    >>> perplexity_ratio(0.0)
    1.0
    """
    return math.exp(min(-mean_log_ratio, 700.0))


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [ratio(value, total) for value in values]


def ratio(top: float, bottom: float) -> float:
    """top / bottom, and 0 where the bottom is."""
    return top / bottom if bottom > 0.0 else 0.0
