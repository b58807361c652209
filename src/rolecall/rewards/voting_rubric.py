"""Rewards by role for voting: the rubric of the workflow study's second variant (arXiv 2605.24202)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolecall.records import ClaimKind, GradedEpisode, GradeStatus, Reward, Turn
from rolecall.rewards.base import marked
from rolecall.rewards.truth import answer_status, candidates, chosen_status, unparsed


@dataclass(frozen=True, kw_only=True, slots=True)
class VotingRubric:
    """Voters are paid for their own answer and for the team's, an aggregator for choosing well where it could.

    - an answer: `own` when it is right, plus `team` times the team's score, plus `wrong` when it could be read and is
      not right;
    - a choice: 1 when the chosen answer is right, -1 when it is not and another candidate is, 0 when none is.

    | the voter's answer | the team is right | the team is wrong |
    |--------------------|-------------------|-------------------|
    | right              | 1                 | 0.5               |
    | wrong              | -0.5              | -1                |
    | not readable       | 0.5               | 0                 |

    A choice that cannot be read is one that is not right, with a mark. 0 with a mark: a truncated turn, and every turn
    of a failed episode. No reward, with a mark: a grader that failed (`ungraded`), and a turn that claims neither an
    answer nor a choice (`unjudged`).
    """

    own: float = 0.5
    team: float = 0.5
    wrong: float = -1.0
    broadcasts: ClassVar[bool] = True  # in part: what a voter earns depends on what follows

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        return {turn.id: self._reward(graded, turn) for turn in graded.episode.turns}

    def _reward(self, graded: GradedEpisode, turn: Turn) -> Reward:
        if graded.episode.outcome_class.failed:
            return marked("correct", "failed", 0.0)
        if turn.truncated:
            return marked("correct", "truncated", 0.0)
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER:
            return self._voter(graded, turn)
        if turn.claim is not None and turn.claim.kind is ClaimKind.CHOICE:
            return _aggregator(graded, turn)
        return marked("correct", "unjudged", None)

    def _voter(self, graded: GradedEpisode, turn: Turn) -> Reward:
        status, score = answer_status(graded, turn), graded.team.score
        if status is GradeStatus.FAILED or score is None:
            return marked("correct", "ungraded", None)
        right, read = status is GradeStatus.RIGHT, not unparsed(turn)
        parts = {"correct": float(right), "team": score, "wrong": float(read and not right)}
        total = self.own * parts["correct"] + self.team * score + self.wrong * parts["wrong"]
        return Reward(parts=parts if read else {**parts, "unparsed": 1.0}, total=total)


def _aggregator(graded: GradedEpisode, turn: Turn) -> Reward:
    offered = [answer_status(graded, one) for one in candidates(graded, turn)]
    if GradeStatus.FAILED in offered:
        return marked("correct", "ungraded", None)
    chosen = chosen_status(graded, turn) is GradeStatus.RIGHT
    value = (1.0 if chosen else -1.0) if GradeStatus.RIGHT in offered else 0.0
    return marked("correct", "unparsed", value) if unparsed(turn) else Reward(parts={"correct": value}, total=value)
