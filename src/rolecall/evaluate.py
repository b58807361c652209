"""Evaluation: the team and each role on held-out tasks; avg@k, pass@k, majority@k with intervals clustered by task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.dynamics.behaviour import outcome_counts, role_estimates
from rolecall.grading.episodes import team_answer
from rolecall.grading.votes import vote
from rolecall.intervals import Estimate, majority_at_k, paired_difference, pass_at_k, proportion
from rolecall.records import ClaimKind, GradedEpisode, GradeStatus, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Figures of one evaluation. `team` is the mean over all episodes started: an episode that failed is wrong.

    `first_answer` is the accuracy of the first turn that answers (the solver alone), over the same denominator, and
    `margin` the paired difference between team and first answer. `grader_failures` are left out of every rate.
    """

    team: Estimate
    first_answer: Estimate
    margin: Estimate
    pass_at_k: Estimate
    majority_at_k: Estimate
    k: int
    roles: dict[str, dict[str, Estimate]]
    outcomes: dict[str, int]
    grader_failures: int
    num_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; figures without a single trial are absent."""
        named = {
            "team": self.team,
            "first_answer": self.first_answer,
            "margin": self.margin,
            "pass_at_k": self.pass_at_k,
            "majority_at_k": self.majority_at_k,
        }
        return {
            **{name: estimate.to_dict() for name, estimate in named.items() if estimate.n},
            "k": self.k,
            "roles": {
                role: {name: estimate.to_dict() for name, estimate in figures.items() if estimate.n}
                for role, figures in self.roles.items()
            },
            "outcomes": self.outcomes,
            "grader_failures": self.grader_failures,
            "tokens": self.num_tokens,
        }


def first_answer(graded: GradedEpisode) -> Turn | None:
    """The first turn that claims an answer."""
    for turn in graded.episode.turns:
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER:
            return turn
    return None


def summarise(episodes: Sequence[GradedEpisode], k: int | None = None) -> Evaluation:
    """All figures of an evaluation from its graded episodes; `k` of pass@k and majority@k is at most the number of
    samples a task, and all of them when not given."""
    by_task: dict[str, list[GradedEpisode]] = defaultdict(list)
    failures = 0
    for graded in episodes:
        if graded.team.status is GradeStatus.FAILED:
            failures += 1
        else:
            by_task[graded.episode.task.id].append(graded)
    groups = [sorted(group, key=lambda g: g.episode.index) for group in by_task.values()]
    smallest = min((len(group) for group in groups), default=1)
    k = smallest if k is None else min(k, smallest)
    team = [[float(g.team.right) for g in group] for group in groups]
    first = [[_first_right(g) for g in group] for group in groups]
    return Evaluation(
        team=proportion(team),
        first_answer=proportion(first),
        margin=paired_difference(
            [[t - f for t, f in zip(a, b, strict=True)] for a, b in zip(team, first, strict=True)]
        ),
        pass_at_k=proportion([[pass_at_k(int(sum(rights)), len(rights), k)] for rights in team]),
        majority_at_k=proportion([[_majority(group, k)] for group in groups]),
        k=k,
        roles=role_estimates(episodes),
        outcomes=dict(outcome_counts(episodes)),
        grader_failures=failures,
        num_tokens=sum(turn.completion.num_tokens for g in episodes for turn in g.episode.turns),
    )


def _first_right(graded: GradedEpisode) -> float:
    turn = first_answer(graded)
    grade = graded.answers.get(turn.id) if turn is not None else None
    return float(grade is not None and grade.right)


def _majority(group: Sequence[GradedEpisode], k: int) -> float:
    votes = [vote(team_answer(g.episode), g.episode.task, right=g.team.right) for g in group]
    return majority_at_k(votes, [g.team.right for g in group], k)
