"""Rewards: what each turn of a graded episode earned, as named parts; pure functions of the episode."""

from __future__ import annotations

from collections.abc import Mapping

from rolecall.rewards.agent_specific import AgentSpecific
from rolecall.rewards.base import MARKS, RewardFunction
from rolecall.rewards.mixed import PARTS, Format, Mixed
from rolecall.rewards.outcome import TeamOutcome
from rolecall.rewards.progress import GameProgress
from rolecall.rewards.voting_rubric import VotingRubric

REWARDS: Mapping[str, type[RewardFunction]] = {
    "team_outcome": TeamOutcome,
    "agent_specific": AgentSpecific,
    "format": Format,
    "mixed": Mixed,
    "game_progress": GameProgress,
    "voting_rubric": VotingRubric,
}

__all__ = [
    "MARKS",
    "PARTS",
    "REWARDS",
    "AgentSpecific",
    "Format",
    "GameProgress",
    "Mixed",
    "RewardFunction",
    "TeamOutcome",
    "VotingRubric",
]
