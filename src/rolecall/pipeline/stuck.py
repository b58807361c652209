"""Deadlock and starvation: who waits for whom, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rolecall.errors import RolecallError
from rolecall.pipeline.scheduler import Scheduler


class SchedulerStuck(RolecallError):
    """Nothing runs and nothing can start: a deadlock, or starvation."""

    kind = "stuck"


def explain_stuck(scheduler: Scheduler, extra: Sequence[str] = ()) -> SchedulerStuck:
    """The error of a run in which nothing can go on."""
    words = "; ".join([blocked(scheduler), *extra])
    return SchedulerStuck(f"nothing runs and nothing can start: {words}")


def blocked(scheduler: Scheduler) -> str:
    """Who waits for whom."""
    parts = [f"{scheduler.num_ready} completions are ready, {scheduler.num_waiting} wait for the next tick"]
    if scheduler.schedule.ticks:
        parts.append("the tick is open" if scheduler.open else "the learner was told to train and has not said it did")
        parts.append(f"{scheduler.num_complete} groups wait for the learner")
    else:
        parts += _blocked_overlapped(scheduler)
    return "; ".join(parts)


def _blocked_overlapped(scheduler: Scheduler) -> Iterator[str]:
    schedule = scheduler.schedule
    yield (
        f"the learner waits for {schedule.update_rows} completions in complete groups and has {scheduler.complete.rows}"
    )
    most = scheduler.max_started
    if most is not None and scheduler.ready.fresh is not None and not scheduler.ready.has_begun:
        yield (
            f"generation waits for the learner: {scheduler.started_rows} completions are started and not trained, and "
            f"a staleness of {schedule.tightest_bound} allows {most}"
        )
    for policy, oldest in scheduler.at_bound():
        yield (
            f"the learner of {policy!r} (version {scheduler.versions[policy]}) waits for "
            f"{scheduler.open_versions[policy][oldest]} groups begun under version {oldest}, which have to be trained "
            "before it moves on"
        )
