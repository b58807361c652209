"""The team's outcome, broadcast to every turn of the episode and named as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolecall.errors import ConfigError, nearest
from rolecall.records import GradedEpisode, OutcomeClass, Reward
from rolecall.rewards.base import marked

TRUNCATED_RULES = ("zero", "graded")


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamOutcome:
    """Every turn gets the score of the episode's final answer, whoever spoke it: part `team`, `Reward.team=True`.

    A failed episode is 0 (mark `failed`), a failed grader no reward (mark `ungraded`). An episode whose answer rests
    on a completion cut off by the length limit is 0 (mark `truncated`), or keeps its grade: `truncated = "graded"`.
    """

    truncated: str = "zero"
    broadcasts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.truncated not in TRUNCATED_RULES:
            known = ", ".join(TRUNCATED_RULES)
            hint = nearest(str(self.truncated), TRUNCATED_RULES)
            raise ConfigError(f"team_outcome.truncated is {self.truncated!r}; wanted one of {known}{hint}")

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        reward = self._reward(graded)
        return {turn.id: reward for turn in graded.episode.turns}

    def _reward(self, graded: GradedEpisode) -> Reward:
        if graded.episode.outcome_class.failed:
            return marked("team", "failed", 0.0, team=True)
        if graded.episode.outcome_class is OutcomeClass.TRUNCATED and self.truncated == "zero":
            return marked("team", "truncated", 0.0, team=True)
        if graded.team.score is None:
            return marked("team", "ungraded", None, team=True)
        return Reward(parts={"team": graded.team.score}, total=graded.team.score, team=True)
