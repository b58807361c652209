"""`rolecall evaluate`: a checkpoint of a run on one of its held-out splits, or on a file of tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolecall.assemble import make_tasks
from rolecall.config import RunConfig, apply_overrides, make_config, read_recipe
from rolecall.errors import EngineError, RolecallError, UsageError
from rolecall.evaluate import summarise
from rolecall.evaluate_system import summarise_system
from rolecall.learner.checkpoint import read_manifest
from rolecall.records import GradedEpisode
from rolecall.rollout.collector import Collected
from rolecall.run_episodes import episode_rows
from rolecall.run_folder import RunFolder
from rolecall.serving import Serving, find_checkpoint, open_evaluator, serve_roles
from rolecall.tasks.base import TaskSet, TaskSplits, require_fingerprint
from rolecall.tasks.evaluation_file import evaluation_tasks
from rolecall.workflows import load_workflow
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

SYSTEM = "workflow.mode=system"
SAVED_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFile:
    """A JSONL file of tasks in place of a split; `question` and `answer` name fields that are not found by themselves.
    Such tasks are evaluated on and nothing else."""

    path: Path
    question: str | None = None
    answer: str | None = None
    answer_pattern: str | None = None

    def read(self) -> TaskSet:
        return evaluation_tasks(
            self.path, question=self.question, answer=self.answer, answer_pattern=self.answer_pattern
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is evaluated and how. `system`: the reasoning system and the Solver alone (`evaluate_system.py`), else the
    workflow as the run has it. `roles`: who plays a role instead (`serving.py`). `save` keeps episodes and figures in
    the run folder under that name."""

    samples: int = 1
    k: int | None = None
    split: str = "test"
    tasks: TaskFile | None = None
    checkpoint: str = "best"
    greedy: bool = False
    system: bool = False
    roles: Mapping[str, str] = field(default_factory=dict)
    api_key_env: str | None = None
    save: str | None = None

    def __post_init__(self) -> None:
        if self.split not in ("test", "validation"):
            raise UsageError(f"--split is {self.split!r}; wanted test or validation")
        if self.k is not None and self.k > self.num_samples:
            raise UsageError(
                f"--k is {self.k} and there are {self.num_samples} samples a task; wanted k of at most that "
                f"(--samples {self.k})"
            )
        if self.save is not None and (self.save in ("before", "after") or not SAVED_NAME.fullmatch(self.save)):
            raise UsageError(
                f"--save is {self.save!r}; wanted a name of letters, digits, dots and dashes that the run does not use "
                "itself (before, after)"
            )

    @property
    def num_samples(self) -> int:
        return 1 if self.greedy else self.samples


