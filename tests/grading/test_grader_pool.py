"""The pool of grader processes: deadlines, deaths, failures as a class of their own, any thread, any loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rolecall.errors import ConfigError, GraderError
from rolecall.grading import GraderPool
from rolecall.grading.health import GraderWatch
from rolecall.grading.process import WALL_FACTOR
from rolecall.records import Grade, GradeStatus, Task

DEADLINE_S = 3.0
WALL_S = DEADLINE_S * WALL_FACTOR + 10  # what it may take on a machine that is busy

# Computer algebra works on each of these for hours. (Towers of powers are wrong at once: test_math_hostile.py.)
HANGS = [r"\sum_{n=1}^{9998} n^{n!}", r"\prod_{n=1}^{9998} n^{n!}", r"\sum_{n=1}^{9997} n^{n!}"]


def total(n: int) -> str:
    """A sum that computer algebra works out in a worker: n (n + 1) / 2."""
    return rf"\sum_{{k=1}}^{{{n}}} k"


def make_task(answer: str | None = "5", grader: str = "math", **metadata: Any) -> Task:
    return Task(id=f"t:{answer}", question="What is it?", answer=answer, grader=grader, metadata=metadata)


@pytest.fixture(scope="module")
def pool() -> Iterator[GraderPool]:
    with GraderPool(workers=2, deadline_s=DEADLINE_S) as pool:
        pool.start(["math"])
        yield pool


@pytest.fixture
def grader_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a module that workers started from now on can import."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, code: str) -> None:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))

    return write


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() if Path("/proc").exists() else _no_process(pid)


def _no_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_answers_are_graded_in_order_plain_or_not(pool: GraderPool) -> None:
    answers = [total(3), "5", None, r"\frac{10}{2}", total(4), "17", "2+3", ""]
    references = ["6", "5", "5", "5", "10", "7", "5", "5"]
    grades = pool.grade([(a, make_task(r)) for a, r in zip(answers, references, strict=True)])
    assert [g.right for g in grades] == [True, True, False, True, True, False, True, False]
    assert grades[2] == Grade(status=GradeStatus.WRONG, score=0.0, detail="no answer")


def test_a_hung_grader_is_killed_within_the_limit_and_the_pool_keeps_its_size(pool: GraderPool) -> None:
    before, replaced = set(pool.pids), pool.stats.replaced
    started = time.monotonic()
    grades = pool.grade([(answer, make_task("5")) for answer in HANGS[:2]])
    took = time.monotonic() - started
    assert [g.status for g in grades] == [GradeStatus.FAILED] * 2
    assert all(g.score is None and "deadline" in g.detail for g in grades)
    assert took < WALL_S
    assert pool.stats.timeouts >= 2
    assert wait_for(lambda: len(pool.pids) == 2 and pool.stats.replaced == replaced + 2)
    assert not before & set(pool.pids)
    assert all(is_gone(pid) for pid in before)  # no zombie is left either
    assert pool.grade([(total(5), make_task("15"))])[0].right


def test_the_deadline_of_one_answer_does_not_delay_the_grades_of_others(pool: GraderPool) -> None:
    grades = pool.grade(
        [(HANGS[2], make_task("5"))] + [(total(n), make_task(str(n * (n + 1) // 2))) for n in range(2, 9)]
    )
    assert grades[0].status is GradeStatus.FAILED
    assert all(g.right for g in grades[1:])


@pytest.mark.parametrize(
    "answer",
    [
        "9**9**9",
        "x" * 5_000_000,
        "{" * 40 + "(" * 9,
        "}" * 5_000,
        r"\frac{" * 10_000 + "1" + "}{2}" * 10_000,
        "\x00\x07\x1b]0;title\x07\ud800",
        "__import__('os').system('exit 1')",
        "$" * 5_000,
        r"\sum_{n=1}^{10^{12}} n^{n}",
    ],
    ids=lambda answer: repr(answer[:12]),
)
def test_hostile_answers_come_back_within_the_deadline_and_never_right(pool: GraderPool, answer: str) -> None:
    started = time.monotonic()
    (grade,) = pool.grade([(answer, make_task("5"))])
    assert time.monotonic() - started < WALL_S
    assert not grade.right


def test_a_right_answer_scores_one_when_graded_inside_a_thread(pool: GraderPool) -> None:
    """Limits made of signals raise off the main thread; when that is swallowed every reward is 0."""
    grades: list[Grade] = []
    thread = threading.Thread(target=lambda: grades.extend(pool.grade([(total(10) + " - 50", make_task("5"))])))
    thread.start()
    thread.join(30)
    assert grades[0].score == 1.0


def test_the_event_loop_goes_on_while_answers_are_graded(pool: GraderPool) -> None:
    async def main() -> tuple[list[Grade], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticker = asyncio.create_task(tick())
        grades = await pool.grade_many([(HANGS[1], make_task("6")), (total(6), make_task("21"))])
        ticker.cancel()
        return grades, ticks

    grades, ticks = asyncio.run(main())
    assert [g.status for g in grades] == [GradeStatus.FAILED, GradeStatus.RIGHT]
    assert ticks > 20


def test_a_waiter_that_is_cancelled_takes_no_grade_from_another(pool: GraderPool) -> None:
    async def main() -> Grade:
        pair = (total(7), make_task("28"))
        first = asyncio.create_task(pool.grade_many([pair]))
        second = asyncio.create_task(pool.grade_many([pair]))
        await asyncio.sleep(0)
        first.cancel()
        return (await second)[0]

    assert asyncio.run(main()).right


def test_one_answer_is_graded_once_and_failures_are_tried_again(pool: GraderPool) -> None:
    pair = (total(8), make_task("36"))
    pool.grade([pair, pair])
    cached = pool.stats.cached
    assert pool.grade([pair])[0].right
    assert pool.stats.cached == cached + 1
    failed = pool.stats.failed
    for _ in range(2):
        pool.grade([(HANGS[1], make_task("32"))])
    assert pool.stats.failed == failed + 2


def test_a_worker_that_dies_while_idle_is_replaced(pool: GraderPool) -> None:
    assert wait_for(lambda: len(pool.pids) == 2)
    victim = pool.pids[0]
    os.kill(victim, signal.SIGKILL)
    assert wait_for(lambda: len(pool.pids) == 2 and victim not in pool.pids)


def test_what_a_grader_raises_prints_returns_or_dies_of_is_a_failed_grade(
    grader_module: Callable[[str, str], None],
) -> None:
    grader_module(
        "odd_graders",
        """
        import os, sys
        from rolecall.records import Grade, GradeStatus
        def raises(answer, task): raise KeyError("no such thing")
        def exits(answer, task): sys.exit(3)
        def aborts(answer, task): os.abort()
        def nothing(answer, task): return None
        def beyond(answer, task): return 2.0
        def eats(answer, task): return "x" * 10**12
        def prints(answer, task): print(answer * 10); os.write(1, b"{}"); return answer == task.answer
        def partial(answer, task): return 0.25
        def whole(answer, task): return Grade(status=GradeStatus.RIGHT, score=1.0, detail=str(task.metadata["n"]))
        """,
    )
    names = ["raises", "exits", "aborts", "nothing", "beyond", "eats", "prints", "partial", "whole"]
    with GraderPool(workers=1, deadline_s=5.0) as pool:
        grades = dict(
            zip(names, pool.grade([("5", make_task("5", f"odd_graders:{name}", n=7)) for name in names]), strict=True)
        )
        assert wait_for(lambda: len(pool.pids) == 1)
    for name in names[:6]:
        assert grades[name].status is GradeStatus.FAILED, name
        assert grades[name].score is None
    assert "KeyError" in grades["raises"].detail
    assert "exit code 3" in grades["exits"].detail
    assert "MemoryError" in grades["eats"].detail
    assert grades["prints"].right
    assert grades["partial"] == Grade(status=GradeStatus.WRONG, score=0.25)
    assert grades["whole"] == Grade(status=GradeStatus.RIGHT, score=1.0, detail="7")


BURN = """
import time
def burn(answer, task):
    until = time.process_time() + float(answer)
    while time.process_time() < until:
        pass
    return True
