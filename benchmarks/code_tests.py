"""Tests of programs a second: a warm sandbox against a fresh interpreter for each test, and orders of work against each
other.

Every program has `TESTS` tests of input and output. Mixes: 80 % wrong (as early in training), all wrong, all right, and
a slow right tail (the last program, whose tests take `SLOW_S` each). Contenders: `scheduler` (first tests of all
programs first, early failure, speculation when idle), `in_turn` (the same sandboxes and early failure, a program after
the other, its tests one by one), `all_tests` (every test of every program, as partial credit needs) and `fresh` (an
unsandboxed `python -c` for each test, early failure, side by side on as many threads).
"""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from figures import Figure, figure, ratio, take_turns, timed

from rolecall.code_problems import CodeProblem, StdioTest
from rolecall.grading.code_pool import CodePool
from rolecall.records import Grade, GradeStatus, Task

WORKERS = 2
PROGRAMS = 40
TESTS = 5
SLOW_S = 0.2
ADD = "print(sum(map(int, input().split())))"
LATE = "a, b = map(int, input().split())\nprint(a + b if a < 3 else 0)"  # wrong from the fourth test on
SLOW = f"import time\ntime.sleep({SLOW_S})\n{ADD}"
MIXES: dict[str, list[str]] = {
    "mostly_wrong": [ADD if n % 5 == 0 else "print(-1)" if n % 5 < 4 else LATE for n in range(PROGRAMS)],
    "all_wrong": ["print(-1)"] * PROGRAMS,
    "all_right": [ADD] * PROGRAMS,
    "slow_tail": [ADD] * (PROGRAMS - 1) + [SLOW],
}
CONTENDERS = ("scheduler", "in_turn", "all_tests", "fresh")
PEERS: dict[str, str] = {}
FIGURES = {
    f"{mix}/{name}": f"programs a second, {mix.replace('_', ' ')}, {name.replace('_', ' ')}"
    for mix in MIXES
    for name in CONTENDERS
} | {
    f"{mix}/over_{name}": f"the scheduler's programs a second over those of {name.replace('_', ' ')}, {mix}"
    for mix in MIXES
    for name in CONTENDERS[1:]
}
FIGURES |= {
    "tests_per_s": "tests a second in warm sandboxes, all right",
    "fresh_tests_per_s": "tests a second, each in a fresh unsandboxed interpreter, all right",
}


def run(repeats: int) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    with (
        CodePool(workers=WORKERS) as scheduler,
        CodePool(workers=WORKERS, first_tests_first=False, speculate=False) as in_turn,
    ):
        for mix, sources in MIXES.items():
            contenders: dict[str, Callable[[], float]] = {
                "scheduler": partial(timed, partial(graded, scheduler, sources, "code")),
                "in_turn": partial(timed, partial(graded, in_turn, sources, "code")),
                "all_tests": partial(timed, partial(graded, scheduler, sources, "code_partial")),
                "fresh": partial(timed, partial(fresh, sources)),
            }
            seconds = take_turns(contenders, repeats)
            found |= {f"{mix}/{n}": figure((PROGRAMS / s for s in seconds[n]), "1/s") for n in CONTENDERS}
            found |= {f"{mix}/over_{n}": ratio(seconds[n], seconds["scheduler"]) for n in CONTENDERS[1:]}
            if mix == "all_right":
                count = PROGRAMS * TESTS
                found["tests_per_s"] = figure((count / s for s in seconds["scheduler"]), "1/s")
                found["fresh_tests_per_s"] = figure((count / s for s in seconds["fresh"]), "1/s")
    return {name: found[name] for name in FIGURES}


def pairs() -> list[tuple[str, str]]:
    return [(f"{n} {n + 1}\n", f"{2 * n + 1}\n") for n in range(TESTS)]


def graded(pool: CodePool, sources: list[str], grader: str) -> None:
    """All grades of the programs; each must be what the program deserves."""
    problem = CodeProblem(tests=tuple(StdioTest(stdin=given, stdout=wanted) for given, wanted in pairs()))
    task = Task(id="t", question="?", answer=None, grader=grader, metadata={"code": problem.record()})
    grades: queue.SimpleQueue[tuple[int, Grade]] = queue.SimpleQueue()
    for number, source in enumerate(sources):
        pool.submit(source, task, partial(_put, grades, number))
    for _ in sources:
        number, grade = grades.get()
        right = sources[number] in (ADD, SLOW)
        assert grade.status is (GradeStatus.RIGHT if right else GradeStatus.WRONG), grade


def _put(grades: queue.SimpleQueue[tuple[int, Grade]], number: int, grade: Grade) -> None:
    grades.put((number, grade))


def fresh(sources: list[str]) -> None:
    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(_fresh_program, sources))


def _fresh_program(source: str) -> bool:
    for given, wanted in pairs():
        done = subprocess.run([sys.executable, "-c", source], input=given, capture_output=True, text=True, check=False)
        if done.returncode != 0 or done.stdout != wanted:
            return False
    return True


if __name__ == "__main__":
    for name, one in run(3).items():
        print(f"{name:32} {one['value']:>10.2f} [{one['low']:.2f}, {one['high']:.2f}] {one['unit']}")
