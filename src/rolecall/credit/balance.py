"""Verdicts balanced between the classes: those about right answers weigh as much, together, as those about wrong ones.

A verifier that is mostly given wrong answers earns well by calling everything wrong. A larger reward for the rarer
class does not help: all peers judge one answer, so they are of one class, and dividing by their standard deviation
undoes any factor. The factor therefore acts on advantages, after the estimator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rolecall.credit.units import Scored
from rolecall.records import ClaimKind, CreditUnit, GradeStatus
from rolecall.rewards.truth import judged_status

CLASSES = (GradeStatus.RIGHT, GradeStatus.WRONG)


def class_weights(counts: Mapping[GradeStatus, int], cap: float) -> dict[GradeStatus, float]:
    """w_c = min(n / (2 n_c), cap) of each class with n_c > 0 units, n their sum: below the cap each class weighs n / 2
    in all, and where the other class is absent the one there is weighs 1/2.

    >>> [round(weight, 3) for weight in class_weights({GradeStatus.RIGHT: 1, GradeStatus.WRONG: 3}, 4.0).values()]
    [2.0, 0.667]
    """
    total = sum(counts.values())
    return {truth: min(total / (2 * count), cap) for truth, count in counts.items() if count}


def truths(scored: Iterable[Scored]) -> dict[str, GradeStatus]:
    """Whether what it judges is right or wrong, of every turn that claims a verdict (a readable one or not) about an
    answer that could be graded; by turn id."""
    found: dict[str, GradeStatus] = {}
    for one in scored:
        for turn in one.episode.turns:
            if turn.claim is not None and turn.claim.kind is ClaimKind.VERDICT:
                status = judged_status(one.graded, turn)
                if status in CLASSES:
                    found[turn.id] = status
    return found


def balance(
    units: Sequence[CreditUnit], judged: Mapping[str, GradeStatus], cap: float
) -> tuple[tuple[CreditUnit, ...], dict[str, float]]:
    """Every verdict's advantage times the weight of its class (`class_weights`), counted over the units given; all else
    as it is. `units` hold one turn each, `judged` is `truths` of the step.

    Returns the units, and `credit/verdicts_right`, `credit/verdicts_wrong` with the weights that were used,
    `credit/verdict_weight_right` and `credit/verdict_weight_wrong` (absent for a class without units).
    """
    of_unit = {unit.id: judged[unit.turn_ids[0]] for unit in units if unit.turn_ids[0] in judged}
    counts = {truth: sum(found is truth for found in of_unit.values()) for truth in CLASSES}
    weights = class_weights(counts, cap)
    weighed = tuple(
        replace(unit, advantage=unit.advantage * weights[of_unit[unit.id]]) if unit.id in of_unit else unit
        for unit in units
    )
    metrics = {f"credit/verdicts_{truth}": float(count) for truth, count in counts.items()}
    return weighed, metrics | {f"credit/verdict_weight_{truth}": weight for truth, weight in weights.items()}
