"""Programs graded by their tests: what is right, wrong and failed; what is compared where; the order of tests."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rolecall.code_problems import CallTest, CodeProblem, ScriptTest, StdioTest
from rolecall.errors import SandboxError
from rolecall.grading import GraderPool
from rolecall.grading.code import Verdict, same_text, same_value
from rolecall.grading.code_pool import CodePool
from rolecall.grading.graders import code_grader
from rolecall.records import Grade, GradeStatus, Task
from rolecall.tasks import Code, HumanEval

_IDS = itertools.count()


def task(*tests: StdioTest | CallTest | ScriptTest, grader: str = "code", **fields: object) -> Task:
    problem = CodeProblem(tests=tests, **fields)
    number = str(next(_IDS))  # a pool remembers grades by the task's id
    return Task(id=number, question="?", answer=None, grader=grader, metadata={"code": problem.record()})


SUMS = task(*(StdioTest(stdin=f"{a} {b}", stdout=str(a + b)) for a, b in ((1, 2), (5, 5), (-3, 3))))
ADD = "print(sum(map(int, input().split())))"


@pytest.fixture(scope="module")
def pool() -> Iterator[GraderPool]:
    with GraderPool(workers=2) as made:
        yield made


def grade(pool: GraderPool, answer: str, of: Task) -> Grade:
    return pool.grade([(answer, of)])[0]


def test_input_and_output(pool):
    assert grade(pool, ADD, SUMS) == Grade(status=GradeStatus.RIGHT, score=1.0, detail="3 tests passed")
    found = grade(pool, "print(3)", SUMS)
    assert (found.status, found.score) == (GradeStatus.WRONG, 0.0)
    assert found.detail.startswith("test 2 of 3: wrong output '3\\n' for input '5 5'")
    assert "ZeroDivisionError" in grade(pool, "1 / 0", SUMS).detail
    assert not grade(pool, ADD + "\nraise SystemExit(1)", SUMS).right


def test_partial_credit_is_the_share_of_tests(pool):
    partial = Task(id="p", question="?", answer=None, grader="code_partial", metadata=SUMS.metadata)
    assert grade(pool, ADD, partial).score == 1.0
    found = grade(pool, "print(3)", partial)
    assert (found.status, found.score) == (GradeStatus.WRONG, pytest.approx(1 / 3))
    assert grade(pool, "print('x')", partial).score == 0.0


def test_calls_of_functions_and_of_a_class(pool):
    of = task(CallTest(function="f", arguments=([1, 2],), expected=[2, 1]))
    assert grade(pool, "def f(x):\n    return x[::-1]", of).right
    assert grade(pool, "class Solution:\n    def f(self, x):\n        return tuple(x[::-1])", of).right
    assert not grade(pool, "def f(x):\n    return x", of).right
    assert "no function 'f'" in grade(pool, "def g(x):\n    return x[::-1]", of).detail
    assert "cannot leave the sandbox" in grade(pool, "def f(x):\n    return object()", of).detail
    wrapped = task(CallTest(function="f", arguments=(1,), expected=[7], wrapped=True))
    assert grade(pool, "def f(x):\n    return 7", wrapped).right


def test_scripts_call_the_program_across_the_wall(pool):
    script = """
import math
assert f(2) == 4
assert math.isclose(f(x=0.5), 0.25)
try:
    f(None)
    assert False, "no error"
except TypeError:
    pass
"""
    of = task(ScriptTest(script=script, functions=("f",)))
    assert grade(pool, "def f(x):\n    return x * x", of).right
    assert "assertion failed in line 3" in grade(pool, "def f(x):\n    return x", of).detail
    assert "no error" in grade(pool, "def f(x):\n    return x * x if x else 4", of).detail
    assert "ZeroDivisionError" in grade(pool, "def f(x):\n    1 / 0", of).detail
    assert "SyntaxError" in grade(pool, "def f(x:", of).detail


def test_a_test_that_does_not_run_is_a_failed_grade(pool):
    broken = pool.stats.broken
    found = grade(pool, "def f():\n    pass", task(ScriptTest(script="assert f(", functions=("f",))))
    assert (found.status, found.score) == (GradeStatus.FAILED, None)
    assert "the test does not run: SyntaxError" in found.detail
    assert pool.stats.broken == broken + 1


def test_a_test_that_needs_a_module_which_is_not_there_is_a_failed_grade_and_no_zero(pool):
    """The test's own import, at its top or late; the same exception out of the program is the program's fault."""
    for script in ("import not_there\nassert f() == 1", "assert f() == 1\nfrom not_there import x"):
        found = grade(pool, "def f():\n    return 1", task(ScriptTest(script=script, functions=("f",))))
        assert (found.status, found.score) == (GradeStatus.FAILED, None)
        assert "the test does not run: ModuleNotFoundError: No module named 'not_there'" in found.detail
    found = grade(pool, "def f():\n    import not_there", task(ScriptTest(script="assert f() == 1", functions=("f",))))
    assert (found.status, found.score) == (GradeStatus.WRONG, 0.0)
    assert "not_there" in found.detail


HUMAN_EVAL_PLUS = {
    "task_id": "HumanEval/1000",
    "prompt": 'def scale(numbers, by):\n    """All numbers times by."""\n',
    "entry_point": "scale",
    "canonical_solution": "    return [number * by for number in numbers]\n",
    "test": """
