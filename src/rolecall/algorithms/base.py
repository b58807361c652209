"""An algorithm: a sampler, a reward, credit, and a loss under one name. The learner cannot tell which one runs."""

from __future__ import annotations

import math
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rolecall.algorithms.loss import Loss
from rolecall.credit.assign import CreditCounts, assign, check_alone
from rolecall.credit.balance import balance, truths
from rolecall.credit.estimators import Estimator, MeanStd, RunningMean
from rolecall.credit.metrics import credit_metrics, reward_metrics
from rolecall.credit.units import Grouping, Scored, build_units, split_by_role
from rolecall.errors import ConfigError, RolecallError, boundary
from rolecall.records import EMPTY, CreditUnit, GradedEpisode, Reward
from rolecall.rewards.base import RewardFunction, zero
from rolecall.rewards.outcome import TeamOutcome
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.samplers import IndependentEpisodes, Sampler


@dataclass(frozen=True, kw_only=True, slots=True)
class CreditResult:
    """What a step's episodes earned. `state` goes into the next step, and into the checkpoint: plain JSON values."""

    units: tuple[CreditUnit, ...]
    metrics: Mapping[str, float]
    counts: CreditCounts
    scored: tuple[Scored, ...]
    state: Mapping[str, Any]

    @property
    def advantages(self) -> dict[str, float]:
        """The advantage of every turn that has one, by turn id."""
        return {turn_id: unit.advantage for unit in self.units for turn_id in unit.turn_ids}


@dataclass(frozen=True, kw_only=True, slots=True)
class Algorithm:
    """How episodes are drawn, rewarded, compared and learned from; every field is a choice of its own.

    `balance_verdicts`: advantages of verdicts about right and about wrong answers are weighed so that both kinds count
    alike in the step, by a factor of at most `balance_cap` (`credit/balance.py`).

    >>> Algorithm(name="mine", alone="raw").grouping.peers
    'task_role'
    """

    name: str
    sampler: Sampler = field(default_factory=lambda: IndependentEpisodes(n=8))
    reward: RewardFunction = field(default_factory=TeamOutcome)
    grouping: Grouping = field(default_factory=Grouping)
    estimator: Estimator = field(default_factory=MeanStd)
    alone: str = "zero"
    balance_verdicts: bool = False
    balance_cap: float = 4.0
    loss: Loss = field(default_factory=Loss)

    def __post_init__(self) -> None:
        check_alone(self.alone)
        self._check_balance()
        self._check_sampler()
        if not self.needs_peers or self.alone != "zero" or self.grouping.within_episode:
            return
        single = isinstance(self.sampler, IndependentEpisodes) and self.sampler.n < 2
        if single and self.grouping.peers != "role":
            raise ConfigError(
                f"algorithm {self.name!r} compares the episodes of a task and n is 1, so every unit "
                f"would be alone and nothing would be learned; wanted n = 2 or more, or alone = 'running_mean'"
            )

    def _check_sampler(self) -> None:
        """Agentic groups draw turns, and `drawn` compares what they draw."""
        agentic, grouping = isinstance(self.sampler, AgenticGroups), self.grouping
        if agentic and grouping.unit != "turn":
            raise ConfigError(
                f"algorithm {self.name!r} draws agentic groups, in which every turn is a candidate of its own, and "
                f"unit is {grouping.unit!r}; use unit = 'turn'"
            )
        if grouping.peers == "drawn" and not agentic:
            raise ConfigError(
                f"algorithm {self.name!r}: peers = 'drawn' compares the candidates of agentic groups, and the sampler "
                f"is {type(self.sampler).__name__}; use peers = 'prompt', or the algorithm 'marsrl'"
            )

    @property
    def broadcasts(self) -> bool:
        """Whether the reward of a turn depends on the outcome of what follows it."""
        return bool(getattr(self.reward, "broadcasts", False))

    def _check_balance(self) -> None:
        if not 1.0 <= self.balance_cap < math.inf:
            raise ConfigError(
                f"algorithm {self.name!r}: balance_cap is {self.balance_cap!r}; wanted a finite number, 1 or more"
            )
        if self.balance_verdicts and self.grouping.unit != "turn":
            raise ConfigError(
                f"algorithm {self.name!r}: balance_verdicts weighs single verdicts, and a unit is the whole "
                f"{self.grouping.unit}; use unit = 'turn', or leave balance_verdicts out"
            )

    @property
    def needs_peers(self) -> bool:
        return not isinstance(self.estimator, RunningMean)

    def rewards_of(self, one: GradedEpisode) -> Mapping[str, Reward]:
        """What the reward gives the turns of an episode; one that raises is named with its line."""
        try:
            with boundary(RolecallError, f"the reward of algorithm {self.name!r}, on episode {one.episode.id!r},"):
                return self.reward(one)
        except RolecallError as error:
            if error.__cause__ is None:
                raise
            last = traceback.extract_tb(error.__cause__.__traceback__)[-1]
            raise RolecallError(f"{error} (line {last.lineno} of {last.filename}, in {last.name})") from error

    def advantages(
        self, graded: Sequence[GradedEpisode], state: Mapping[str, Any] = EMPTY, *, zeroed: Collection[str] = ()
    ) -> CreditResult:
        """Rewards, units and advantages of the episodes of one step; pure, and blind to the episodes' order. Turns of
        the episodes in `zeroed`, by id, have reward 0 whatever the reward says."""
        in_order = sorted(graded, key=lambda one: one.episode.id)
        scored = tuple(
            Scored(graded=one, rewards=zero(given) if one.episode.id in zeroed else given)
            for one, given in ((one, self.rewards_of(one)) for one in in_order)
        )
        built = build_units(scored, self.grouping)
        assigned = assign(
            built.units,
            self.estimator,
            self.alone,
            baselines=state.get("baselines", EMPTY),
            within_episode=self.grouping.within_episode,
        )
        units, balanced = assigned.units, dict[str, float]()
        if self.balance_verdicts:
            units, balanced = balance(units, truths(scored), self.balance_cap)
        if self.grouping.unit == "episode":
            units = split_by_role(units, {turn.id: turn for one in in_order for turn in one.episode.turns})
        counts = replace(
            assigned.counts,
            unrewarded_turns=built.unrewarded_turns,
            unrewarded_units=built.unrewarded_units,
            empty_episodes=built.empty_episodes,
        )
        return CreditResult(
            units=units,
            metrics={**reward_metrics(scored), **credit_metrics(units, counts), **balanced},
            counts=counts,
            scored=scored,
            state={**state, "baselines": dict(assigned.baselines)},
        )
