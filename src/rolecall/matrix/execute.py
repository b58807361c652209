"""Running a matrix: cells as processes side by side, within what the machine has. Nothing here is lost by a kill: what
is done and what is left is read from the run folders each time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from rolecall.engines.specs import resolve_model
from rolecall.errors import ConfigError, UsageError
from rolecall.matrix.controls import evaluation_name, generated, num_answers, short_of_tokens, stands, token_budget
from rolecall.matrix.folder import MatrixFolder, failure
from rolecall.matrix.spec import Cell, Limits, Matrix

POLL_S = 0.2
ORPHAN_S = 60.0
"""How long a cell may still be written to by a process that an earlier, killed matrix has left."""

STOP_S = 60.0
"""How long interrupted cells have to come to an end."""

GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One process: a cell's training, or (with a `team`) a control's majority at that team's tokens."""

    cell: Cell
    team: str | None = None

    @property
    def name(self) -> str:
        return self.cell.name if self.team is None else f"{self.cell.name}.{evaluation_name(self.team)}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The cells that must be done before."""
        if self.team is not None:
            return (self.cell.name, self.team)
        return () if self.cell.tokens_of is None else (self.cell.tokens_of,)


@dataclass(slots=True)
class Running:
    """A job's process, or None while it waits for a folder that an earlier process still writes to."""

    job: Job
    begun: float
    log: IO[bytes] | None = None
    log_begins: int = 0  # what earlier processes of the job have written there
    process: subprocess.Popen[bytes] | None = None


@dataclass(kw_only=True, slots=True)
class Course:
    """What came of a matrix: names of cells by what became of them. `waits`: what never began, and why."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not self.failed and not self.waits


def jobs_of(matrix: Matrix) -> list[Job]:
    """Every process that a matrix stands for: teams, controls, then majorities."""
    jobs = [Job(cell=cell) for cell in matrix.cells]
    names = {cell.name for cell in matrix.cells}
    return jobs + [Job(cell=cell, team=team) for cell in matrix.cells for team in cell.teams if team in names]


def side_by_side(limits: Limits) -> int:
    """How many cells the machine has room for: cores over cores a cell and free memory over memory a cell, at least
    one; `limits.jobs` where it is set."""
    if limits.jobs:
        return limits.jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(max(1, min(cores // limits.cores_per_cell, free_memory_gib() / limits.memory_per_cell_gib)))


def check_models(cell: Cell) -> None:
    """`ConfigError` when a model of the cell is a folder that is not there."""
    for policy in (cell.config.model, *cell.config.policies.values()):
        if policy.kind != "api":
            try:
                resolve_model(policy.model)
            except ConfigError as error:
                raise ConfigError(f"cell {cell.name}: {error}") from None


def missing_models(matrix: Matrix) -> list[str]:
    """What `check_models` says of the cells whose models are not there, once for cells with the same models."""
    found: dict[tuple[str, ...], str] = {}
    for cell in matrix.cells:
        try:
            check_models(cell)
        except ConfigError as error:
            models = tuple(policy.model for policy in (cell.config.model, *cell.config.policies.values()))
            found.setdefault(models, str(error))
    return list(found.values())


def free_memory_gib() -> float:
    """Memory that new processes may take; infinite where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) / 2**20
    except (OSError, KeyError, ValueError):
        return float("inf")


