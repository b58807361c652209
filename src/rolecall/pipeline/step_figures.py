"""What a step of the pipeline hands over: its graded candidates, and the counts of what happened meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from rolecall.pipeline.candidates import GOES_ON, GroupWork
from rolecall.pipeline.chains import PickCounts
from rolecall.pipeline.scheduler import Released, Scheduler
from rolecall.records import Grade, GradedEpisode, GradeStatus, OutcomeClass
from rolecall.rollout.steps import StepEpisodes
from rolecall.rollout.transcript import Transcript


@dataclass(slots=True)
class Tick:
    """What happened since the last step's episodes were handed over: `admitted` tasks, and of their first groups those
    that were `flat` (no two candidates with different scores) and how many tasks were admitted for them (`refilled`);
    `tokens` generated; calls by how they ended."""

    picks: PickCounts = field(default_factory=PickCounts)
    admitted: int = 0
    flat: int = 0
    refilled: int = 0
    tokens: int = 0
    retried: int = 0
    overlong: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    chains_ended: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint: overlapped, a step goes on while the one before it is saved."""
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            **{name: dict(getattr(self, name)) for name in _COUNTERS},
            "ended": [[role, call, count] for (role, call), count in self.ended.items()],
            "picks": self.picks.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tick:
        counters: dict[str, Any] = {name: Counter(data[name]) for name in _COUNTERS}
        return cls(
            **{name: data[name] for name in _NUMBERS},
            **counters,
            ended=Counter({(role, call): count for role, call, count in data["ended"]}),
            picks=PickCounts.from_dict(data["picks"]),
        )


_NUMBERS = ("admitted", "flat", "refilled", "tokens", "retried", "overlong")
_COUNTERS = ("failed", "chains_ended", "outcomes")


@dataclass(slots=True)
class Clock:
    """Seconds in which completions were generated, and seconds that passed with grading alone."""

    generating_s: float = 0.0
    grading_s: float = 0.0
    gradings: int = 0
    at: float = 0.0

    def begin(self) -> None:
        """The event loop goes on: what passed since it stood still is nobody's."""
        self.at = time.monotonic()

    def mark(self, running: int) -> None:
        """Something is about to change; so far `running` completions were with the engine."""
        now = time.monotonic()
        if running:
            self.generating_s += now - self.at
        elif self.gradings:
            self.grading_s += now - self.at
        self.at = now


def hand_over(
    released: Sequence[Released],
    tick: Tick,
    scheduler: Scheduler,
    *,
    chains: int,
    stages: int,
    back_up: bool = False,
    drop_failed: bool = False,
) -> StepEpisodes:
    """The step's episodes, of `released` groups, without its times; `chains` are under way, of `stages` calls at
    most. With `drop_failed` those that failed after their turn are not trained."""
    graded: list[GradedEpisode] = []
    ends: list[GradedEpisode] = []
    untrained: set[str] = set()
    dropped = 0
    transcripts: dict[str, Transcript] = {}
    for one in released:
        work: GroupWork = one.group.data
        for row in one.rows:
            episode = work.graded[row.number]
            if episode is None:
                assert row.failed, f"a completion of {one.group.place} ended and was not graded"
                continue
            graded.append(backed_up(work, row.number) if back_up else episode)
            if one.group.stage + 1 == stages or not goes_on(episode):
                ends.append(episode)
            transcripts[episode.episode.id] = work.stood(row.number)
            failed = drop_failed and episode.episode.outcome_class.failed
            dropped += failed
            if one.drop or failed:
                untrained.add(episode.episode.id)
    outcomes = Counter(str(one.episode.outcome_class) for one in graded) + tick.outcomes + tick.failed
    return StepEpisodes(
        graded=graded,
        untrained=frozenset(untrained),
        metrics={**step_metrics(released, graded, ends, tick, scheduler, chains), "calls/dropped": float(dropped)},
        outcomes={str(kind): outcomes[str(kind)] for kind in OutcomeClass},
        tokens=tick.tokens,
        transcripts=transcripts,
        min_version=min_versions(scheduler),
    )


def min_versions(scheduler: Scheduler) -> dict[str, int]:
    """Under the rule `mask`: the oldest version whose tokens are trained, by policy."""
    if scheduler.schedule.on_stale != "mask":
        return {}
    bounds = {policy: scheduler.schedule.bound(policy) for policy in scheduler.versions}
    return {policy: scheduler.versions[policy] - bound for policy, bound in bounds.items() if bound is not None}


def step_metrics(
    released: Sequence[Released],
    graded: Sequence[GradedEpisode],
    ends: Sequence[GradedEpisode],
    tick: Tick,
    scheduler: Scheduler,
    chains: int,
) -> dict[str, float]:
    """The rows of the metrics file; `chains` are under way. `ends`: of `graded` those after which their path has no
    further call, as the workflow or the sampler's last stage has it: what the team answers."""
    metrics = {
        "calls/ended": float(sum(tick.ended.values())),
        "calls/failed": float(sum(tick.failed.values())),
        "calls/retried": float(tick.retried),
        "calls/overlong": float(tick.overlong),
        "chains/admitted": float(tick.admitted),
        "chains/refilled": float(tick.refilled),
        "chains/flat": float(tick.flat),
        "chains/ended": float(sum(tick.chains_ended.values())),
        "chains/in_flight": float(chains),
        "pipeline/groups": float(len(released)),
        "pipeline/groups_dropped": float(sum(one.drop for one in released)),
        "pipeline/unfinished": float(scheduler.num_unfinished),
        "pipeline/waiting": float(scheduler.num_waiting + scheduler.num_ready),
        "pipeline/waiting_for_learner": float(scheduler.num_complete),
        "grading/failed": float(sum(one.team.score is None for one in graded)),
    }
    metrics |= {f"chains/ended_{why}": float(count) for why, count in sorted(tick.chains_ended.items())}
    metrics |= {f"calls/{role}/{call}/ended": float(count) for (role, call), count in sorted(tick.ended.items())}
    metrics |= tick.picks.metrics()
    for policy in scheduler.versions:
        ages = [one.staleness for one in released if one.group.policy == policy and not one.drop]
        if ages:
            metrics[f"staleness/{policy}/max"] = float(max(ages))
            metrics[f"staleness/{policy}/mean"] = fmean(ages)
    scores = [score for one in ends if (score := one.team.score) is not None]
    if scores:
        metrics["reward/team"] = fmean(scores)
    return metrics


def goes_on(graded: GradedEpisode) -> bool:
    """Whether the workflow makes another call after the candidate."""
    outcome = graded.episode.outcome
    return outcome is not None and outcome.reason == GOES_ON


def backed_up(work: GroupWork, number: int) -> GradedEpisode:
    """A candidate with the mean outcome of those below it in the place of its own (as MALT backs values up)."""
    graded = work.graded[number]
    assert graded is not None
    if number not in work.children:
        return graded
    value = outcome_below(work, number)
    if value is None:
        return replace(graded, team=Grade(status=GradeStatus.FAILED, score=None, detail="no outcome below has a grade"))
    status = GradeStatus.RIGHT if value >= 0.5 else GradeStatus.WRONG
    return replace(graded, team=Grade(status=status, score=value, detail="mean over the outcomes below"))


def outcome_below(work: GroupWork, number: int) -> float | None:
    """The outcome of a leaf; of any other candidate the mean over those of its group of successors."""
    graded = work.graded[number]
    following = work.children.get(number)
    if following is None:
        return graded.team.score if graded is not None else None
    below: GroupWork = following.data
    values = [value for index in range(len(below.completions)) if (value := outcome_below(below, index)) is not None]
    return fmean(values) if values else None
