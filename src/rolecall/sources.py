"""Where a training step's episodes come from: what every source gives, and the one of independent episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from rolecall.grading.episodes import grade_episodes
from rolecall.grading.pool import GraderPool
from rolecall.inflight import InFlight, blank_transcripts
from rolecall.records import EMPTY, GradedEpisode
from rolecall.rollout.collector import Collected, Collector
from rolecall.rollout.samplers import Sampler
from rolecall.rollout.transcript import Transcript
from rolecall.tasks.stream import TaskStream

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEpisodes:
    """The graded episodes of a step: all that are counted, and the ids of those whose turns are not trained.

    `min_version` is the oldest policy version whose tokens are trained, by policy (a policy that is not named: any).
    `tokens` counts what was generated in the step, retries included; `times` are seconds by what took them.
    `transcripts` replay the episodes, by id.
    """

    graded: Sequence[GradedEpisode]
    untrained: frozenset[str] = frozenset()
    metrics: Mapping[str, float] = EMPTY
    outcomes: Mapping[str, int] = EMPTY
    tokens: int = 0
    transcripts: Mapping[str, Transcript] = EMPTY
    min_version: Mapping[str, int] = EMPTY
    times: Mapping[str, float] = EMPTY

    @property
    def trained(self) -> list[GradedEpisode]:
        return [one for one in self.graded if one.episode.id not in self.untrained]


class EpisodeSource(Protocol):
    """Gives the episodes of each step; what it has under way between steps is part of the checkpoint."""

    def collect(self, step: int) -> StepEpisodes: ...

    def beside(self, work: Callable[[], T]) -> T:
        """Do `work` (learning); a source that never waits goes on generating meanwhile."""
        ...

    def updated(self, versions: Mapping[str, int]) -> None:
        """The step's update is published: the versions of the policies now."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class IndependentSource:
    """`tasks_per_step` tasks a step, `n` independent episodes each, all of them collected before learning."""

    collector: Collector
    sampler: Sampler
    stream: TaskStream
    graders: GraderPool
    tasks_per_step: int
    inflight: InFlight | None = None
    version: Callable[[str], int] = field(default=lambda policy: 0)

    def collect(self, step: int) -> StepEpisodes:
        begun = time.monotonic()
        collected = self._collect(step)
        generated = time.monotonic()
        graded = grade_episodes(collected.episodes, self.graders)
        rights = [g.team.score for g in graded if g.team.score is not None]
        every = [g.episode for g in graded] + list(collected.abandoned)
        return StepEpisodes(
            graded=graded,
            untrained=collected.dropped,
            metrics={
                **collected.counts.metrics(),
                "reward/team": sum(rights) / max(1, len(rights)),
                "grading/failed": float(len(graded) - len(rights)),
            },
            outcomes=collected.counts.outcomes,
            tokens=sum(len(turn.completion.token_ids) for episode in every for turn in episode.turns),
            transcripts={one.id: one for one in collected.transcripts},
            times={"generate": generated - begun, "grade": time.monotonic() - generated},
        )

    def _collect(self, step: int) -> Collected:
        """The step's episodes; with a journal, those that were in flight go on with their recorded calls."""
        plans = self.sampler.plans(self.stream.take(self.tasks_per_step))
        if self.inflight is None:
            return self.collector.collect(plans, step)
        settings = self.collector.settings
        blanks = blank_transcripts(plans, step=step, run_seed=settings.run_seed, attempts=settings.max_retries + 1)
        recorded = self.inflight.begin(step, blanks, self.version)
        try:
            return self.collector.collect(plans, step, recorded)
        finally:
            self.inflight.end(step)

    def beside(self, work: Callable[[], T]) -> T:
        return work()

    def updated(self, versions: Mapping[str, int]) -> None:
        return

    def state(self) -> dict[str, Any]:
        return {"stream": self.stream.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.stream.restore(state["stream"])

    def close(self) -> None:
        self.collector.close()
