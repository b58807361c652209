"""What a pool of graders counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolStats:
    """Counts since the pool was made: grades asked for, given without a worker (plain or cached), failed; answers that
    ran into their deadline, workers that died, workers that were replaced, workers ended
    because they had kept too much memory (they are replaced too). Of programs: tests run, tests that a failure
    made needless, tests run ahead of need, tests whose sandbox failed, tests that do not run whatever the program,
    sandboxes that were started again. `queued` answers and programs waited `queue_s` seconds in all for a worker."""

    asked: int = 0
    plain: int = 0
    cached: int = 0
    failed: int = 0
    timeouts: int = 0
    died: int = 0
    replaced: int = 0
    recycled: int = 0
    tests: int = 0
    dropped: int = 0
    speculated: int = 0
    lost: int = 0
    broken: int = 0
    restarts: int = 0
    queued: int = 0
    queue_s: float = 0.0
