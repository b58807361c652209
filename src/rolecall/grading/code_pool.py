"""The scheduler of tests: one pool of sandboxes over all programs that wait for a grade.

Order of work, whenever a worker is free: the first test of a program that has had none; then the next test of a program
that passed all so far, the one with most tests left first; then, rather than be idle, a test of a program whose
earlier tests still run (speculation). The first failure drops the rest of a program's tests and stops those that run.
With partial credit every test counts, and none is dropped.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from rolecall.code_problems import CodeProblem, read_problem
from rolecall.errors import RolecallError, SandboxError, boundary
from rolecall.grading.code import Bench, Verdict
from rolecall.grading.math import failed, right, wrong
from rolecall.records import Grade, GradeStatus, Task
from rolecall.sandbox.protection import Protection, protection

Done = Callable[[Grade], None]
TRIES = 3  # of one test whose sandbox is lost, which no program should be able to bring about
STOP_S = 20.0


@dataclass(kw_only=True, slots=True, eq=False)
class _Program:
    """A program that waits for its grade."""

    source: str
    problem: CodeProblem
    partial: bool
    done: Done
    waiting: deque[int] = field(default_factory=deque)  # tests that have not begun
    running: dict[int, Bench] = field(default_factory=dict)
    passed: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    lost: Counter[int] = field(default_factory=Counter)
    since: float = field(default_factory=time.monotonic)
    over: bool = False

    @property
    def begun(self) -> bool:
        return len(self.waiting) < len(self.problem.tests)


class CodePool:
    """Grades programs with `workers` sandboxes; `submit` returns at once and tells the grade to `done`.

    `speculate=False` runs the tests of a program one after another; `first_tests_first=False` takes programs in the
    order in which they came, each to its end. Both are for measurements. `protected_by` names a protection; without
    it the strongest is taken.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        allow_none: bool = False,
        first_tests_first: bool = True,
        speculate: bool = True,
        label: str = "",
        protected_by: str = "",
    ) -> None:
        self.workers = workers
        self.label = label
        self.protected_by = protected_by
        self.allow_none = allow_none
        self.first_tests_first = first_tests_first
        self.speculate = speculate
        self.counts: Counter[str] = Counter()
        self._queue_s = 0.0
        self._ready = threading.Condition()
        self._fresh: deque[_Program] = deque()
        self._going: list[tuple[int, int, _Program]] = []  # a heap: most tests left first
        self._order = itertools.count()
        self._busy: set[int] = set()
        self._active: dict[int, _Program] = {}
        self._threads: list[threading.Thread] = []
        self._benches: list[Bench] = []
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """The first process of every sandbox."""
        found = [box.pid for bench in list(self._benches) for box in (bench.program, bench.judge)]
        return [pid for pid in found if pid is not None]

    @property
    def inner_pids(self) -> list[int]:
        """The first process inside every sandbox."""
        found = [box.inner_pid for bench in list(self._benches) for box in (bench.program, bench.judge)]
        return [pid for pid in found if pid is not None]

    def stats(self) -> dict[str, float]:
        """Counts since the pool was made, under the names of `PoolStats`."""
        starts = [box.starts for bench in list(self._benches) for box in (bench.program, bench.judge)]
        with self._ready:
            restarts = sum(max(0, number - 1) for number in starts)
            return {"queued": 0, **self.counts, "queue_s": self._queue_s, "restarts": restarts}

    def start(self) -> Protection:
        """Find the protection and start the workers; `SandboxError` when programs cannot be contained."""
        made = protection(self.allow_none, self.protected_by)
        with self._ready:
            if not self._threads and not self._closed:
                for number in range(self.workers):
                    bench = Bench(made, self.label)
                    thread = threading.Thread(target=self._work, args=(bench,), name=f"code-{number}", daemon=True)
                    self._benches.append(bench)
                    self._threads.append(thread)
                    thread.start()
        return made

    def submit(self, answer: str, task: Task, done: Done) -> None:
        """Queue a program: `done` gets its grade once, from a worker's thread or from this one."""
        try:
            with boundary(SandboxError, f"reading the tests of task {task.id!r}"):
                self.start()
                problem = read_problem(task)
                source = problem.program(answer)
        except RolecallError as error:
            done(failed(str(error)))
            return
        program = _Program(
            source=source,
            problem=problem,
            partial=task.grader == "code_partial",
            done=done,
            waiting=deque(range(len(problem.tests))),
        )
        with self._ready:
            if not self._closed:
                self._fresh.append(program)
                self._ready.notify()
                return
        done(failed("the grader pool was closed"))

    def close(self) -> None:
        """End the sandboxes; programs still waiting get failed grades."""
        with self._ready:
            if self._closed:
                return
            self._closed = True
            left = [*self._fresh, *(entry[2] for entry in self._going), *self._active.values()]
            self._fresh.clear()
            self._going.clear()
            self._ready.notify_all()
        for program in left:
            for bench in list(program.running.values()):
                bench.stop(program)
        for thread in self._threads:
            thread.join(timeout=STOP_S)
        for program in left:
            self._settle(program, failed("the grader pool was closed"))

    def __enter__(self) -> CodePool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _work(self, bench: Bench) -> None:
        """One worker: take a test, run it, say what came of it."""
        try:
            while (taken := self._take(bench)) is not None:
                program, number = taken
                try:
                    with boundary(SandboxError, "running a test"):
                        verdict = bench.try_test(
                            program.source, program.problem.tests[number], program.problem, program
                        )
                except SandboxError as error:
                    self._lost(program, number, str(error))
                except RolecallError as error:  # the test is broken, whatever the program
                    self.counts["broken"] += 1
                    self._finish(program, number, failed(str(error)))
                else:
                    self._judged(program, number, verdict)
        finally:
            bench.close()

    def _take(self, bench: Bench) -> tuple[_Program, int] | None:
        with self._ready:
            while not self._closed:
                program = self._choose()
                if program is not None:
                    if not program.begun:
                        self.counts["queued"] += 1
                        self._queue_s += time.monotonic() - program.since
                    number = program.waiting.popleft()
                    program.running[number] = bench
                    self._active[id(program)] = program
                    self.counts["tests"] += 1
                    if self.speculate and program.waiting:
                        self._ready.notify()
                    return program, number
                self._ready.wait()
        return None

    def _choose(self) -> _Program | None:
        """The program whose next test is to run now."""
        if self._fresh and (self.first_tests_first or not self._going):
            return self._fresh.popleft()
        while self._going:
            _, _, program = heapq.heappop(self._going)
            if not program.over and program.waiting and not program.running:
                return program
        if self._fresh:
            return self._fresh.popleft()
        if self.speculate:
            open_ones = [one for one in self._active.values() if one.waiting and not one.over]
            if open_ones:
                self.counts["speculated"] += 1
                return max(open_ones, key=lambda one: len(one.waiting))
        return None

    def _judged(self, program: _Program, number: int, verdict: Verdict) -> None:
        grade: Grade | None = None
        with self._ready:
            self._ended(program, number)
            if program.over or self._closed:
                return
            if verdict.passed:
                program.passed += 1
            else:
                program.failures[number] = verdict.detail
            total = len(program.problem.tests)
            if program.failures and not program.partial:
                grade = wrong(self._first_failure(program))
            elif program.passed + len(program.failures) == total:
                grade = self._whole(program)
            else:
                self._requeue(program)
        if grade is not None:
            self._settle(program, grade)

    def _whole(self, program: _Program) -> Grade:
        if not program.failures:
            return right(f"{program.passed} tests passed")
        share = program.passed / len(program.problem.tests)
        return Grade(status=GradeStatus.WRONG, score=share, detail=self._first_failure(program))

    @staticmethod
    def _first_failure(program: _Program) -> str:
        number = min(program.failures)
        return f"test {number + 1} of {len(program.problem.tests)}: {program.failures[number]}"

    def _lost(self, program: _Program, number: int, why: str) -> None:
        """The sandbox failed: once more in a new one, then a failed grade."""
        with self._ready:
            self._ended(program, number)
            if program.over or self._closed:
                return  # it was stopped because its verdict is no longer asked for
            self.counts["lost"] += 1
            program.lost[number] += 1
            again = program.lost[number] < TRIES
            if again:
                program.waiting.appendleft(number)
                self._requeue(program)
        if not again:
            self._settle(program, failed(f"test {number + 1}: {why}"))

    def _finish(self, program: _Program, number: int, grade: Grade) -> None:
        with self._ready:
            self._ended(program, number)
        self._settle(program, grade)

    def _ended(self, program: _Program, number: int) -> None:
        program.running.pop(number, None)
        if not program.running:
            self._active.pop(id(program), None)

    def _requeue(self, program: _Program) -> None:
        if program.waiting and not program.running:
            entry = (-len(program.waiting), next(self._order), program)
            heapq.heappush(self._going, entry)
            self._ready.notify()

    def _settle(self, program: _Program, grade: Grade) -> None:
        with self._ready:
            if program.over:
                return
            program.over = True
            self.counts["dropped"] += len(program.waiting)
            program.waiting.clear()
            running = list(program.running.values())
        for bench in running:
            bench.stop(program)
        program.done(grade)