def sleep(answer, task):
    time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="it needs Linux")
def test_a_deadline_does_not_count_the_time_that_a_busy_machine_takes(
    grader_module: Callable[[str, str], None],
) -> None:
    """One CPU for the grader and five others: .6 s of work take longer by the clock than the deadline of 1 s, and are
    graded; 1.5 s of work are not, and neither is a grader that sleeps."""
    grader_module("burning_graders", BURN)
    cpu = min(os.sched_getaffinity(0))
    with GraderPool(workers=1, deadline_s=1.0) as pool:
        pool.start(["burning_graders:burn"])
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]
        try:
            for pid in [*pool.pids, *(other.pid for other in others)]:
                os.sched_setaffinity(pid, {cpu})
            started = time.monotonic()
            (grade,) = pool.grade([("0.6", make_task("5", "burning_graders:burn"))])
            took = time.monotonic() - started
            assert grade.right, grade.detail
            assert took > 1.2, "the machine was not busy, and the test shows nothing"
            (late,) = pool.grade([("1.5", make_task("5", "burning_graders:burn"))])
        finally:
            for other in others:
                other.kill()
                other.wait()
        assert (late.status, late.score, pool.stats.timeouts) == (GradeStatus.FAILED, None, 1)
        started = time.monotonic()
        (slept,) = pool.grade([("1", make_task("5", "burning_graders:sleep"))])
        assert slept.status is GradeStatus.FAILED
        assert time.monotonic() - started < 8