import numpy as np

def is_floats(x):
    return isinstance(x, float) or (isinstance(x, (list, tuple)) and all(isinstance(i, float) for i in x))

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        np.testing.assert_allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp, f"out: {out}, exp: {exp}"

def check(candidate):
    for inp, exp in zip([[[1, 2], 3], [[0.1, 0.2], 3.0]], [[3, 6], [0.3, 0.6]]):
        assertion(candidate(*inp), exp, 0)
""",
}


def test_tests_that_use_numpy_run_and_programs_may_use_it(pool, tmp_path):
    path = tmp_path / "plus.jsonl"
    path.write_text(json.dumps(HUMAN_EVAL_PLUS) + "\n")
    (of,) = Code(path=str(path)).tasks()
    assert of.metadata["format"] == "human_eval"
    assert grade(pool, HUMAN_EVAL_PLUS["canonical_solution"], of).right
    assert grade(pool, "    import numpy as np\n    return (np.array(numbers) * by).tolist()\n", of).right
    found = grade(pool, "    return [number + by for number in numbers]\n", of)
    assert found.status is GradeStatus.WRONG
    assert "assertion failed" in found.detail
    assert grade(pool, "    return [number * by + 0.01 for number in numbers]\n", of).status is GradeStatus.WRONG


def test_arrays_cross_as_arrays_to_tests_and_as_lists_to_comparisons(pool):
    script = """
