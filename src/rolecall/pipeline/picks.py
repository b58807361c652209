"""Which candidates the workflow goes on with (MarsRL, arXiv 2511.11373, section 3.2): pure choices among scores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rolecall.rollout.agentic import CLASSES, PICKS

RIGHT = 0.5
"""A score of at least this is of the high class; scores are 0 or 1 where grading is."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The places of the candidates picked, in increasing order, and how many of them were fills from the class that
    the rule would not have taken."""

    chosen: tuple[int, ...]
    shortfall: int


def pick(scores: Sequence[float | None], k: int, rule: str, prefer: str | None, rng: random.Random) -> Pick:
    """Pick at most `k` of the candidates with these scores (None: no score could be given).

    `prefer`: "low" or "high", the class that `adaptive` takes first, and that `balanced` gives the odd one to; None: no
    preference, and `adaptive` picks uniformly. Ties within a class are broken uniformly. A class that has too few is
    filled from the other, and candidates without a score come last; fills are counted in `shortfall`.

    >>> pick([1.0, 0.0, 1.0, 0.0], 2, "adaptive", "low", random.Random(0))
    Pick(chosen=(1, 3), shortfall=0)
    """
    assert rule in PICKS
    assert prefer is None or prefer in CLASSES
    order = list(range(len(scores)))
    rng.shuffle(order)
    if rule == "random" or (prefer is None and rule == "adaptive"):
        return Pick(tuple(sorted(order[:k])), 0)
    low = [place for place in order if (score := scores[place]) is not None and score < RIGHT]
    high = [place for place in order if (score := scores[place]) is not None and score >= RIGHT]
    unscored = [place for place in order if scores[place] is None]
    first, second = (high, low) if prefer == "high" else (low, high)
    if rule == "adaptive":
        wanted = (k, 0)
    else:
        odd = k % 2
        more = odd and (prefer is not None or rng.random() < 0.5)
        wanted = (k // 2 + int(more), k // 2 + odd - int(more))
    taken = first[: wanted[0]] + second[: wanted[1]]
    rest = first[wanted[0] :] + second[wanted[1] :] + unscored
    fills = rest[: k - len(taken)]
    return Pick(tuple(sorted(taken + fills)), len(fills))
