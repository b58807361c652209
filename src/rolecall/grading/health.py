"""How the graders of a run fare, step by step: what they did, what they lost, how long answers waited."""

from __future__ import annotations

from collections.abc import Mapping

from rolecall.grading.pool import GraderPool
from rolecall.grading.stats import PoolStats

COUNTS = {  # of PoolStats: under which name a run shows it
    "asked": "answers",
    "failed": "failed",
    "timeouts": "timeouts",
    "died": "died",
    "replaced": "replaced",
    "recycled": "recycled",
    "tests": "tests_run",
    "dropped": "tests_dropped",
    "speculated": "tests_ahead",
    "lost": "tests_lost",
    "broken": "tests_broken",
    "restarts": "sandbox_restarts",
}

FAULTS = {  # metrics that are 0 when all is well, and what they count
    "graders/timeouts": "answers past their deadline",
    "graders/died": "grader processes died",
    "graders/recycled": "grader processes replaced because they kept too much memory",
    "graders/tests_lost": "tests lost with their sandbox",
    "graders/tests_broken": "tests that do not run",
}


class GraderWatch:
    """What became of a pool since the last look."""

    def __init__(self, pool: GraderPool) -> None:
        self._pool = pool
        self._seen = pool.stats

    def metrics(self) -> dict[str, float]:
        """Counts since the last call, seconds that an answer waited for a worker in the mean, and memory held now."""
        now, before = self._pool.stats, self._seen
        self._seen = now
        return {**since(before, now), "graders/memory_mib": self._pool.held_mib()}


def since(before: PoolStats, now: PoolStats) -> dict[str, float]:
    """The figures of what came between two looks.

    >>> since(PoolStats(queued=1, queue_s=1.0), PoolStats(queued=3, queue_s=2.0))["graders/queue_s"]
    0.5
    """
    found = {f"graders/{key}": float(getattr(now, name) - getattr(before, name)) for name, key in COUNTS.items()}
    queued = now.queued - before.queued
    return found | {"graders/queue_s": (now.queue_s - before.queue_s) / queued if queued else 0.0}


def faults_in_words(metrics: Mapping[str, float]) -> str | None:
    """What went wrong in the graders of a step, for people; None when nothing did.

    >>> faults_in_words({"graders/timeouts": 2.0, "graders/failed": 2.0})
    'graders: 2 answers past their deadline; 2 answers have no grade, which is no 0'
    """
    found = [f"{metrics[key]:.0f} {words}" for key, words in FAULTS.items() if metrics.get(key)]
    if not found:
        return None
    return f"graders: {', '.join(found)}; {metrics.get('graders/failed', 0.0):.0f} answers have no grade, which is no 0"
