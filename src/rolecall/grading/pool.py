"""Graders in worker processes that can be killed: a deadline per answer, and a failure that is never a wrong answer.

One thread owns each worker process. It takes a job, asks its process, and when no reply comes in time, or the process
dies, it kills the process, starts another and answers the job with a failed grade. So the pool always has its size.
"""

from __future__ import annotations

import asyncio
import pickle
import queue
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from rolecall.code_problems import CODE_GRADERS
from rolecall.errors import GraderError, boundary
from rolecall.grading.code_pool import CodePool
from rolecall.grading.graders import GRADERS
from rolecall.grading.math import failed, grade_plain, wrong
from rolecall.grading.process import DEFAULT_MEMORY_MIB, WorkerProcess, check_settings, resident_mib
from rolecall.grading.stats import PoolStats
from rolecall.grading.wire import WorkerGone
from rolecall.records import Grade, GradeStatus, Task
from rolecall.sandbox.protection import Protection

Key = tuple[str, ...]

CACHED_ANSWER_CHARS = 2000
IDLE_CHECK_S = 0.5
BY_REFERENCE = frozenset({"math", "text"})  # graders that read nothing of a task but its answer


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    grader: str
    answer: str | None  # None: only load the grader
    task: bytes
    future: Future[Grade]
    key: Key | None
    since: float = field(default_factory=time.monotonic)


