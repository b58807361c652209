"""The training loop. Each line is a noun of the design, and the rest stands in the rooms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rolecall.assemble import make_plan
from rolecall.config import RunConfig
from rolecall.progress import Progress
from rolecall.run import Run
from rolecall.run_folder import RunFolder
from rolecall.summary import final_summary, test_evaluation


def train(
    config: RunConfig, path: Path, progress: Progress, *, resume: bool = False, overwrite: bool = False
) -> dict[str, Any]:
    """Train as configured in the folder `path` and return the summary that is written there as summary.json."""
    plan = make_plan(config)
    folder = RunFolder.open(path) if resume else RunFolder.create(path, config, overwrite=overwrite)
    run = Run(plan, folder, progress)
    try:
        if resume:
            run.resume()
        run.prove()
        before = test_evaluation(run, "before")
        for _ in run.steps():
            tasks = run.stream.take(config.rollout.tasks_per_step)
            graded = run.collect(tasks)
            credit = run.credit(graded)
            run.learn(graded, credit)
            run.publish()
            is_best = run.validate()
            run.record()
            run.save(is_best=is_best)
        if run.best_checkpoint is not None:
            run.load(run.best_checkpoint)
        after = test_evaluation(run, "after")
        return final_summary(run, before, after)
    finally:
        run.close()
