"""`rolecall evaluate`: a checkpoint of a run on one of its held-out splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rolecall.assemble import make_plan
from rolecall.config import apply_overrides, make_config, read_recipe
from rolecall.errors import UsageError
from rolecall.evaluate import summarise
from rolecall.learner.checkpoint import latest
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
    """Figures of `evaluate.Evaluation` as plain numbers, with what was evaluated."""
    if split not in ("test", "validation"):
        raise UsageError(f"--split is {split!r}; wanted test or validation")
    samples = 1 if greedy else samples
    if k is not None and k > samples:
        raise UsageError(f"--k is {k} and there are {samples} samples a task; wanted k of at most that (--samples {k})")
    folder = RunFolder.open(path)
    config = make_config(apply_overrides(read_recipe(folder.path / "config.toml"), overrides), source=str(path))
    run = Run(make_plan(config), folder, PlainLines(0, ()))
    try:
        tasks = run.splits.test.tasks if split == "test" else run.splits.validation.tasks
        if not tasks:
            raise UsageError(f"the run's {split} split is empty; set tasks.sizes.{split} above 0 in its recipe")
        where = find_checkpoint(run, checkpoint)
        if where is None:
            run.prove()
        else:
            run.load(where)
        episodes = run.evaluation_episodes(tasks, label=split, samples=samples, greedy=greedy)
    finally:
        run.close()
    figures = summarise(episodes, k=k).to_dict()
    name = where.name if where is not None else "base"
    return {"run": str(path), "checkpoint": name, "split": split, "samples": samples, "greedy": greedy, **figures}


def find_checkpoint(run: Run, name: str) -> Path | None:
    """The folder of the checkpoint called best, last, base (None: the weights before training) or a step."""
    root = run.folder.checkpoints
    if name == "base":
        return None
    if name in ("best", "last"):
        found = (run.best_checkpoint if name == "best" else None) or latest(root)
        if found is None:
            raise UsageError(
                f"run {str(run.folder.path)!r} has no checkpoint yet; evaluate the start with --checkpoint base"
            )
        return found
    there = sorted(path.name for path in root.glob("step-*"))
    matching = [path for path in there if name.isdigit() and int(path.removeprefix("step-").split(".")[0]) == int(name)]
    if not matching:
        raise UsageError(f"--checkpoint is {name!r}; wanted best, last, base or a step of {', '.join(there) or 'none'}")
    return root / matching[-1]
