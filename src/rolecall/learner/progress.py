"""What an update did: gathered over its optimizer steps, then reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rolecall.dynamics.formulas import (
    capture_index,
    copy_metrics,
    perplexity_ratio,
    ratio,
    role_metrics,
    update_metrics,
)
from rolecall.dynamics.update_watch import Applied
from rolecall.learner.copies import CopyGrams
from rolecall.learner.objective import Tallies, Tally
from rolecall.records import Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    """What one update did. `steps`: optimizer steps made. `skipped`: why none was made, else None. `metrics`: keys
    `learner/<policy>/...` and `dynamics/<role>/...`. `role_loss`: each role's loss per unit of its own token weight.
    """

    metrics: Mapping[str, float]
    steps: int
    skipped: str | None = None
    role_loss: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class UpdateTally:
    """What the optimizer steps of one update add up to."""

    tallies: Tallies = field(default_factory=Tallies)
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)  # trajectories of each minibatch
    roles: Tally = field(default_factory=Tally)  # dynamics, averaged over optimizer steps
    pushes: dict[str, float] = field(default_factory=dict)  # dynamics, summed over optimizer steps
    applied: list[Applied] = field(default_factory=list)
    role_loss: Tally = field(default_factory=Tally)
    captures: list[float] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    last: dict[int, Tensor] = field(default_factory=dict)  # log-probabilities by sample number

    def add_roles(self, tokens: Mapping[str, int], products: Mapping[tuple[str, str], float]) -> None:
        """Figures of one optimizer step; a role without a gradient has one of 0."""
        roles = sorted(tokens)
        gram = [[products.get((a, b), 0.0) for b in roles] for a in roles]
        for key, figure in role_metrics(roles, gram, tokens).items():
            self.roles.add(key, figure, 1.0)
        if len(roles) > 1 and any(map(any, gram)):
            self.captures.append(capture_index(gram))

    def add_copies(self, found: Mapping[str, CopyGrams]) -> None:
        """Figures of the copies of roles in one optimizer step."""
        for role, grams in found.items():
            for key, figure in copy_metrics(role, grams.true, grams.control, grams.units).items():
                self.roles.add(key, figure, 1.0)

    def add_step(
        self,
        roles: Sequence[str],
        products: Mapping[tuple[str, str], float],
        persistence: Mapping[str, float],
        applied: Applied | None,
    ) -> None:
        """What an optimizer step did along the gradients of the roles that had one."""
        for role in roles:
            self._push(f"dynamics/{role}/optimizer_steps", 1.0)
        for role, cosine in persistence.items():
            self.roles.add(f"dynamics/{role}/persistence", cosine, 1.0)
        if applied is None:
            return
        self.applied.append(applied)
        norms = {role: math.sqrt(max(products[role, role], 0.0)) for role in roles}
        cosines, pushes = update_metrics(norms, applied.along, applied.update_norm)
        for key, figure in cosines.items():
            self.roles.add(key, figure, 1.0)
        for key, figure in pushes.items():
            self._push(key, figure)

    def _push(self, key: str, figure: float) -> None:
        self.pushes[key] = self.pushes.get(key, 0.0) + figure

    def skip(self, kind: str, reason: str) -> None:
        self.skipped[kind] = self.skipped.get(kind, 0) + 1
        self.reasons.append(reason)

    @property
    def steps(self) -> int:
        """Optimizer steps made."""
        return len(self.losses)

    def report(self, policy: str, samples: Sequence[Sample], *, lr: float, skipped: str | None = None) -> UpdateReport:
        """Keys of `metrics` are `learner/<policy>/...` and `dynamics/<role>/...`."""
        steps = self.steps
        figures = spoken(self.tallies.policy.means()) | {
            "tokens": float(sum(sample.num_trained for sample in samples)),
            "samples": float(len(samples)),
            "optimizer_steps": float(steps),
            "skipped_empty": float(not samples),
        }
        if self.captures:
            figures["capture_index"] = sum(self.captures) / len(self.captures)
        if self.sequences:
            figures["sequences"] = sum(self.sequences) / len(self.sequences)
        for kind in ("zero", "nonfinite", "oom"):
            figures[f"skipped_{kind}"] = float(self.skipped.get(kind, 0))
        if steps:
            figures["loss"] = sum(self.losses) / steps
            figures["grad_norm"] = sum(self.grad_norms) / steps
            figures["lr"] = lr
            if self.applied:
                figures["moved_share"] = sum(one.moved for one in self.applied) / len(self.applied)
                figures["update_norm"] = sum(one.update_norm for one in self.applied)
                figures["update_ratio"] = sum(ratio(one.update_norm, one.weight_norm) for one in self.applied)
        elif skipped is None:
            skipped = "; ".join(self.reasons)
        return UpdateReport(
            metrics={f"learner/{policy}/{name}": value for name, value in figures.items()}
            | self.roles.means()
            | self.pushes
            | spoken(self.tallies.roles.means()),
            steps=steps,
            skipped=skipped,
            role_loss=self.role_loss.means(),
        )


def spoken(means: Mapping[str, float]) -> dict[str, float]:
    """Mean log-ratios under the name of what they are read as, the ratio of perplexities; all else as it is."""
    named: dict[str, float] = {}
    for key, value in means.items():
        if key.endswith("log_ratio"):
            named[key.removesuffix("log_ratio") + "perplexity_ratio"] = perplexity_ratio(value)
        else:
            named[key] = value
    return named
