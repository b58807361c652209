"""The cliff guard: watches the validations of a run, and warns, stops it, or rolls it back to its best checkpoint.

The state is part of `Totals`, and so of every checkpoint: a resumed run acts in the same steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rolecall.config import EvaluationConfig
from rolecall.dynamics.cliff import Cliff, Measured, find_cliff
from rolecall.intervals import Estimate
from rolecall.run_state import Checkpoints, Totals


@dataclass(frozen=True, kw_only=True, slots=True)
class CliffGuard:
    """Call `note` after each validation; then ask `rolls_back`, and in every step `stops`."""

    settings: EvaluationConfig
    checkpoints: Checkpoints

    def note(self, totals: Totals, step: int, found: Estimate, *, is_best: bool) -> dict[str, float]:
        """Take in a validation and return its `cliff/...` metrics. A step that is the best so far is no fall, whatever
        the validations before it were; one in which nothing was graded says nothing and changes nothing."""
        if not math.isfinite(found.mean):
            return {}
        totals.curve.append([step, found.mean, found.low, found.high])
        cliff = self.cliff(totals)
        totals.fallen = cliff is not None and cliff.acts and not is_best
        if cliff is None:
            return {}
        figures = {key: value for key, value in cliff.to_dict().items() if key in KEYS and value is not None}
        metrics = {f"cliff/{KEYS[key]}": float(value) for key, value in figures.items()}
        return metrics | {"cliff/fallen": float(totals.fallen), "cliff/rollbacks": float(len(totals.rollbacks))}

    def cliff(self, totals: Totals) -> Cliff | None:
        """Where the curve stands; since a rollback it holds what came up to the best step, and after it."""
        points = [Measured(step=int(step), mean=mean, low=low, high=high) for step, mean, low, high in totals.curve]
        return find_cliff(points)

    def rolls_back(self, totals: Totals) -> bool:
        return self.settings.on_cliff == "rollback" and totals.fallen and self._can_roll_back(totals)

    def stops(self, totals: Totals) -> bool:
        """Whether the run ends here: as configured, or because nothing is left to roll back to."""
        how = self.settings.on_cliff
        return totals.fallen and (how == "stop" or (how == "rollback" and not self._can_roll_back(totals)))

    def roll_back(self, totals: Totals, step: int) -> str:
        """Put weights, optimisers and the state of interventions of the best checkpoint back and lower the learning
        rates; the fallen part of the curve is forgotten. Versions go on: the weights are published as newer ones.
        Tasks, baselines and random state go on too, so that other episodes follow. Returns what was done in words."""
        best = self.checkpoints.best
        assert best is not None
        learners = self.checkpoints.learners
        versions = {name: learner.version for name, learner in learners.items()}
        cliff = self.cliff(totals)
        assert cliff is not None
        self.checkpoints.load(best)
        totals.rollbacks.append([step, totals.best_step])
        scale = self.settings.rollback_lr ** len(totals.rollbacks)
        for name, learner in learners.items():
            learner.version, learner.lr_scale = versions[name], scale
        totals.curve = [point for point in totals.curve if point[0] <= totals.best_step]
        totals.fallen = False
        return (
            f"{in_words(cliff)}: back to the weights of step {totals.best_step} (rollback {len(totals.rollbacks)} of "
            f"{self.settings.max_rollbacks}), and on at {scale:g} times the configured learning rate"
        )

    def stop_words(self, totals: Totals) -> str:
        """Why the run ends, and how to go on."""
        cliff = self.cliff(totals)
        assert cliff is not None
        used = f" after {len(totals.rollbacks)} rollbacks" if totals.rollbacks else ""
        return (
            f"{in_words(cliff)}: the run stops{used} (evaluation.on_cliff is {self.settings.on_cliff!r}), and its "
            f"result is the best step, {totals.best_step}. Go on all the same with --resume --set "
            "evaluation.on_cliff=warn"
        )

    def summary(self, totals: Totals) -> dict[str, Any]:
        """The figures of the run's end, for summary.json; {} when there are too few validations."""
        cliff = self.cliff(totals)
        if cliff is None:
            return {}
        return cliff.to_dict() | {
            "on_cliff": self.settings.on_cliff,
            "stopped": self.stops(totals),
            "rollbacks": [{"step": step, "to": to} for step, to in totals.rollbacks],
        }

    def _can_roll_back(self, totals: Totals) -> bool:
        return len(totals.rollbacks) < self.settings.max_rollbacks and self.checkpoints.best is not None


KEYS = {
    "peak": "peak",
    "peak_step": "peak_step",
    "last": "last",
    "fall": "fall",
    "width": "interval",
    "relative": "relative",
    "base": "base",
    "base_width": "base_interval",
}
"""Figures of `Cliff` and their names as metrics."""


def in_words(cliff: Cliff) -> str:
    """What was seen: a fall from the peak, or from where training began."""
    if cliff.fell:
        return (
            f"validation fell to {cliff.last:.3f}, {cliff.fall:.3f} below its peak of {cliff.peak:.3f} at step "
            f"{cliff.peak_step} (chance explains {cliff.width:.3f})"
        )
    return (
        f"validation is at {cliff.last:.3f}, {cliff.base - cliff.last:.3f} below the {cliff.base:.3f} before training "
        f"(chance explains {cliff.base_width:.3f})"
    )