import numpy as np
assert np.array_equal(f(np.eye(2, dtype="f4")), 2 * np.eye(2))
assert f(np.arange(3)).dtype == "i8"
"""
    of = task(ScriptTest(script=script, functions=("f",)))
    assert grade(pool, "import numpy as np\ndef f(x):\n    return 2 * np.asarray(x)", of).right
    listed = task(CallTest(function="f", arguments=(), expected=[[1, 0], [0, 1]]))
    assert grade(pool, "import numpy as np\ndef f():\n    return np.eye(2, dtype=int)", listed).right
    one = task(CallTest(function="f", arguments=(), expected=3))
    assert grade(pool, "import numpy as np\ndef f():\n    return np.int64(3)", one).right
    assert (
        "cannot leave the sandbox" in grade(pool, "import numpy as np\ndef f():\n    return np.array([{}])", one).detail
    )


def test_a_task_without_tests_is_a_failed_grade(pool):
    found = grade(pool, "x", Task(id="t9", question="?", answer=None, grader="code"))
    assert found.status is GradeStatus.FAILED
    assert "has no tests" in found.detail


def test_a_sandbox_that_dies_is_replaced_and_its_test_tried_again():
    with GraderPool(workers=1) as pool:
        pool.grade([(ADD, SUMS)])
        slow = task(StdioTest(stdin="", stdout="7"))
        inner = pool._code._benches[0].program.inner_pid
        assert inner is not None
        threading.Timer(0.5, os.kill, (inner, signal.SIGKILL)).start()
        assert grade(pool, "import time\ntime.sleep(1.5)\nprint(7)", slow).right
        assert (pool.stats.lost, pool.stats.restarts, pool.stats.failed) == (1, 1, 0)
        assert pool.held_mib() > 5


def test_a_sandbox_that_always_dies_is_a_failed_grade_and_no_zero(monkeypatch):
    with GraderPool(workers=1) as pool:
        pool.start(["code"])

        def lose(*_: object) -> None:
            raise SandboxError("the sandbox was lost")

        monkeypatch.setattr("rolecall.grading.code.Bench.try_test", lose)
        found = grade(pool, ADD, SUMS)
        assert (found.status, found.score) == (GradeStatus.FAILED, None)
        assert pool.stats.failed == 1
        assert pool.stats.lost == 3


def test_a_program_that_hangs_stops_no_other():
    hang = task(StdioTest(stdin="", stdout=""), limits={"cpu_s": 1.0, "wall_s": 1.0})
    with GraderPool(workers=2) as pool:
        pairs = [("import time\ntime.sleep(99)", hang), *[(f"{ADD} # {n}", SUMS) for n in range(10)]]
        grades = pool.grade(pairs)
    assert [one.right for one in grades] == [False] + [True] * 10
    assert grades[0].status is GradeStatus.WRONG


def test_closing_ends_what_runs_with_failed_grades():
    pool = GraderPool(workers=1)
    slow = task(StdioTest(stdin="", stdout=""), limits={"wall_s": 100.0})

    async def grades() -> list[Grade]:
        waiting = asyncio.create_task(pool.grade_many([("import time\ntime.sleep(99)", slow), (ADD, SUMS)]))
        await asyncio.sleep(1.0)
        await asyncio.to_thread(pool.close)
        return await waiting

    started = time.monotonic()
    assert [one.status for one in asyncio.run(grades())] == [GradeStatus.FAILED] * 2
    assert time.monotonic() - started < 20
    assert pool.pids == []


def test_without_protection_a_pool_does_not_start(monkeypatch):
    monkeypatch.setattr(sys.modules["rolecall.sandbox.protection"], "_strongest", lambda: (None, ("no bwrap",)))
    with GraderPool() as pool:
        with pytest.raises(SandboxError, match="cannot be contained here"):
            pool.start(["code"])
        assert grade(pool, ADD, SUMS).status is GradeStatus.FAILED
    with GraderPool(unsandboxed=True) as pool:
        pool.start(["code"])
        assert pool.protection is not None
        assert pool.protection.name == "none"
        assert grade(pool, ADD, SUMS).right


def test_the_grader_alone_has_a_sandbox_of_its_own():
    assert code_grader(ADD, SUMS).right


@pytest.mark.parametrize(
    ("seen", "wanted", "same"),
    [
        ("1 2\n", "1 2", True),
        ("1 2  \n\n", "1 2\n", True),
        ("1\n2", "1 2", False),
        ("1  2", "1 2", True),
        ("0.30000000000000004", "0.3", True),
        ("0.31", "0.3", False),
        ("3.0", "3", True),
        ("3.0000001", "3", False),
        ("100000000000000000001", "100000000000000000000", False),
        ("yes", "YES", False),
        ("1e99999999999", "1.0", False),
        ("nan", "1.0", False),
        ("", "", True),
    ],
)
def test_outputs_are_compared_by_line_and_number(seen, wanted, same):
    assert same_text(seen, wanted, 1e-6) is same


@pytest.mark.parametrize(
    ("seen", "wanted", "same"),
    [
        ([1, (2, 3)], [1, [2, 3]], True),
        ([1, 2], [2, 1], False),
        (True, 1, False),
        (1, True, False),
        (0.1 + 0.2, 0.3, True),
        (3.0, 3, True),
        ("3", 3, False),
        ({1: "a"}, {"1": "a"}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (None, None, True),
        (None, [], False),
        (float("nan"), 1.0, False),
        (10**400, 1.5, False),
    ],
)
def test_values_are_compared_by_type_and_number(seen, wanted, same):
    assert same_value(seen, wanted, 1e-6) is same


def _graded(pool: CodePool, pairs: list[tuple[str, Task]]) -> list[Grade]:
    grades: dict[int, Grade] = {}
    told = threading.Semaphore(0)

    def done(number: int, one: Grade) -> None:
        grades[number] = one
        told.release()

    for number, (answer, of) in enumerate(pairs):
        pool.submit(answer, of, lambda one, number=number: done(number, one))
    for _ in pairs:
        assert told.acquire(timeout=120)
    return [grades[number] for number in range(len(pairs))]


class Recorder:
    """Stands in for the sandboxes: remembers the order of tests, passes those whose source says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gate: threading.Event | None = None) -> None:
        self.order: list[tuple[str, str]] = []
        self.stopped = 0
        recorder = self

        def try_test(bench: object, source: str, test: StdioTest, problem: CodeProblem, owner: object) -> Verdict:
            recorder.order.append((source, test.stdin))
            if gate is not None:
                gate.wait(10)
            return Verdict(passed=test.stdin not in source.split(), detail="no")

        def stop(bench: object, owner: object) -> None:
            recorder.stopped += 1

        monkeypatch.setattr("rolecall.grading.code.Bench.try_test", try_test)
        monkeypatch.setattr("rolecall.grading.code.Bench.stop", stop)


def _numbered(count: int, grader: str = "code") -> Task:
    return task(*(StdioTest(stdin=str(n), stdout="") for n in range(count)), grader=grader)


