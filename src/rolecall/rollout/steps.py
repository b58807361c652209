"""What a training step is given, wherever its episodes come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from rolecall.records import GradedEpisode
from rolecall.rollout.transcript import Transcript

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEpisodes:
    """The graded episodes of a step: all that are counted, and the ids of those whose turns are not trained.

    `min_version` is the oldest policy version whose tokens are trained, by policy (a policy that is not named: any).
    `tokens` counts what was generated since the last step's episodes, retries included, in `generating_s` seconds; a
    source that never waits generates while others work, which is not in `times`, the seconds of the step by what took
    them. `transcripts` replay the episodes, by id.
    """

    graded: Sequence[GradedEpisode]
    untrained: frozenset[str] = frozenset()
    metrics: Mapping[str, float] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    tokens: int = 0
    transcripts: Mapping[str, Transcript] = field(default_factory=dict)
    min_version: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    generating_s: float = 0.0

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

    def restore(self, state: Mapping[str, Any], versions: Mapping[str, int]) -> None:
        """Go on from what `state` gave, with the versions that the policies have now."""
        ...

    def close(self) -> None: ...
