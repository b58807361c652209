"""What a run has done so far, and its checkpoints: how it is saved, and how it goes on after a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolecall.assemble import Plan, config_fingerprint
from rolecall.errors import RolecallError
from rolecall.learner.checkpoint import (
    Checkpoint,
    Fingerprints,
    best,
    latest,
    load_checkpoint,
    load_latest,
    mark_best,
    of_step,
    read_manifest,
    save_checkpoint,
    tidy,
)
from rolecall.learner.learner import Learner
from rolecall.run_folder import RunFolder, nothing_left


class FlatRun(RolecallError):
    """No step has taught anything for a while; the run can be gone on with."""

    kind = "flat"


@dataclass(slots=True)
class Totals:
    """What a run has done so far; part of every checkpoint. `flat_steps`: the last steps in a row in which no advantage
    of a trained role differed from 0, and `flat_why` the reason in the last of them. `curve`: the validations that the
    cliff guard watches (step, mean, low, high); `fallen`: the last of them is over a cliff; `rollbacks`: (step, to)."""

    tokens_generated: int = 0
    tokens_trained: int = 0
    generate_s: float = 0.0
    wall_s: float = 0.0
    parity_max: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    best_step: int = -1
    best_validation: float = -1.0
    flat_steps: int = 0
    flat_why: str = ""
    curve: list[list[float]] = field(default_factory=list)
    fallen: bool = False
    rollbacks: list[list[int]] = field(default_factory=list)

    def note_advantages(self, flat: bool, why: Sequence[str]) -> None:
        """Count a step in which nothing could be learned, for the reasons `why`; any other begins the count anew."""
        self.flat_steps = self.flat_steps + 1 if flat else 0
        self.flat_why = "; ".join(why) if flat else ""

    def add_outcomes(self, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            self.outcomes[kind] = self.outcomes.get(kind, 0) + count


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, plan: Plan, folder: RunFolder, learners: Mapping[str, Learner], tasks: str) -> None:
        self.folder, self.learners, self.config = folder, learners, plan.config
        self.root, self.keep_last = folder.checkpoints, plan.config.checkpoint.keep_last
        self.fingerprints = Fingerprints(config=config_fingerprint(plan.config), tasks=tasks)

    @property
    def best(self) -> Path | None:
        return best(self.root)

    def save(self, step: int, extra: Mapping[str, Any], *, is_best: bool) -> None:
        """One checkpoint of everything; an error says what is kept."""
        with self.folder.storing(self.root):
            save_checkpoint(
                self.root,
                self.learners,
                step,
                self.fingerprints,
                extra=extra,
                keep_last=self.keep_last,
                best=is_best,
            )

    def load(self, checkpoint: Path) -> None:
        """Put the weights of a checkpoint into the learners; random state stays as it is."""
        load_checkpoint(checkpoint, self.learners, self.fingerprints, rng=False)

    def resume(self, note: Callable[[str], None]) -> tuple[Checkpoint | None, Totals]:
        """Load the newest checkpoint and bring the folder to where it stands: metrics and episodes past it go, and
        what a kill left undone around it is done. Without a checkpoint the run begins again."""
        found = load_latest(self.root, self.learners, self.fingerprints)
        with self.folder.storing(self.folder.path):
            self.folder.write_config(self.config)
            self.folder.forget_after(found.step if found else 0)
            totals = Totals(**found.extra["totals"]) if found else Totals()
            _restore_best(self.root, totals, note)
            tidy(self.root, self.keep_last)
        return found, totals


def _restore_best(root: Path, totals: Totals, note: Callable[[str], None]) -> None:
    """Make best.json name the best step of the totals: a kill may have come between the two."""
    if totals.best_step < 0:
        return
    kept = of_step(root, totals.best_step)
    if kept is None:
        note(f"the best checkpoint (step {totals.best_step}) is gone; the best is chosen anew from here on")
        totals.best_step, totals.best_validation = -1, -1.0
    elif best(root) != kept:
        mark_best(root, kept)


def finished_summary(plan: Plan, folder: RunFolder) -> dict[str, Any] | None:
    """The summary of a run that has nothing left to do under this configuration; None when there is something."""
    newest, config = latest(folder.checkpoints), plan.config
    if newest is None or not (folder.path / "summary.json").is_file():
        return None
    summary: dict[str, Any] = folder.read_json("summary.json")
    manifest = read_manifest(newest)
    if manifest["config"] != config_fingerprint(config) or manifest["step"] != summary["steps"]:
        return None
    return summary if nothing_left(config, summary) else None


def flat_run(plan: Plan, totals: Totals, step: int, folder: Path) -> FlatRun:
    """Why a run stops that has taught nothing for `rollout.max_flat_steps` steps, and how to go on."""
    roles = ", ".join(plan.table.train_roles)
    why = totals.flat_why or f"no turn of a trained role ({roles}) earned more or less than its peers"
    return FlatRun(
        f"{totals.flat_steps} steps in a row have taught nothing, up to step {step} (rollout.max_flat_steps is "
        f"{plan.config.rollout.max_flat_steps}): {why}. All up to that step is kept; change what the reason names, or "
        f"go on all the same with: rolecall train --resume --run {folder} --set rollout.max_flat_steps=0"
    )
