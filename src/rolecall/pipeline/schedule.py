"""When work moves on, as settings: the four ways of one scheduler (MarsRL, arXiv 2511.11373, section 3.3 and UloRL)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rolecall.errors import ConfigError, nearest

MODES: Mapping[str, str] = {
    "barrier": "collect every completion of the step's tasks, then learn",
    "pipeline": "a tick ends when its completions do: what they complete is trained, later agents join the next tick",
    "pipeline_segments": "as pipeline, and a completion is cut after segment_tokens and goes on in the next tick",
    "overlapped": "generation never waits for learning, within a bound on staleness",
}
ORDERS: Mapping[str, str] = {
    "deepest_first": "unfinished completions, then the deepest stage, then new tasks",
    "oldest_first": "unfinished completions, then the task that was admitted first",
    "shallowest_first": "unfinished completions, then new tasks, then the next stage",
}
STALE_RULES: Mapping[str, str] = {
    "wait": "the learner waits for old completions, so that none passes the bound",
    "drop": "a group with a completion that passed the bound is not trained",
    "mask": "tokens that passed the bound are not trained, younger ones of the same completion are",
}
RELEASES: Mapping[str, str] = {
    "complete": "a group is trained when all its completions have ended",
    "arrived": "completions that have ended are trained in that tick, compared with those that end in the same one",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """How generation and learning take turns.

    `segment_tokens`: most tokens that a completion gets before it goes back in line (`pipeline_segments`, and
    `overlapped` where set). `order`: who goes first when not all fit. `max_rows`: most completions in one tick, or in
    flight when `overlapped`; new tasks are admitted only where they fit (None: the step's tasks, whatever is under
    way). `release`: when the members of a group are trained.

    `max_staleness`: bound on learner version minus the version of a completion's oldest token when it is trained, by
    `max_staleness_by_policy` for the policies it names; `on_stale` says what keeps it. None: no bound, which barrier
    and ticks do not need: a completion lives for as many ticks as it has segments. `update_rows`: completions in an
    update when `overlapped`, rounded up to whole groups. Completions that are started and not in the weights yet number
    at most (max_staleness + 1) times as many, so that the bound can be held when the learner is the slower part.
    New tasks are admitted while fewer than the step's tasks are at their first call, which staggers the chains:
    admitted all at once they would move in step, and an update would hold one role's completions alone.

    >>> Schedule(mode="pipeline_segments", segment_tokens=16384).ticks
    True
    """

    mode: str = "barrier"
    segment_tokens: int | None = None
    order: str = "deepest_first"
    max_rows: int | None = None
    release: str = "complete"
    max_staleness: int | None = None
    max_staleness_by_policy: Mapping[str, int] = field(default_factory=dict)
    on_stale: str = "wait"
    update_rows: int | None = None

    def __post_init__(self) -> None:
        for name, known in (("mode", MODES), ("order", ORDERS), ("on_stale", STALE_RULES), ("release", RELEASES)):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(
                    f"schedule.{name} is {value!r}; wanted one of {', '.join(known)}{nearest(str(value), known)}"
                )
        for name in ("segment_tokens", "max_rows", "update_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"schedule.{name} is {value}; wanted 1 or more")
        bounds = {"max_staleness": self.max_staleness, **self.max_staleness_by_policy}
        for name, bound in bounds.items():
            if bound is not None and bound < 0:
                raise ConfigError(f"schedule: the staleness bound {name!r} is {bound}; wanted 0 or more")
        if self.mode == "pipeline_segments" and self.segment_tokens is None:
            raise ConfigError("schedule.mode 'pipeline_segments' wants schedule.segment_tokens, tokens a tick")
        if self.mode in ("barrier", "pipeline") and self.segment_tokens is not None:
            raise ConfigError(
                f"schedule.segment_tokens is {self.segment_tokens} and mode {self.mode!r} cuts no completion; use "
                "'pipeline_segments', or leave it out"
            )
        if self.mode == "overlapped":
            if self.update_rows is None:
                raise ConfigError("schedule.mode 'overlapped' wants schedule.update_rows, the completions of an update")
            if self.max_staleness is None:
                raise ConfigError("schedule.mode 'overlapped' wants schedule.max_staleness, e.g. 2")
        elif self.update_rows is not None:
            raise ConfigError(
                f"schedule.update_rows belongs to mode 'overlapped'; mode {self.mode!r} trains what a tick completes"
            )
        elif bounds != {"max_staleness": None} and self.on_stale == "wait":
            raise ConfigError(
                f"schedule.max_staleness in mode {self.mode!r} cannot be held by waiting, for a tick waits for all of "
                "its completions; use on_stale = 'drop' or 'mask', or leave the bound out"
            )
        if self.release == "arrived" and self.mode == "overlapped":
            raise ConfigError("schedule.release 'arrived' belongs to ticks; mode 'overlapped' trains complete groups")

    @property
    def ticks(self) -> bool:
        """Whether generation and learning take turns."""
        return self.mode != "overlapped"

    def bound(self, policy: str) -> int | None:
        """The staleness bound of a policy."""
        return self.max_staleness_by_policy.get(policy, self.max_staleness)

    def max_started(self, group_size: int) -> int | None:
        """Most completions that are started and not in the weights yet; None: no bound. An update takes whole groups,
        so its size is `update_rows` rounded up to them."""
        if self.mode != "overlapped":
            return None
        assert self.update_rows is not None
        assert self.tightest_bound is not None
        return (self.tightest_bound + 1) * -(-self.update_rows // group_size) * group_size

    @property
    def tightest_bound(self) -> int | None:
        """The smallest staleness bound of any policy."""
        bounds = [self.max_staleness, *self.max_staleness_by_policy.values()]
        return min((bound for bound in bounds if bound is not None), default=None)

    def check_policies(self, policies: Collection[str]) -> None:
        """`ConfigError` when a bound is for a policy that there is none of."""
        for name in self.max_staleness_by_policy:
            if name not in policies:
                raise ConfigError(
                    f"schedule.max_staleness_by_policy names the unknown policy {name!r}{nearest(name, policies)}"
                )

    def check_group(self, group_size: int) -> None:
        """`ConfigError` when a group of that many completions could never be admitted."""
        if self.ticks and self.max_rows is not None and self.max_rows < group_size:
            raise ConfigError(
                f"schedule.max_rows is {self.max_rows} and a group has {group_size} completions, so that no task would "
                f"ever be admitted; wanted {group_size} or more"
            )
