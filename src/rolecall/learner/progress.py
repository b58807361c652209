"""What an update did: gathered over its optimizer steps, then reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rolecall.dynamics.formulas import role_metrics
from rolecall.learner.objective import Tally
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
class Progress:
    """What the optimizer steps of one update add up to."""

    tally: Tally = field(default_factory=Tally)
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    roles: Tally = field(default_factory=Tally)  # dynamics, averaged over optimizer steps
    role_loss: Tally = field(default_factory=Tally)
    skipped: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    last: dict[int, Tensor] = field(default_factory=dict)  # log-probabilities by sample number

    def add_roles(self, tokens: Mapping[str, int], products: Mapping[tuple[str, str], float]) -> None:
        """Figures of one optimizer step; a role without a gradient has one of 0."""
        roles = sorted(tokens)
        gram = [[products.get((a, b), 0.0) for b in roles] for a in roles]
        for key, figure in role_metrics(roles, gram, tokens).items():
            self.roles.add(key, figure, 1.0)

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
        figures = self.tally.means() | {
            "tokens": float(sum(sample.num_trained for sample in samples)),
            "samples": float(len(samples)),
            "optimizer_steps": float(steps),
            "skipped_empty": float(not samples),
        }
        for kind in ("zero", "nonfinite", "oom"):
            figures[f"skipped_{kind}"] = float(self.skipped.get(kind, 0))
        if steps:
            figures["loss"] = sum(self.losses) / steps
            figures["grad_norm"] = sum(self.grad_norms) / steps
            figures["lr"] = lr
        elif skipped is None:
            skipped = "; ".join(self.reasons)
        return UpdateReport(
            metrics={f"learner/{policy}/{name}": value for name, value in figures.items()} | self.roles.means(),
            steps=steps,
            skipped=skipped,
            role_loss=self.role_loss.means(),
        )