def test_what_graders_did_is_counted_since_the_last_look(grader_module: Callable[[str, str], None]) -> None:
    grader_module(
        "dying_graders", "import os\ndef die(answer, task):\n    os._exit(9)\ndef right(answer, task): return True\n"
    )
    with GraderPool(workers=1) as pool:
        watch = GraderWatch(pool)
        assert set(watch.metrics().values()) == {0.0}
        pool.grade([("5", make_task("5", "dying_graders:die")), ("5", make_task("5", "dying_graders:right"))])
        found = watch.metrics()
        assert {name: found[f"graders/{name}"] for name in ("answers", "failed", "died", "replaced", "timeouts")} == {
            "answers": 2,
            "failed": 1,
            "died": 1,
            "replaced": 1,
            "timeouts": 0,
        }
        assert 0 < found["graders/queue_s"] < 60
        assert found["graders/memory_mib"] > 5
        assert watch.metrics()["graders/answers"] == 0


LEAK = """
kept = []
def leak(answer, task):
    kept.append(bytearray(100 << 20))
    return True
"""


def test_a_grader_that_leaks_is_replaced_before_it_has_no_memory_left(
    grader_module: Callable[[str, str], None],
) -> None:
    """100 MiB kept an answer, 1,024 may be used: twenty answers are all graded, by several processes."""
    grader_module("leaking_graders", LEAK)
    with GraderPool(workers=1, memory_mib=1024, cache_size=0) as pool:
        grades = pool.grade([(str(n), make_task("5", "leaking_graders:leak")) for n in range(20)])
        assert all(grade.right for grade in grades), [grade.detail for grade in grades]
        assert pool.stats.recycled >= 4
        assert wait_for(lambda: pool.stats.replaced == pool.stats.recycled)
        assert pool.held_mib() < 500