def test_first_tests_of_all_programs_come_first_and_a_failure_drops_the_rest(monkeypatch):
    gate = threading.Event()
    recorder = Recorder(monkeypatch, gate)
    with CodePool(workers=1) as pool:
        threading.Timer(0.3, gate.set).start()
        grades = _graded(pool, [("a 0", _numbered(3)), ("b", _numbered(3)), ("c 1", _numbered(3))])
        assert [one.right for one in grades] == [False, True, False]
        assert recorder.order[:3] == [("a 0", "0"), ("b", "0"), ("c 1", "0")]
        assert sorted(recorder.order[3:]) == [("b", "1"), ("b", "2"), ("c 1", "1")]
        assert (pool.counts["tests"], pool.counts["dropped"]) == (6, 3)


def test_idle_workers_speculate_and_a_failure_stops_what_is_needless(monkeypatch):
    """Of eight tests three run; the first fails, and the other two end only because they are stopped."""
    begun, stopped = threading.Semaphore(0), threading.Semaphore(0)

    def try_test(bench: object, source: str, test: StdioTest, problem: CodeProblem, owner: object) -> Verdict:
        if test.stdin != "0":
            begun.release()
            assert stopped.acquire(timeout=60)
            raise SandboxError("the test was stopped")
        assert begun.acquire(timeout=60)
        assert begun.acquire(timeout=60)
        return Verdict(passed=False, detail="no")

    monkeypatch.setattr("rolecall.grading.code.Bench.try_test", try_test)
    monkeypatch.setattr("rolecall.grading.code.Bench.stop", lambda bench, owner: stopped.release())
    with CodePool(workers=3) as pool:
        assert _graded(pool, [("a", _numbered(8))])[0].status is GradeStatus.WRONG
        assert pool.counts == {"tests": 3, "speculated": 2, "dropped": 5, "queued": 1}


def test_without_speculation_tests_of_a_program_come_one_by_one(monkeypatch):
    recorder = Recorder(monkeypatch)
    with CodePool(workers=3, speculate=False) as pool:
        assert _graded(pool, [("a", _numbered(5))])[0].right
        assert recorder.order == [("a", str(n)) for n in range(5)]


def test_partial_credit_runs_every_test(monkeypatch):
    recorder = Recorder(monkeypatch)
    with CodePool(workers=2) as pool:
        assert _graded(pool, [("a 0 2", _numbered(4, "code_partial"))])[0].score == 0.5
        assert len(recorder.order) == 4


@pytest.mark.slow
def test_human_eval_references_pass_and_their_mutations_fail(pool):
    tasks = list(HumanEval().tasks())
    assert len(tasks) == 164
    solutions = [one.metadata["code"]["solution"] for one in tasks]
    grades = pool.grade(list(zip(solutions, tasks, strict=True)))
    assert [one.id for one, g in zip(tasks, grades, strict=True) if not g.right] == []
    grades = pool.grade([("    return None\n", one) for one in tasks])
    assert [one.id for one, g in zip(tasks, grades, strict=True) if g.status is not GradeStatus.WRONG] == []
    mutants = [mutated(solution) for solution in solutions]
    grades = pool.grade(list(zip(mutants, tasks, strict=True)))
    survivors = [one.id for one, g in zip(tasks, grades, strict=True) if g.right]
    assert survivors == ["human_eval:HumanEval/52"]  # its test asks for no more than a true value


def mutated(solution: str) -> str:
    """The solution with its last returned value put into a list: equal to nothing that a test may want."""
    at = solution.rindex("return ")
    line, *rest = solution[at + len("return ") :].split("\n")
    if line.count("(") != line.count(")") or line.count("[") != line.count("]"):
        return solution.replace("return ", "return ['x'] + [None] or ")
    return solution[:at] + f"return ['x', {line.split('#')[0].rstrip()}]\n" + "\n".join(rest)


@pytest.mark.slow
def test_grades_are_the_same_ten_times_under_load():
    tasks = list(HumanEval().tasks())[::16]
    good = [(one.metadata["code"]["solution"], one) for one in tasks]
    bad = [("    return 0\n", one) for one in tasks]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    seen = set()
    try:
        with GraderPool(workers=4, cache_size=0) as pool:
            for seed in range(10):
                pairs = [*good, *bad]
                order = list(range(len(pairs)))
                random.Random(seed).shuffle(order)
                found = dict(zip(order, pool.grade([pairs[n] for n in order]), strict=True))
                seen.add(tuple((found[n].status, found[n].score) for n in range(len(pairs))))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert len(seen) == 1
    statuses = [status for status, _ in next(iter(seen))]
    assert statuses[: len(good)] == [GradeStatus.RIGHT] * len(good)
    assert GradeStatus.FAILED not in statuses
