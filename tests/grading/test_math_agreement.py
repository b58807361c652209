"""Agreement with labels written by hand: `math_answers.jsonl` holds pairs of an answer and a reference, whether the
answer is right, and why. Every pair must be graded as it is labelled, whatever the load and however often."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rolecall.grading import GraderPool, grade_math
from rolecall.records import Task
from rolecall.tasks.evaluation_file import evaluation_tasks

PAIRS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "math_answers.jsonl").read_text(encoding="utf-8").splitlines()
]
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "aime2025_sample.jsonl"


def name(pair: dict[str, Any]) -> str:
    return f"{pair['kind']}: {pair['answer']} for {pair['reference']}"


def test_the_labels_are_many_distinct_and_explained() -> None:
    assert len(PAIRS) >= 300
    assert len({(pair["answer"], pair["reference"]) for pair in PAIRS}) == len(PAIRS)
    assert all(pair["reason"] for pair in PAIRS)
    right = Counter(pair["kind"] for pair in PAIRS if pair["right"])
    wrong = Counter(pair["kind"] for pair in PAIRS if not pair["right"])
    assert sum(right.values()) >= 150
    assert sum(wrong.values()) >= 150
    assert all(wrong[kind] for kind in right)  # nothing but lenience would pass a list of right answers


@pytest.mark.parametrize("pair", PAIRS, ids=name)
def test_answers_are_graded_as_they_are_labelled(pair: dict[str, Any]) -> None:
    grade = grade_math(pair["answer"], pair["reference"])
    assert grade.right is pair["right"], f"{pair['reason']}; graded {grade}"


def test_no_answer_is_right_for_most_references() -> None:
    """Every labelled answer against references of other kinds: what is right for all is right for none."""
    rng = random.Random(0)
    references = ["11", r"\frac{17}{19}", "(5,12)", r"\{3,4\}", "x^3", r"(-\infty, 8)", "Tuesday", r"\sqrt{11}"]
    for pair in rng.sample(PAIRS, 60):
        assert sum(grade_math(pair["answer"], reference).right for reference in references) <= 1, pair["answer"]


def test_grades_are_the_same_in_ten_repeats_of_a_shuffled_and_loaded_pool() -> None:
    rng = random.Random(1)
    sample = rng.sample(PAIRS, 40) + [pair for pair in PAIRS if "sum" in pair["answer"] or "prod" in pair["answer"]]
    found: dict[int, set[tuple[str, float | None]]] = {number: set() for number in range(len(sample))}
    with GraderPool(workers=2, deadline_s=60.0, cache_size=0) as pool:
        for _ in range(10):
            order = rng.sample(range(len(sample)), len(sample))
            asked = [
                (sample[n]["answer"], Task(id=f"t{n}", question="?", answer=sample[n]["reference"])) for n in order
            ]
            for number, grade in zip(order, pool.grade(asked), strict=True):
                found[number].add((grade.status.value, grade.score))
    assert {n: len(grades) for n, grades in found.items()} == dict.fromkeys(found, 1)
    assert [next(iter(found[n]))[1] for n in sorted(found)] == [float(pair["right"]) for pair in sample]


@pytest.mark.skipif(not SHARED.exists(), reason="the sample of competition problems is not on this machine")
def test_references_of_a_competition_are_right_for_themselves_however_they_are_wrapped() -> None:
    tasks = list(evaluation_tasks(SHARED))
    for task in tasks:
        assert task.answer is not None
        number = task.answer.replace(r"^\circ", "")
        for answer in (
            task.answer,
            number,
            rf"\boxed{{{number}}}",
            f"${number}$.",
            f"x = {number}",
            f"{number}^\\circ",
        ):
            assert grade_math(answer, task.answer).right, (answer, task.answer)
        for other in tasks:
            if other is not task:
                assert not grade_math(str(other.answer), task.answer).right
        assert not grade_math(str(int(number) + 1), task.answer).right