def test_a_disk_that_is_full_is_a_failed_grade_and_stalls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file for what a grader prints: grades fail with the reason, and the pool is whole when there is room again."""
    real, full = tempfile.TemporaryFile, threading.Event()

    def file(*arguments: Any, **more: Any) -> Any:
        if full.is_set():
            raise OSError(28, "No space left on device")
        return real(*arguments, **more)

    monkeypatch.setattr("rolecall.grading.process.tempfile.TemporaryFile", file)
    with GraderPool(workers=2) as pool:
        full.set()
        grades = pool.grade([(total(n), make_task("5")) for n in (11, 12, 13)])
        assert {grade.status for grade in grades} == {GradeStatus.FAILED}
        assert all("No space left on device" in grade.detail for grade in grades)
        full.clear()
        assert pool.grade([(total(3), make_task("6"))])[0].right
        full.set()
        os.kill(pool.pids[0], signal.SIGKILL)
        assert wait_for(lambda: len(pool.pids) < 2)
        full.clear()
        assert wait_for(lambda: len(pool.pids) == 2)
        assert pool.stats.replaced == 1


def test_a_fault_of_the_pool_itself_is_a_failed_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    with GraderPool(workers=1) as pool:
        pool.start(["math"])
        monkeypatch.setattr("rolecall.grading.process.WorkerProcess.grade", broken)
        (grade,) = pool.grade([(total(14), make_task("105"))])
        assert (grade.status, grade.score) == (GradeStatus.FAILED, None)
        assert "a fault of ours" in grade.detail
        monkeypatch.undo()
        assert pool.grade([(total(14), make_task("105"))])[0].right


def test_children_of_a_hung_grader_are_killed_with_it(
    grader_module: Callable[[str, str], None], tmp_path: Path
) -> None:
    grader_module(
        "spawning_grader",
        f"""
        import subprocess, time
        def spawn(answer, task):
            child = subprocess.Popen(["sleep", "300"])
            open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
            time.sleep(300)
        """,
    )
    with GraderPool(workers=1, deadline_s=1.0) as pool:
        (grade,) = pool.grade([("5", make_task("5", "spawning_grader:spawn"))])
    assert grade.status is GradeStatus.FAILED
    child = int((tmp_path / "pid").read_text())
    assert wait_for(lambda: is_gone(child) or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])


def test_a_grader_that_does_not_import_stops_the_start_with_its_real_traceback(
    grader_module: Callable[[str, str], None],
) -> None:
    grader_module("broken_grader", "import json\nfrom json import nothing_of_that_name\n")
    with GraderPool() as pool:
        with pytest.raises(GraderError) as caught:
            pool.start(["math", "broken_grader:grade"])
        assert "broken_grader.py" in str(caught.value)
        assert "nothing_of_that_name" in str(caught.value)
        (grade,) = pool.grade([("5", make_task("5", "broken_grader:grade"))])
        assert grade.status is GradeStatus.FAILED


@pytest.mark.parametrize(
    ("name", "words"),
    [("mth", "did you mean 'math'"), ("json:JSONDecod", "did you mean 'JSONDecode"), ("json:__doc__", "wanted")],
)
def test_a_grader_that_does_not_exist_is_named_with_the_nearest_one(pool: GraderPool, name: str, words: str) -> None:
    with pytest.raises(GraderError, match=words):
        pool.start([name])


def test_a_task_without_an_answer_under_the_math_grader_fails_and_is_not_wrong(pool: GraderPool) -> None:
    (grade,) = pool.grade([("5", make_task(None))])
    assert grade.status is GradeStatus.FAILED
    assert "has no answer" in grade.detail


def test_metadata_that_cannot_travel_to_a_worker_fails_with_the_task_named(pool: GraderPool) -> None:
    task = Task(id="t:1", question="q", answer="5", grader="reasoning_gym", metadata={"f": lambda: 1})
    (grade,) = pool.grade([("5", task)])
    assert grade.status is GradeStatus.FAILED
    assert "t:1" in grade.detail


def test_a_closed_pool_fails_its_answers_and_leaves_no_process() -> None:
    pool = GraderPool(workers=1, deadline_s=60.0)
    pool.start(["math"])
    pids = pool.pids
    grades: list[Grade] = []
    waiting = threading.Thread(target=lambda: grades.extend(pool.grade([(a, make_task("5")) for a in HANGS])))
    waiting.start()
    time.sleep(0.5)
    pool.close()
    waiting.join(20)
    assert [g.status for g in grades] == [GradeStatus.FAILED] * 3
    assert all("closed" in g.detail for g in grades)
    assert wait_for(lambda: all(is_gone(pid) for pid in pids))
    assert pool.grade([(total(9), make_task("45"))])[0].status is GradeStatus.FAILED


ORPHANING = """
import sys, time
from rolecall.grading import GraderPool
from rolecall.grading.health import GraderWatch
from rolecall.grading.process import WALL_FACTOR
from rolecall.records import Task
pool = GraderPool(workers=1, deadline_s=1.0)
pool.start(["math"])
print(pool.pids[0], flush=True)
if sys.argv[1] == "hang":
    pool.grade([(r"\\sum_{n=1}^{9998} n^{n!}", Task(id="t", question="q", answer="5"))])
time.sleep(300)
"""


@pytest.mark.parametrize("doing", ["idle", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_worker_does_not_outlive_a_pool_that_was_killed(doing: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHANING, doing], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    if doing == "hang":
        time.sleep(0.5)  # into the answer, before its deadline
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    assert wait_for(lambda: is_gone(worker) or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2], 30)


def test_plain_answers_start_no_process() -> None:
    with GraderPool() as pool:
        assert pool.grade([("7", make_task("7"))])[0].right
        assert pool.pids == []


@pytest.mark.parametrize("settings", [{"workers": 0}, {"deadline_s": 0.0}, {"memory_mib": -1}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        GraderPool(**settings)
