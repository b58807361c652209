"""`rolecall evaluate`: a checkpoint of a run on one of its held-out splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rolecall.assemble import config_fingerprint, make_plan
from rolecall.config import apply_overrides, make_config, read_recipe
from rolecall.errors import UsageError
from rolecall.evaluate import summarise
from rolecall.learner.checkpoint import Fingerprints, best, latest, read_manifest
from rolecall.progress import PlainLines
from rolecall.run import Run
from rolecall.run_folder import RunFolder


def evaluate_run(
    path: Path,
    *,
    samples: int = 1,
    k: int | None = None,
    split: str = "test",
    checkpoint: str = "best",
    greedy: bool = False,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Figures of `evaluate.Evaluation` as plain numbers, with what was evaluated. `overrides` may change anything but
    the weights and the way tasks are split: another mode of the workflow, other sampling, more or other tasks."""
    if split not in ("test", "validation"):
        raise UsageError(f"--split is {split!r}; wanted test or validation")
    samples = 1 if greedy else samples
    if k is not None and k > samples:
        raise UsageError(f"--k is {k} and there are {samples} samples a task; wanted k of at most that (--samples {k})")
    folder = RunFolder.open(path)
    config = make_config(apply_overrides(read_recipe(folder.path / "config.toml"), overrides), source=str(path))
    saved = folder.config()
    if config.tasks.split_seed != saved.tasks.split_seed:
        raise UsageError(
            f"tasks.split_seed is {config.tasks.split_seed}, and the run was trained under {saved.tasks.split_seed}: "
            f"another split has training tasks in its {split} set; leave it as it was"
        )
    run = Run(make_plan(config), folder, PlainLines(0, ()))
    try:
        tasks = run.splits.test.tasks if split == "test" else run.splits.validation.tasks
        if not tasks:
            raise UsageError(f"the run's {split} split is empty; set tasks.sizes.{split} above 0 in its recipe")
        where = find_checkpoint(folder, checkpoint)
        if where is None:
            run.prove()
        else:
            same_tasks = config.tasks == saved.tasks
            tasks_seen = run.splits.fingerprint if same_tasks else str(read_manifest(where)["tasks"])
            run.checkpoints.fingerprints = Fingerprints(config=config_fingerprint(saved), tasks=tasks_seen)
            run.load(where)
        episodes = run.evaluation_episodes(tasks, label=split, samples=samples, greedy=greedy)
    finally:
        run.close()
    figures = summarise(episodes, k=k).to_dict()
    name = where.name if where is not None else "base"
    return {"run": str(path), "checkpoint": name, "split": split, "samples": samples, "greedy": greedy, **figures}


def find_checkpoint(folder: RunFolder, name: str) -> Path | None:
    """The folder of the checkpoint called best, last, base (None: the weights before training) or a step."""
    root = folder.checkpoints
    if name == "base":
        return None
    if name in ("best", "last"):
        found = (best(root) if name == "best" else None) or latest(root)
        if found is None:
            raise UsageError(f"run {str(folder.path)!r} has no checkpoint yet; take its start with --checkpoint base")
        return found
    there = sorted(path.name for path in root.glob("step-*"))
    step = int(name) if name.isdecimal() else None  # not isdigit: that takes "²", which is no number
    matching = [path for path in there if int(path.removeprefix("step-").split(".")[0]) == step]
    if not matching:
        raise UsageError(f"--checkpoint is {name!r}; wanted best, last, base or a step of {', '.join(there) or 'none'}")
    return root / matching[-1]
