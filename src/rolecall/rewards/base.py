"""What a reward is: a callable object that gives every turn of a graded episode a `Reward` made of named parts.

Besides its parts a reward may carry *marks*: 1.0 under a name of `MARKS`, with no weight in the total. They say why a
number is what it is, and the metrics turn them into shares of all turns of the role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rolecall.records import GradedEpisode, Reward

MARKS: Mapping[str, str] = {
    "failed": "the episode failed (invalid, error, timeout)",
    "truncated": "a completion was cut off by the length limit",
    "unparsed": "the claim could not be parsed",
    "ungraded": "the grader failed: no reward",
    "unjudged": "the turn claims nothing that can be checked: no reward of its own",
}


class RewardFunction(Protocol):
    """Gives each turn of the episode, by turn id, its reward; pure, and the same for the same episode."""

    def __call__(self, graded: GradedEpisode) -> Mapping[str, Reward]: ...


def zero(rewards: Mapping[str, Reward]) -> dict[str, Reward]:
    """The rewards of a failed episode that is trained with reward 0: what differs from 0 becomes 0, marked `failed`."""
    failed = {turn: Reward(parts={"failed": 1.0}, total=0.0, team=one.team) for turn, one in rewards.items()}
    return {turn: one if one.total == 0.0 else failed[turn] for turn, one in rewards.items()}


def marked(part: str, mark: str, total: float | None, *, team: bool = False) -> Reward:
    """A reward that is what it is for one reason: `total` under `part` (absent when None), and the mark.

    >>> marked("correct", "unparsed", 0.0).parts
    {'correct': 0.0, 'unparsed': 1.0}
    """
    assert mark in MARKS
    parts = {mark: 1.0} if total is None else {part: total, mark: 1.0}
    return Reward(parts=parts, total=total, team=team)