def evaluate_run(path: Path, wanted: Wanted | None = None, *, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Figures of `evaluate.Evaluation`, or of `evaluate_system.SystemEvaluation`, as plain numbers, with what was
    evaluated. `overrides` may change anything but the weights and the way tasks are split: another mode of the
    workflow, other sampling, more or other tasks. `EngineError` when every single episode failed at an engine."""
    wanted = wanted or Wanted()
    folder = RunFolder.open(path)
    config = evaluation_config(folder, wanted, overrides)
    where = find_checkpoint(folder, wanted.checkpoint)
    tasks, splits = _tasks(config, wanted)
    if where is not None and splits is not None and config.tasks == folder.config().tasks:
        require_fingerprint(str(read_manifest(where)["tasks"]), splits.fingerprint, "the run's task splits")
    serving = serve_roles(config, where, wanted.roles, wanted.api_key_env)
    with open_evaluator(serving) as evaluator:
        episodes, collected = evaluator.run(
            tasks.tasks, label=tasks.name, samples=wanted.num_samples, greedy=wanted.greedy
        )
        requests = evaluator.requests()
    check_reached(episodes)
    figures = {
        "run": str(path),
        "checkpoint": where.name if where is not None else "base",
        "split": wanted.split if wanted.tasks is None else None,
        "tasks": _about(tasks, wanted, splits),
        "samples": wanted.num_samples,
        "greedy": wanted.greedy,
        "served_by": dict(serving.words),
        "requests": requests,
        "first_failure": first_failure(episodes),
        **(summarise_system if wanted.system else summarise)(episodes, k=wanted.k).to_dict(),
    }
    if wanted.save is not None:
        _save(folder, wanted.save, figures, episodes, collected, serving)
    return figures


def evaluation_config(folder: RunFolder, wanted: Wanted, overrides: Sequence[str]) -> RunConfig:
    """The run's configuration under the overrides, in the mode that is evaluated."""
    saved = folder.config()
    if wanted.system:
        overrides = [*overrides, SYSTEM]
    data = apply_overrides(read_recipe(folder.path / "config.toml"), overrides)
    config = make_config(data, source=str(folder.path))
    if config.tasks.split_seed != saved.tasks.split_seed:
        raise UsageError(
            f"tasks.split_seed is {config.tasks.split_seed}, and the run was trained under {saved.tasks.split_seed}: "
            f"another split has training tasks in its {wanted.split} set; leave it as it was"
        )
    if wanted.system:
        check_system(config)
    return config


def check_system(config: RunConfig) -> None:
    """`UsageError` unless the workflow has the loop that `--system` runs."""
    params = {key: value for key, value in config.workflow.params.items() if key != "mode"}
    workflow = load_workflow(config.workflow.name, params)
    if not isinstance(workflow, SolveVerifyCorrect):
        raise UsageError(
            f"--system runs the accept/reject loop of solve_verify_correct, and this run's workflow is "
            f"{config.workflow.name!r}; leave --system out, or add --set workflow.name=solve_verify_correct"
        )


def _tasks(config: RunConfig, wanted: Wanted) -> tuple[TaskSet, TaskSplits | None]:
    """The tasks to evaluate on, and the run's own splits where they can be had."""
    if wanted.tasks is not None:
        tasks = wanted.tasks.read()
        try:
            return tasks, make_tasks(config)
        except RolecallError:  # the file is enough; only the comparison with what was trained on is lost
            return tasks, None
    splits = make_tasks(config)
    found = splits.test if wanted.split == "test" else splits.validation
    if not found.tasks:
        raise UsageError(f"the run's {wanted.split} split is empty; set tasks.sizes.{wanted.split} above 0")
    return found, splits


def _about(tasks: TaskSet, wanted: Wanted, splits: TaskSplits | None) -> dict[str, Any]:
    """What the tasks are, and how many of a file's questions the run may have been trained on (None: not known)."""
    about: dict[str, Any] = {"number": len(tasks), "fingerprint": tasks.fingerprint}
    if wanted.tasks is not None:
        trained = {task.question for task in splits.train} if splits is not None else None
        about["file"] = str(wanted.tasks.path)
        about["in_training_split"] = None if trained is None else sum(task.question in trained for task in tasks)
    return about


def first_failure(episodes: Sequence[GradedEpisode]) -> str | None:
    """Where and why the first of the failed episodes failed."""
    for graded in episodes:
        if (failure := graded.episode.failure) is not None:
            return f"{failure.where}: {failure.detail:.500}"
    return None


def check_reached(episodes: Sequence[GradedEpisode]) -> None:
    """`EngineError` when all episodes ended in errors of an engine: that is no measurement."""
    failures = [graded.episode.failure for graded in episodes]
    if episodes and all(failure is not None and failure.kind == EngineError.kind for failure in failures):
        raise EngineError(f"all {len(episodes)} episodes failed at an engine; the first at {first_failure(episodes)}")


def _save(
    folder: RunFolder,
    name: str,
    figures: Mapping[str, Any],
    episodes: Sequence[GradedEpisode],
    collected: Collected,
    serving: Serving,
) -> None:
    transcripts = {one.id: one for one in collected.transcripts}
    folder.write_evaluation(name, episode_rows(0, episodes, transcripts=transcripts))
    folder.write_json(f"evaluations/{name}.json", figures, "evaluation")
