"""What engines and learners did over time, in bins that widen as the run goes on, so that a long run fits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rolecall.simulation.costs import Costs
from rolecall.simulation.simulate import Recorder

BINS = 960
ENGINE_LANES = 12
LEARNER_LANES = 4
STALLED = "(stalled)"


class Timeline(Recorder):
    """Rows times seconds by lane, role and bin. Engines beyond `ENGINE_LANES` share lanes, as do learners, which all do
    the same at the same time.

    `rows`: [lanes, roles + 1, bins], the last of the roles for rows that stood still. `guess_s` is how long the run
    will be at least.
    """

    def __init__(self, name: str, roles: Sequence[str], costs: Costs, guess_s: float) -> None:
        self.name, self.roles = name, tuple(roles)
        self.slots = costs.engines.slots
        self.num_engines, self.num_learners = costs.engines.count, costs.learners.count
        lanes = min(ENGINE_LANES, self.num_engines)
        self.lane_of = [number * lanes // self.num_engines for number in range(self.num_engines)]
        self.engines_in = [self.lane_of.count(lane) for lane in range(lanes)]
        self.width_s = max(guess_s, 1e-9) / BINS
        self.end_s = 0.0
        self.updates: list[tuple[float, float, float]] = []
        self._rows: NDArray[np.float64] = np.zeros((lanes, len(self.roles) + 1, BINS))
        self._places = {role: place for place, role in enumerate(self.roles)}

    def engine(self, number: int, begin_s: float, end_s: float, stalled_until_s: float, roles: dict[str, int]) -> None:
        lane, stalled = self.lane_of[number], len(self.roles)
        if stalled_until_s > begin_s:
            self._add(lane, stalled, begin_s, stalled_until_s, sum(roles.values()))
        for role, rows in roles.items():
            if rows and end_s > stalled_until_s:
                self._add(lane, self._places[role], stalled_until_s, end_s, rows)

    def update(self, begin_s: float, learned_s: float, end_s: float) -> None:
        if end_s > begin_s:
            self.updates.append((begin_s, learned_s, end_s))
        self.end_s = max(self.end_s, end_s)

    def shares(self, bins: int) -> NDArray[np.float64]:
        """[lanes, roles + 1, bins]: which share of a lane's slots was taken, over `bins` equal parts of the run as far
        as they are whole bins."""
        capacity = np.array(self.engines_in, dtype=float)[:, None, None] * self.slots * self.width_s
        return np.asarray(self._rows[:, :, :bins] / capacity)

    def _add(self, lane: int, role: int, begin_s: float, end_s: float, rows: int) -> None:
        self.end_s = max(self.end_s, end_s)
        while end_s > self.width_s * BINS:
            self._widen()
        first, last = int(begin_s / self.width_s), min(BINS - 1, int(end_s / self.width_s))
        cells = self._rows[lane, role]
        if first == last:
            cells[first] += rows * (end_s - begin_s)
            return
        cells[first] += rows * ((first + 1) * self.width_s - begin_s)
        cells[last] += rows * (end_s - last * self.width_s)
        cells[first + 1 : last] += rows * self.width_s

    def _widen(self) -> None:
        """Two bins become one."""
        half = self._rows[:, :, ::2] + self._rows[:, :, 1::2]
        self._rows = np.concatenate([half, np.zeros_like(half)], axis=2)
        self.width_s *= 2.0
