"""What a grader is, the built-in ones by name, and how a user's own `module:name` is found and called.

A grader is a function `(answer, task) -> Grade | bool | float`; a float is a score in [0, 1] and 1.0 is right. It runs
in a worker process of a `GraderPool`. What it raises is a failed grade, never a wrong answer.
"""

from __future__ import annotations

import importlib
import json
import math
import queue
import traceback
from collections.abc import Callable
from typing import Any

from rolecall.errors import GraderError, boundary, nearest
from rolecall.grading.math import failed, grade_math, right, warm_up, wrong
from rolecall.records import Grade, GradeStatus, Task

Grader = Callable[[str, Task], "Grade | bool | float"]

RIGHT_SCORE = 0.99  # a dataset's scorer that gives its own answer this much calls it right


def math_grader(answer: str, task: Task) -> Grade:
    """Mathematical equality with the task's answer; `grade_math` says how."""
    return grade_math(answer, _reference(task, "math"))


def text_grader(answer: str, task: Task) -> Grade:
    """The same text, apart from case and white space."""
    reference = _reference(task, "text")
    same = " ".join(answer.casefold().split()) == " ".join(reference.casefold().split())
    return right() if same else wrong()


def reasoning_gym_grader(answer: str, task: Task) -> Grade:
    """The score of the dataset's own scorer, which may be partial; right from `RIGHT_SCORE` on.

    Some scorers raise on an answer that they cannot read. Whether that is a reaction to the answer is tried, not
    assumed: when the same scorer on the same entry takes a control (the entry's own answer, or no answer where the
    entry has none) without raising, the answer is wrong; otherwise the scorer itself is broken and the grade failed.
    """
    entry = dict(task.metadata["entry"])
    dataset = _dataset(task.metadata["family"], json.dumps(dict(task.metadata["params"]), sort_keys=True))
    try:
        with boundary(GraderError, f"the scorer of reasoning-gym's {task.metadata['family']!r}"):
            score = float(dataset.score_answer(answer, entry))
    except GraderError as error:
        if isinstance(error.__cause__, MemoryError | RecursionError):
            raise
        dataset.score_answer(entry["answer"], entry)  # raises: the scorer is broken for this entry, whatever the answer
        return wrong(f"the dataset's scorer could not read the answer: {error.__cause__!r}")
    return as_grade(1.0 if RIGHT_SCORE <= score <= 1.0 else score, "reasoning_gym")


def code_grader(answer: str, task: Task) -> Grade:
    """All tests of the task pass (`code`), or the share that does (`code_partial`). A `GraderPool` has sandboxes of its
    own for it; called by itself, it starts one."""
    from rolecall.grading.code_pool import CodePool

    grades: queue.SimpleQueue[Grade] = queue.SimpleQueue()
    with CodePool() as pool:
        pool.submit(answer, task, grades.put)
        return grades.get()


def _reference(task: Task, grader: str) -> str:
    if task.answer is None:
        raise GraderError(
            f"task {task.id!r} has no answer, which grader {grader!r} compares with; use a task source with answers, "
            f"or another grader for it"
        )
    return task.answer


_DATASETS: dict[tuple[str, str], Any] = {}


def _dataset(family: str, params: str) -> Any:
    """The dataset object of a family, made once per worker."""
    if (family, params) not in _DATASETS:
        import reasoning_gym

        _DATASETS[family, params] = reasoning_gym.create_dataset(family, **{**json.loads(params), "size": 1, "seed": 0})
    return _DATASETS[family, params]


GRADERS: dict[str, Grader] = {
    "math": math_grader,
    "text": text_grader,
    "reasoning_gym": reasoning_gym_grader,
    "code": code_grader,
    "code_partial": code_grader,
}


def load_grader(name: str) -> Grader:
    """The grader called `name`, ready to run: its heavy libraries are imported, which no deadline of an answer pays.

    `GraderError` with the real traceback when a user's module does not import.
    """
    if name == "math":
        warm_up()
    elif name == "reasoning_gym":
        importlib.import_module("reasoning_gym")
    if name in GRADERS:
        return GRADERS[name]
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise GraderError(f"there is no grader {name!r}{nearest(name, GRADERS)}; a grader of your own is 'module:name'")
    try:
        with boundary(GraderError, f"importing {module_name!r} for grader {name!r}"):
            found: Any = importlib.import_module(module_name)
    except GraderError as error:
        raise GraderError(f"{error}\n{''.join(traceback.format_exception(error.__cause__))}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise GraderError(
                f"grader {name!r}: {getattr(found, '__name__', found)} has no {part!r}{nearest(part, dir(found))}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise GraderError(f"grader {name!r} is {found!r}; wanted a function (answer, task) -> Grade, bool or score")
    grader: Grader = found
    return grader


def as_grade(result: object, name: str) -> Grade:
    """A grader's result as a `Grade`; `GraderError` when it is none of those that a grader may return."""
    if isinstance(result, Grade):
        if (result.score is None) is not (result.status is GradeStatus.FAILED):
            raise GraderError(
                f"grader {name!r} returned {result!r}; the score is None exactly when the status is FAILED"
            )
        return result
    if isinstance(result, bool):
        return right() if result else wrong()
    if isinstance(result, int | float) and math.isfinite(result) and 0 <= result <= 1:
        return Grade(status=GradeStatus.RIGHT if result == 1 else GradeStatus.WRONG, score=float(result))
    raise GraderError(f"grader {name!r} returned {result!r}; wanted a Grade, a bool or a score in [0, 1]")


def apply_grader(grader: Grader, name: str, answer: str, task: Task) -> Grade:
    """One grade; whatever the grader raises makes it a failed one."""
    try:
        with boundary(GraderError, f"grader {name!r}"):
            return as_grade(grader(answer, task), name)
    except GraderError as error:
        return failed(str(error))
