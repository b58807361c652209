"""Agentic groups under rewards that a random model can earn, so that weights move and a difference shows."""

from __future__ import annotations

from run_parts import LowIds

from rolecall.algorithms import Algorithm, Loss
from rolecall.credit import Grouping
from rolecall.credit.estimators import MeanStd
from rolecall.rollout.agentic import AgenticGroups


def drawn(n: int = 3, k: int = 2, stages: int = 3, pool: str = "task", pick: str = "adaptive") -> Algorithm:
    """Peers of one input, rewarded by their tokens and by the process's own random numbers."""
    return Algorithm(
        name="drawn",
        sampler=AgenticGroups(n=n, k=k, stages=stages, pool=pool, pick=pick),
        reward=LowIds(),
        grouping=Grouping(unit="turn", peers="drawn"),
        estimator=MeanStd(),
        loss=Loss(ratio="one", clipped=False, zero_advantage_in_denominator=False),
    )
