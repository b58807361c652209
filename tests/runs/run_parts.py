"""An algorithm whose runs can only be equal when all state is: a running mean by role, a reward with random numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rolecall.algorithms import Algorithm, Loss
from rolecall.credit import Grouping
from rolecall.credit.estimators import RunningMean
from rolecall.records import GradedEpisode, Reward
from rolecall.rollout.samplers import IndependentEpisodes


@dataclass(frozen=True, kw_only=True)
class LowIds:
    """The share of sampled tokens below 128, and noise from the process's own random numbers."""

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        rewards = {}
        for turn in graded.episode.turns:
            ids = turn.completion.token_ids
            parts = {"low": sum(token < 128 for token in ids) / max(1, len(ids)), "noise": random.random() / 10}
            rewards[turn.id] = Reward(parts=parts, total=sum(parts.values()))
        return rewards


def running(n: int = 2) -> Algorithm:
    return Algorithm(
        name="running",
        sampler=IndependentEpisodes(n=n),
        reward=LowIds(),
        grouping=Grouping(unit="turn", peers="role"),
        estimator=RunningMean(decay=0.9),
        loss=Loss(ratio="one", clipped=False),
    )
