"""The named algorithms: each is five choices, and a reader sees all of them at once."""

from __future__ import annotations

from collections.abc import Mapping

from rolecall.algorithms.base import Algorithm
from rolecall.algorithms.loss import Loss
from rolecall.credit.estimators import MeanStd, RunningMean
from rolecall.credit.units import Grouping
from rolecall.records import EMPTY
from rolecall.rewards.agent_specific import AgentSpecific
from rolecall.rewards.outcome import TeamOutcome
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.samplers import IndependentEpisodes


def mas_grpo(n: int = 8) -> Algorithm:
    """GRPO over whole episodes: one outcome, one advantage for every turn of every role (the naive baseline)."""
    return Algorithm(
        name="mas_grpo",
        sampler=IndependentEpisodes(n=n),
        reward=TeamOutcome(),
        grouping=Grouping(unit="episode", peers="task"),
        estimator=MeanStd(),
        loss=Loss(clip_low=0.2, clip_high=0.2),
    )


def dr_mas(n: int = 8) -> Algorithm:
    """Dr. MAS (arXiv 2602.08847): the outcome, normalised by role over the turns in which the role acted."""
    return Algorithm(
        name="dr_mas",
        sampler=IndependentEpisodes(n=n),
        reward=TeamOutcome(),
        grouping=Grouping(unit="turn", peers="task_role"),
        estimator=MeanStd(),
        loss=Loss(clip_low=0.2, clip_high=0.2),
    )


def workflow_grpo(n: int = 8, merge_copies: tuple[str, ...] = ()) -> Algorithm:
    """The workflow study (arXiv 2605.24202): peers by task and trajectory name, one sequence one vote.

    A voter's copy has a name of its own; workers share theirs (`merge_copies = ["worker"]`); the calls of one role or
    copy in an episode are peers of each other and of the other episodes'.
    """
    return Algorithm(
        name="workflow_grpo",
        sampler=IndependentEpisodes(n=n),
        reward=TeamOutcome(),
        grouping=Grouping(unit="turn", peers="task_trajectory", merge_copies=merge_copies),
        estimator=MeanStd(),
        loss=Loss(clip_low=0.2, clip_high=0.28, dual_clip=3.0, aggregate="sequence_mean"),
    )


def rae(n: int = 1) -> Algorithm:
    """Role-conditioned advantages (SPIRAL, arXiv 2506.24119): a running mean by role instead of peers."""
    return Algorithm(
        name="rae",
        sampler=IndependentEpisodes(n=n),
        reward=TeamOutcome(),
        grouping=Grouping(unit="trajectory", peers="role"),
        estimator=RunningMean(decay=0.95),
        loss=Loss(ratio="one", clipped=False),
    )


def agent_grpo(n: int = 8) -> Algorithm:
    """Every turn by its own truth (the rewards of MarsRL, arXiv 2511.11373, over independent episodes).

    Verdicts are compared only with verdicts about answers that are alike right or wrong: otherwise the verifier that
    happened to be given right answers would look better than the one that was given wrong ones.
    """
    return Algorithm(
        name="agent_grpo",
        sampler=IndependentEpisodes(n=n),
        reward=AgentSpecific(),
        grouping=Grouping(unit="turn", peers="task_role_truth"),
        estimator=MeanStd(),
        loss=Loss(ratio="one", clipped=False),
    )


def marsrl(
    n: int = 8,
    k: int = 2,
    stages: int = 5,
    pool: str = "task",
    pick: str = "adaptive",
    prefer: Mapping[str, str] = EMPTY,
) -> Algorithm:
    """MarsRL (arXiv 2511.11373): groups of completions of one input, rewards of each agent's own, UloRL's loss.

    The ratio is 1 (POIS), the mean over tokens of groups with a spread (dynamic sampling), no KL, mastered positive
    tokens masked. The parameters are those of `rollout.agentic.AgenticGroups`.
    """
    return Algorithm(
        name="marsrl",
        sampler=AgenticGroups(n=n, k=k, stages=stages, pool=pool, pick=pick, prefer=dict(prefer)),
        reward=AgentSpecific(),
        grouping=Grouping(unit="turn", peers="drawn"),
        estimator=MeanStd(),
        loss=Loss(ratio="one", clipped=False, zero_advantage_in_denominator=False, mask_mastered=True),
    )