class GraderPool:
    """Grades answers in `workers` processes, `deadline_s` seconds for each answer.

    The processes start at the first answer that needs one; importing a grader's libraries has its own limit,
    `start_deadline_s`. `memory_mib` bounds the address space of each (0: no bound); one that keeps more than a quarter
    of it is replaced. Right and wrong grades are cached; failed ones are not, since the next try may be luckier. Use it
    from any thread, or with `await`.

    `deadline_s` does not count the time for which a worker waits for a CPU (on Linux): by the clock an answer may take
    ten times as long. Programs are tested in as many sandboxes; without protection that is an error, unless
    `unsandboxed` is set.

    >>> with GraderPool() as pool:
    ...     pool.grade([("x = 5", Task(id="t", question="Find x.", answer="5"))])[0].right
    True
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        deadline_s: float = 5.0,
        start_deadline_s: float = 120.0,
        memory_mib: int = DEFAULT_MEMORY_MIB,
        cache_size: int = 100_000,
        unsandboxed: bool = False,
    ) -> None:
        check_settings(workers, deadline_s, start_deadline_s, memory_mib)
        self.workers = workers
        self.deadline_s = deadline_s
        self.start_deadline_s = start_deadline_s
        self.memory_mib = memory_mib
        self.cache_size = cache_size
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._slots: list[_Slot] = []
        self._cache: OrderedDict[Key, Grade] = OrderedDict()
        self._in_flight: dict[Key, Future[Grade]] = {}
        self._counts: Counter[str] = Counter()
        self._queue_s = 0.0
        self._code = CodePool(workers=workers, allow_none=unsandboxed)
        self.protection: Protection | None = None  # of programs, once a grader of code has been started
        self.closed = False

    def start(self, graders: Iterable[str] = ("math",)) -> None:
        """Start the workers and load `graders`; `GraderError`, with the real traceback, for one that does not load, and
        `SandboxError` for graders of code where programs cannot be contained."""
        waiting: list[Future[Grade]] = []
        for name in dict.fromkeys(graders):
            if name in CODE_GRADERS:
                self.protection = self._code.start()
                continue
            job = _Job(grader=name, answer=None, task=b"", future=_running_future(), key=None)
            waiting.append(job.future)
            self._enqueue(job)
        for future in waiting:
            grade = future.result()
            if grade.status is GradeStatus.FAILED:
                raise GraderError(grade.detail)

    def grade(self, answers: Sequence[tuple[str | None, Task]]) -> list[Grade]:
        """The grades of (answer, task) pairs, in order; blocks until all are there."""
        pending = [self._submit(answer, task) for answer, task in answers]
        return [found.result() if isinstance(found, Future) else found for found in pending]

    async def grade_many(self, answers: Sequence[tuple[str | None, Task]]) -> list[Grade]:
        """The grades of (answer, task) pairs, in order, without blocking the event loop."""
        pending = [self._submit(answer, task) for answer, task in answers]
        return [await asyncio.wrap_future(found) if isinstance(found, Future) else found for found in pending]

    @property
    def stats(self) -> PoolStats:
        code = self._code.stats()
        with self._lock:
            queued, waited = self._counts["queued"] + code.pop("queued"), self._queue_s + code.pop("queue_s")
            own = {name: count for name, count in self._counts.items() if name != "queued"}
            return PoolStats(**own, **code, queued=int(queued), queue_s=waited)  # type: ignore[arg-type]

    def held_mib(self) -> float:
        """What the grader processes hold in memory now, sandboxes included; 0 where the system does not say."""
        pids = [pid for slot in list(self._slots) if (pid := slot.live_pid()) is not None] + self._code.inner_pids
        return sum(map(resident_mib, pids))

    @property
    def pids(self) -> list[int]:
        """The live worker processes, sandboxes included."""
        return [pid for slot in list(self._slots) if (pid := slot.live_pid()) is not None] + self._code.pids

    def close(self) -> None:
        """End the workers; answers still waiting get failed grades."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            slots = list(self._slots)
        self._code.close()
        for slot in slots:
            self._jobs.put(None)
            slot.stop()
        for slot in slots:
            slot.join(timeout=15.0)
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                self._finish(job, failed("the grader pool was closed"))

    def __enter__(self) -> GraderPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _submit(self, answer: str | None, task: Task) -> Grade | Future[Grade]:
        """A grade that is known at once, or the future of one that a worker gives."""
        self._count("asked")
        if answer is None:
            return wrong("no answer")
        if task.grader == "math" and task.answer and task.answer.strip():
            plain = grade_plain(answer, task.answer)
            if plain is not None:
                self._count("plain")
                return plain
        key = _key(answer, task)
        with self._lock:
            if (cached := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                self._counts["cached"] += 1
                return cached
            if (running := self._in_flight.get(key)) is not None:
                return running
            future = self._in_flight[key] = _running_future()
        if task.grader in CODE_GRADERS:
            job = _Job(grader=task.grader, answer=answer, task=b"", future=future, key=key)
            self._code.submit(answer, task, partial(self._finish, job))
            return future
        try:
            with boundary(GraderError, f"pickling task {task.id!r} for its grader"):
                sent = pickle.dumps(replace(task, metadata={} if task.grader in BY_REFERENCE else dict(task.metadata)))
        except GraderError as error:
            self._finish(_Job(grader=task.grader, answer=answer, task=b"", future=future, key=key), failed(str(error)))
            return future
        self._enqueue(_Job(grader=task.grader, answer=answer, task=sent, future=future, key=key))
        return future

    def _enqueue(self, job: _Job) -> None:
        with self._lock:
            if not self.closed:
                while len(self._slots) < self.workers:
                    slot = _Slot(self, len(self._slots))
                    self._slots.append(slot)
                    slot.start()
                self._jobs.put(job)
                return
        self._finish(job, failed("the grader pool was closed"))

    def _finish(self, job: _Job, grade: Grade) -> None:
        with self._lock:
            if job.key is not None:
                self._in_flight.pop(job.key, None)
                short = len(job.answer or "") <= CACHED_ANSWER_CHARS
                if grade.status is not GradeStatus.FAILED and short and self.cache_size > 0:
                    self._cache[job.key] = grade
                    while len(self._cache) > self.cache_size:
                        self._cache.popitem(last=False)
        if grade.status is GradeStatus.FAILED and job.answer is not None:
            self._count("failed")
        job.future.set_result(grade)

    def _took(self, job: _Job) -> None:
        if job.answer is not None:
            with self._lock:
                self._counts["queued"] += 1
                self._queue_s += time.monotonic() - job.since

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


class _Slot(threading.Thread):
    """The thread that owns one worker process of a pool, and replaces it when it hangs or dies."""

    def __init__(self, pool: GraderPool, number: int) -> None:
        super().__init__(name=f"grader-{number}", daemon=True)
        self._pool = pool
        self._worker: WorkerProcess | None = None
        self._known: list[str] = []  # graders that the last process had loaded

    def live_pid(self) -> int | None:
        worker = self._worker
        return worker.pid if worker is not None and worker.alive else None

    def stop(self) -> None:
        """Called by the pool when it closes: end the process, which wakes the thread."""
        if (worker := self._worker) is not None:
            worker.kill()

    def run(self) -> None:
        job: _Job | None
        while not self._pool.closed:
            with suppress(GraderError):  # no process can be started now: the next job says so in its grade
                self._ensure_worker()
            try:
                job = self._pool._jobs.get(timeout=IDLE_CHECK_S)
            except queue.Empty:
                continue
            if job is None:
                break
            self._pool._took(job)
            try:
                with boundary(GraderError, f"grading with {job.grader!r}"):
                    grade = self._answer(job)
            except GraderError as error:  # whatever it is: somebody waits for this grade
                grade = failed(str(error))
            self._pool._finish(job, grade)
            self._recycle(grade)
        self.stop()

    def _ensure_worker(self) -> WorkerProcess:
        """The live process of this slot: a dead one is replaced, and loads what the one before it had loaded."""
        if self._worker is not None:
            if self._worker.alive:
                return self._worker
            self._known = [name for name, refusal in self._worker.loaded.items() if not refusal]
            self._worker.kill()
            self._worker = None
            self._pool._count("replaced")
        self._worker = WorkerProcess(memory_mib=self._pool.memory_mib)
        for name in self._known:
            try:
                self._worker.load(name, self._pool.start_deadline_s)
            except (TimeoutError, WorkerGone, GraderError):
                break  # the next job that needs it says so in its grade
        return self._worker

    def _recycle(self, grade: Grade) -> None:
        """End a process that leaks, before it has no memory left for the answers of others."""
        worker = self._worker
        starved = grade.status is GradeStatus.FAILED and "MemoryError" in grade.detail
        if worker is not None and worker.alive and (starved or worker.swollen):
            worker.kill()
            self._pool._count("recycled")

    def _answer(self, job: _Job) -> Grade:
        try:
            worker = self._ensure_worker()
        except GraderError as error:
            return failed(str(error))
        doing, limit = f"loading grader {job.grader!r}", self._pool.start_deadline_s
        try:
            if refusal := worker.load(job.grader, limit):
                return failed(refusal)
            if job.answer is None:
                return Grade(status=GradeStatus.RIGHT, score=1.0)
            doing, limit = f"grading with {job.grader!r}", self._pool.deadline_s
            return worker.grade(job.grader, job.answer, job.task, limit)
        except TimeoutError:
            worker.kill()
            self._pool._count("timeouts")
            return failed(f"deadline: {doing} took more than {limit:g} s; the worker was killed and replaced")
        except WorkerGone as error:
            detail = f"the worker died while {doing} ({error}; {worker.last_words()}); it was replaced"
            worker.kill()
            self._pool._count("died")
            return failed("the grader pool was closed" if self._pool.closed else detail)
        except GraderError as error:
            worker.kill()
            return failed(str(error))


def _key(answer: str, task: Task) -> Key:
    """What a grade depends on."""
    reference = repr(task.answer)
    if task.grader in BY_REFERENCE:
        return (task.grader, reference, answer)
    return (task.grader, reference, answer, task.id, task.question)


def _running_future() -> Future[Grade]:
    """A future that no waiter can cancel: others may wait for the same grade."""
    future: Future[Grade] = Future()
    future.set_running_or_notify_cancel()
    return future


assert set(GRADERS) >= BY_REFERENCE