class Executor:
    """Runs the jobs of a matrix in a folder that this process holds."""

    def __init__(self, matrix: Matrix, folder: MatrixFolder, say: Callable[[str], None]) -> None:
        self.matrix, self.folder, self.say = matrix, folder, say
        self.failures: dict[str, Any] = folder.failures()
        self.course = Course()
        self.running: list[Running] = []
        self.waiting = jobs_of(matrix)

    def run(self) -> Course:
        """Run what is not done; a cell that fails is recorded, and the others go on."""
        self.folder.check_index(self.matrix)
        for cell in self.matrix.cells:  # before anything starts: models that are not there, folders of other settings
            check_models(cell)
            if not cell.is_control:
                self.folder.state(cell)
        self._save()
        most = side_by_side(self.matrix.limits)
        self.say(f"{len(self.matrix.cells)} cells, {most} side by side, in {self.folder.path}")
        try:
            while self.running or self.waiting:
                ready = list(self._ready())
                for job in ready:
                    if len(self.running) < most:
                        self.waiting.remove(job)
                        self._begin(job)
                if not self.running:
                    if not ready:
                        break
                    continue  # all of them were done, and others may need nothing else
                time.sleep(POLL_S)
                for one in list(self.running):
                    self._look(one)
        finally:
            self._stop()
        for job in self.waiting:
            missing = [name for name in job.needs if name not in self._ended()]
            self.course.waits.setdefault(job.name, f"needs {', '.join(missing)}, which has not come to its end")
        return self.course

    def _ended(self) -> set[str]:
        return {*self.course.done, *self.course.skipped}

    def _ready(self) -> Iterator[Job]:
        ended = self._ended()
        for job in self.waiting:
            if all(name in ended for name in job.needs):
                yield job

    def _begin(self, job: Job) -> None:
        """Start a job, unless it is done, or cannot be started."""
        try:
            if self._is_done(job):
                self._ended_well(job, self.course.skipped)
                return
        except UsageError as error:  # a control whose budget no longer is that of its run
            self._not_started(job, str(error))
            return
        self.running.append(Running(job=job, begun=time.monotonic()))
        self._look(self.running[-1])

    def _ended_well(self, job: Job, course: list[str]) -> None:
        """A run came to its end, now or before: a control may have ended short of its tokens."""
        team = job.cell.tokens_of
        short = short_of_tokens(self.folder, job.cell.name, team) if team and job.team is None else ""
        if short:
            self.course.failed[job.name] = short
            self.say(f"{job.name}: {short}")
        else:
            course.append(job.name)

    def _is_done(self, job: Job) -> bool:
        if job.team is not None:
            return stands(self.folder, job.cell.name, job.team)
        return self.folder.state(job.cell, token_budget=token_budget(self.folder, job.cell)) == "done"

    def _look(self, one: Running) -> None:
        """Start a job's process once its folder is free; note how it ended."""
        if one.process is None:
            waited = time.monotonic() - one.begun
            if self.folder.in_use(one.job.cell.name) and waited < ORPHAN_S:
                return
            self._start(one)
            return
        code = one.process.poll()
        if code is not None:
            self.running.remove(one)
            self._close(one)
            self._note(one, code)

    def _start(self, one: Running) -> None:
        job, folder = one.job, self.folder
        least = self.matrix.limits.min_free_gib
        try:
            free = shutil.disk_usage(folder.path).free / GIB
            if free < least:
                raise OSError(f"{free:.2f} GiB are free on the disk, and limits.min_free_gib is {least:g}")
            if job.team is None:
                folder.prepare(job.cell, token_budget=token_budget(folder, job.cell))
            folder.log(job.name).parent.mkdir(parents=True, exist_ok=True)
            one.log = folder.log(job.name).open("ab")
            one.log_begins = one.log.tell()
            one.process = subprocess.Popen(
                [sys.executable, "-m", "rolecall.cell_process", *self._arguments(job)],
                stdin=subprocess.PIPE,
                stdout=one.log,
                stderr=subprocess.STDOUT,
                env={"OMP_NUM_THREADS": str(self.matrix.limits.cores_per_cell), **os.environ},
                start_new_session=True,  # Ctrl-C is for the matrix, which then ends its cells
            )
        except (OSError, UsageError) as error:
            self.running.remove(one)
            self._close(one)
            self._not_started(job, f"could not be started: {error}")
            return
        self.say(f"{job.name}: begun")

    def _arguments(self, job: Job) -> Sequence[str]:
        run = str(self.folder.run(job.cell.name))
        if job.team is None:
            return ("train", "--resume", "--run", run)
        samples = num_answers(self.folder, job.cell.name, job.team)
        return ("evaluate", run, "--samples", str(samples), "--save", evaluation_name(job.team), "--json")

    def _not_started(self, job: Job, why: str) -> None:
        self.course.failed[job.name] = why
        self.say(f"{job.name}: {why}")

    def _note(self, one: Running, code: int) -> None:
        """A process ended: well, or with a failure that is kept in matrix.json."""
        job, took = one.job, time.monotonic() - one.begun
        if code == 0:
            self.failures.pop(job.name, None)
            self.say(f"{job.name}: done in {took:.0f} s")
            self._ended_well(job, self.course.done)
        else:
            log = self.folder.log(job.name)
            self.failures[job.name] = found = failure(code, log, self.failures.get(job.name), one.log_begins)
            self.course.failed[job.name] = f"exit code {code}: {found['reason']}"
            self.say(f"{job.name}: failed after {took:.0f} s ({found['reason']}); its log: {log}")
        self._save()

    def _save(self) -> None:
        if not self.folder.write_index(self.matrix, self.failures):
            self.say(f"{self.folder.path}: matrix.json could not be written; the run folders say what is done")

    def _close(self, one: Running) -> None:
        for file in (one.log, one.process.stdin if one.process else None):
            if file is not None:
                file.close()

    def _stop(self) -> None:
        """Interrupt what still runs (the matrix itself was interrupted), and wait until it has ended."""
        going = [one.job.name for one in self.running if one.process is not None]
        if going:
            self.say(f"interrupted: waiting until {', '.join(going)} has ended, at most {STOP_S:.0f} s each")
        for one in self.running:
            if one.process is not None:
                one.process.terminate()
        for one in self.running:
            if one.process is not None:
                try:
                    one.process.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    one.process.kill()
                    one.process.wait()
            self._close(one)
        self.running.clear()


def run_matrix(matrix: Matrix, folder: MatrixFolder, say: Callable[[str], None]) -> Course:
    """Run every cell that is not done, as long as another process does not."""
    with folder.claim():
        return Executor(matrix, folder, say).run()


def plan(matrix: Matrix, folder: MatrixFolder) -> list[Mapping[str, Any]]:
    """What `--dry-run` lists: every job with its state, and the settings of its axes."""
    found: list[Mapping[str, Any]] = []
    for job in jobs_of(matrix):
        cell = job.cell
        if job.team is not None:
            state = "done" if stands(folder, cell.name, job.team) else "new"
            found.append({"name": job.name, "kind": "majority", "team": job.team, "state": state})
            continue
        budget = cell.config.token_budget
        if cell.tokens_of is not None:
            budget = generated(folder, cell.tokens_of)
        found.append(
            {
                "name": cell.name,
                "kind": "control" if cell.is_control else "team",
                "axes": dict(cell.axes),
                "seed": cell.seed,
                "run": str(folder.run(cell.name)),
                "state": folder.state(cell, token_budget=budget),
                "steps": cell.config.steps,
                "token_budget": budget,
                "tokens_of": cell.tokens_of,
                "failure": folder.failures().get(cell.name),
            }
        )
    return found
