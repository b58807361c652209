"""The order in which training meets its tasks: shuffled epochs, and a cursor that a checkpoint holds."""

from __future__ import annotations

import random
from typing import Any

from rolecall.errors import CheckpointError, TaskError
from rolecall.records import Task
from rolecall.tasks.base import TaskSet, require_fingerprint


class TaskStream:
    """A cursor over endless epochs, each in an order of its own that `seed` and its number decide.

    One `take` never holds a task twice: where it crosses into the next epoch, the tasks it already has come last there.
    Every epoch holds every task once.
    """

    def __init__(self, tasks: TaskSet, *, seed: int) -> None:
        if not tasks.tasks:
            raise TaskError(f"the {tasks.name} set is empty; there is nothing to draw tasks from")
        self._set = tasks
        self._seed = seed
        self._epoch = 0
        self._position = 0
        self._late: list[int] = []
        self._order = self._shuffled()

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def size(self) -> int:
        """How many tasks an epoch has, which is the most that one `take` gives."""
        return len(self._set)

    def take(self, n: int) -> list[Task]:
        """The next `n` tasks, all different."""
        if not 1 <= n <= len(self._set):
            raise TaskError(
                f"a step asks for {n} tasks; the {self._set.name} set has {len(self._set)}, and a step draws a task "
                f"at most once: lower the tasks per step, or load more tasks"
            )
        taken = self._order[self._position : self._position + n]
        self._position += len(taken)
        if len(taken) < n:
            self._epoch += 1
            self._late = taken
            self._order = self._shuffled()
            self._position = n - len(taken)
            taken = taken + self._order[: self._position]
        return [self._set.tasks[index] for index in taken]

    def state(self) -> dict[str, Any]:
        """Plain data from which `restore` goes on exactly here."""
        return {
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "late": list(self._late),
            "fingerprint": self._set.fingerprint,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; `CheckpointError` when it belongs to other tasks or another seed."""
        require_fingerprint(str(state["fingerprint"]), self._set.fingerprint, f"the cursor of the {self._set.name} set")
        if state["seed"] != self._seed:
            raise CheckpointError(
                f"the task cursor was saved under seed {state['seed']}, this run has seed {self._seed}; resume with "
                f"the saved seed, or start a new run"
            )
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
        self._late = [int(index) for index in state["late"]]
        self._order = self._shuffled()

    def _shuffled(self) -> list[int]:
        order = list(range(len(self._set)))
        random.Random(f"tasks {self._seed} {self._epoch}").shuffle(order)
        late = set(self._late)
        return [index for index in order if index not in late] + [index for index in order if index in late]
