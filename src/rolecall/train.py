"""The training loop. Each line is a noun of the design, and the rest stands in the rooms."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from rolecall.assemble import make_plan, make_tasks
from rolecall.config import RunConfig
from rolecall.context_limit import context_notes
from rolecall.errors import ConfigError, RolecallError, boundary
from rolecall.progress import Progress
from rolecall.report import write_report
from rolecall.run import Run
from rolecall.run_folder import RunFolder
from rolecall.run_state import finished_summary
from rolecall.summary import final_summary, test_evaluation


def train(
    config: RunConfig, path: Path, progress: Progress, *, resume: bool = False, overwrite: bool = False
) -> dict[str, Any]:
    """Train as configured in the folder `path` and return the summary that is written there as summary.json."""
    plan = make_plan(config)
    if config.steps and not plan.learners:
        raise ConfigError(
            "every policy is frozen or an endpoint's, so nothing would be trained; make one a model or an adapter"
        )
    for words in context_notes(plan):
        progress.note(words)
    splits = make_tasks(config)  # before the folder is made: tasks that cannot be had leave nothing behind
    folder = RunFolder.reopen(path) if resume else RunFolder.create(path, config, overwrite=overwrite)
    with closing(folder):
        if resume and (done := finished_summary(plan, folder)) is not None:
            progress.note("the run is finished: nothing was left to do")
            if not (path / "report.html").is_file():
                make_report(path, progress)
            return done
        summary = _train(Run(plan, folder, progress, splits), resume=resume)
        make_report(path, progress)
        return summary


def make_report(path: Path, progress: Progress) -> None:
    """The run's page; a run whose figures stand is not lost for want of it."""
    try:
        with boundary(RolecallError, "the report"):
            write_report(path)
    except RolecallError as error:
        progress.note(f"{error}; make it again with: rolecall report {path}")


def _train(run: Run, *, resume: bool) -> dict[str, Any]:
    try:
        run.resume() if resume else run.track()
        run.prove()
        before = test_evaluation(run, "before")
        run.validate_start()
        for _ in run.steps():
            graded = run.collect()
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
