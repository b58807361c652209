"""Rewards made of several named parts, weighed by role."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rolecall.errors import ConfigError, nearest
from rolecall.records import GradedEpisode, Reward, Turn
from rolecall.rewards.agent_specific import AgentSpecific
from rolecall.rewards.base import MARKS, RewardFunction, marked
from rolecall.rewards.outcome import TeamOutcome
from rolecall.rewards.truth import unparsed


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """1 when the turn ended by itself and its claim could be parsed, else 0: part `format`. A turn that claims nothing
    has no reward."""

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        return {turn.id: _format(graded, turn) for turn in graded.episode.turns}


def _format(graded: GradedEpisode, turn: Turn) -> Reward:
    if graded.episode.outcome_class.failed:
        return marked("format", "failed", 0.0)
    if turn.truncated:
        return marked("format", "truncated", 0.0)
    if turn.claim is None:
        return marked("format", "unjudged", None)
    if unparsed(turn):
        return marked("format", "unparsed", 0.0)
    return Reward(parts={"format": 1.0}, total=1.0)


PARTS: Mapping[str, RewardFunction] = {"team": TeamOutcome(), "correct": AgentSpecific(), "format": Format()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mixed:
    """The weighted sum of named parts: `weights` for every role, `by_role` in their place for the roles it names.

    Parts: `team`, `correct`, `format`, and those of `extra`, a reward by name. A part with weight 0 is shown and does
    not count. When a part with weight cannot be given (the grader failed, the turn claims nothing) the turn has no
    reward: part of a sum on another scale is not compared with whole ones. `Reward.team` is set only where nothing
    but the team's outcome counts.

    >>> Mixed(weights={"team": 0.5, "correct": 0.5}, by_role={"planner": {"team": 1.0}}).weights_of("planner")
    {'team': 1.0}
    """

    weights: Mapping[str, float]
    by_role: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    extra: Mapping[str, RewardFunction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clashing = sorted(set(self.extra) & (set(PARTS) | set(MARKS)))
        if clashing:
            raise ConfigError(f"mixed.extra names {clashing[0]!r}, which is taken; give the part another name")
        _check_weights("mixed.weights", self.weights, self.sources)
        for role, weights in self.by_role.items():
            _check_weights(f"mixed.by_role.{role}", weights, self.sources)

    @property
    def broadcasts(self) -> bool:
        """Whether a part with weight depends on the outcome of what follows a turn."""
        weighed = {part for weights in (self.weights, *self.by_role.values()) for part in weights if weights[part]}
        return any(getattr(self.sources[part], "broadcasts", False) for part in weighed)

    @property
    def sources(self) -> dict[str, RewardFunction]:
        return {**PARTS, **self.extra}

    def weights_of(self, role: str) -> dict[str, float]:
        return dict(self.by_role.get(role, self.weights))

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        named = {*self.weights, *(part for weights in self.by_role.values() for part in weights)}
        found = {part: source(graded) for part, source in self.sources.items() if part in named}
        turns = graded.episode.turns
        return {
            turn.id: _mix({part: given[turn.id] for part, given in found.items()}, self.weights_of(turn.role))
            for turn in turns
        }


def _mix(given: Mapping[str, Reward], weights: Mapping[str, float]) -> Reward:
    """The reward of one turn from what each source gave it; only parts that the role's weights name are shown."""
    parts: dict[str, float] = {}
    total: float | None = 0.0
    for name, weight in weights.items():
        reward = given[name]
        parts |= {mark: value for mark, value in reward.parts.items() if mark in MARKS}
        if reward.total is not None:
            parts[name] = reward.total
        if weight and total is not None:
            total = None if reward.total is None else total + weight * reward.total
    team = all(given[name].team for name, weight in weights.items() if weight)
    return Reward(parts=parts, total=total, team=team)


def _check_weights(where: str, weights: Mapping[str, float], known: Mapping[str, RewardFunction]) -> None:
    for part, weight in weights.items():
        if part not in known:
            raise ConfigError(f"{where} names the part {part!r}{nearest(part, known)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise ConfigError(f"{where}.{part} is {weight!r}; wanted a finite number")
    if not any(weights.values()):
        raise ConfigError(f"{where} gives no part a weight other than 0; name at least one of {', '.join(known)}")
