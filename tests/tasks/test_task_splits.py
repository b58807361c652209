"""Splits by a hash of the question: disjoint, stable, of the asked size; and the cursor over shuffled epochs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecall.errors import CheckpointError, TaskError
from rolecall.records import Task
from rolecall.tasks import SplitRule, TaskSet, TaskSplits, TaskStream, load_tasks


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Tasks from a list of questions."""

    questions: tuple[str, ...]
    generated: bool = False
    label: str = "listed"
    prefix: str = "t"
    answer: str = "1"

    def tasks(self) -> Iterator[Task]:
        for index, question in enumerate(self.questions):
            yield Task(id=f"{self.prefix}:{index}", question=question, answer=self.answer)


def numbered(count: int) -> tuple[str, ...]:
    return tuple(f"question {n}" for n in range(count))


def make_set(count: int) -> TaskSet:
    return TaskSet.of("train", Listed(questions=numbered(count)).tasks())


# First bytes of sha256, worked out with `printf %s TEXT | sha256sum`.
KNOWN = [
    ("2+12", 0, "test"),
    ("7+17", 25, "test"),
    ("2+2", 26, "validation"),
    ("11+1", 51, "validation"),
    ("8+8", 52, "train"),
    ("2+8", 255, "train"),
]


@pytest.mark.parametrize(("question", "byte", "split"), KNOWN)
def test_seed_zero_splits_by_the_first_byte_of_the_question_s_hash(question: str, byte: int, split: str) -> None:
    rule = SplitRule()
    assert (rule.num_test, rule.num_validation) == (26, 26)
    assert rule.split(question) == split
    if byte < 255:
        assert SplitRule(test_share=(byte + 1) / 256, validation_share=0.0).split(question) == "test"
    if byte:
        assert SplitRule(test_share=byte / 256, validation_share=0.0).split(question) == "train"


def test_another_seed_gives_another_partition() -> None:
    questions = numbered(400)
    plain, other = ([SplitRule(seed=seed).split(q) for q in questions] for seed in (0, 1))
    assert plain != other
    for splits in (plain, other):
        counts = Counter(splits)
        assert 20 <= counts["test"] <= 65  # 40.6 expected, four standard deviations each way
        assert 20 <= counts["validation"] <= 65


@settings(max_examples=60)
@given(
    st.lists(st.text(max_size=12), min_size=1, max_size=150),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_splits_are_disjoint_and_do_not_depend_on_order_or_size(
    questions: list[str], seed: int, random: object
) -> None:
    rule = SplitRule(test_share=0.3, validation_share=0.2, seed=seed)
    by_question = {question: rule.split(question) for question in questions}
    train = [q for q in dict.fromkeys(questions) if by_question[q] == "train"]
    if not train:
        return
    shuffled = list(questions)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for order in (questions, shuffled):
        splits = load_tasks(Listed(questions=tuple(order), generated=True), train=0, validation=0, test=0, rule=rule)
        assert {task.question for task in splits.train} == set(train)
        assert splits.num_duplicates == len(order) - len(set(order))
    sizes = Counter(by_question[q] for q in dict.fromkeys(questions))
    full = load_tasks(
        Listed(questions=tuple(shuffled), generated=True),
        train=len(train),
        validation=sizes["validation"],
        test=sizes["test"],
        rule=rule,
    )
    sets = [{task.question for task in part} for part in (full.train, full.validation, full.test)]
    assert sum(len(part) for part in sets) == len(set(questions)) == len(set().union(*sets))


def test_reading_stops_as_soon_as_every_split_is_full() -> None:
    read = []

    class Endless(Listed):
        def tasks(self) -> Iterator[Task]:
            for index in range(10**9):
                read.append(index)
                yield Task(id=f"t:{index}", question=f"question {index}", answer="1")

    splits = load_tasks(Endless(questions=()), train=50, validation=5, test=5)
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [50, 5, 5]
    assert len(read) < 400
    assert splits.num_unused == len(read) - 60


def test_tasks_of_a_split_that_is_not_asked_for_never_become_training_tasks() -> None:
    splits = load_tasks(Listed(questions=numbered(300)), train=0, validation=0, test=0)
    assert all(SplitRule().split(task.question) == "train" for task in splits.train)
    assert len(splits.train) + splits.num_unused == 300
    assert len(splits.test) == len(splits.validation) == 0


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_too_few_tasks_for_the_asked_size_are_an_error_with_the_numbers(split: str) -> None:
    sizes = {"train": 1, "validation": 0, "test": 0, split: 5000}
    with pytest.raises(TaskError, match=rf"the {split} split has \d+ tasks; wanted 5000.*300 tasks were read"):
        load_tasks(Listed(questions=numbered(300)), **sizes)


def test_no_task_at_all_to_train_on_is_an_error() -> None:
    with pytest.raises(TaskError, match="the train split has 0 tasks; wanted at least 1"):
        load_tasks(Listed(questions=("2+12",)), train=0, validation=0, test=1)
    with pytest.raises(TaskError, match=r"sizes.test is -1"):
        load_tasks(Listed(questions=numbered(9)), train=0, validation=0, test=-1)


def test_generated_repetitions_are_left_out_and_counted_but_data_is_kept_as_it_is() -> None:
    questions = numbered(40) + numbered(40)
    generated = load_tasks(Listed(questions=questions, generated=True), train=0, validation=0, test=0)
    data = load_tasks(Listed(questions=questions), train=0, validation=0, test=0)
    assert generated.num_duplicates == 40
    assert len(data.train) == 2 * len(generated.train)
    assert data.num_duplicates == 0
    assert len({task.id for task in data.train}) == len(data.train)  # the same text, and yet two tasks


def test_two_tasks_with_one_id_are_an_error() -> None:
    source = Listed(questions=numbered(30))
    with pytest.raises(TaskError, match="two tasks have the id 't:0'"):
        load_tasks(source, train=0, validation=0, test=0, test_source=replace(source, questions=("other",)))


def test_a_held_out_set_of_its_own_keeps_its_questions_out_of_training() -> None:
    source = Listed(questions=numbered(100))
    own = Listed(questions=("question 3", "question 4", "new"), prefix="own", label="own")
    splits = load_tasks(source, train=0, validation=0, test=0, test_source=own)
    assert [task.id for task in splits.test] == ["own:0", "own:1", "own:2"]
    assert splits.num_held_back == 2
    assert not {task.question for task in splits.train} & {"question 3", "question 4"}
    validation = sum(SplitRule().split(q) == "validation" for q in numbered(100))
    assert len(splits.train) + splits.num_unused + splits.num_held_back == 100
    assert splits.num_unused <= validation  # what hashes to test is trained on: the test set is elsewhere


def load(**changes: object) -> TaskSplits:
    source = replace(Listed(questions=numbered(200)), **{k: v for k, v in changes.items() if k != "rule"})
    return load_tasks(source, train=20, validation=2, test=2, rule=changes.get("rule"))  # type: ignore[arg-type]


def test_the_fingerprint_changes_with_ids_questions_answers_and_the_rule_and_with_nothing_else() -> None:
    first = load()
    assert load().fingerprint == first.fingerprint
    others = [
        load(prefix="u"),
        load(answer="2"),
        load(questions=("another", *numbered(200))),
        load(rule=SplitRule(test_share=0.2)),
    ]
    assert len({first.fingerprint, *[other.fingerprint for other in others]}) == 5
    first.require(load().fingerprint)
    with pytest.raises(CheckpointError, match="start a new run"):
        first.require(others[0].fingerprint)


@pytest.mark.parametrize(
    "shares", [{"test_share": -0.1}, {"test_share": 1.0}, {"validation_share": 0.001}, {"test_share": 0.95}]
)
def test_shares_that_cannot_be_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(TaskError, match="share"):
        SplitRule(**shares)


def test_every_epoch_holds_every_task_once_in_another_order() -> None:
    stream = TaskStream(make_set(12), seed=3)
    epochs = [[task.id for task in stream.take(4) + stream.take(4) + stream.take(4)] for _ in range(3)]
    assert all(len(set(epoch)) == 12 for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [task.id for task in TaskStream(make_set(12), seed=3).take(12)] == epochs[0]
    assert [task.id for task in TaskStream(make_set(12), seed=4).take(12)] != epochs[0]


@given(st.integers(1, 20), st.lists(st.integers(1, 20), max_size=12), st.integers(0, 5))
def test_one_take_never_holds_a_task_twice_and_no_task_is_lost(size: int, takes: list[int], seed: int) -> None:
    stream = TaskStream(make_set(size), seed=seed)
    taken = []
    for n in takes:
        batch = [task.id for task in stream.take(min(n, size))]
        assert len(batch) == len(set(batch)) == min(n, size)
        taken += batch
    for start in range(0, len(taken) - size + 1, size):
        assert len(set(taken[start : start + size])) == size


@given(st.lists(st.integers(1, 7), min_size=1, max_size=10), st.integers(0, 9))
def test_a_cursor_that_is_restored_goes_on_exactly_there(takes: list[int], cut: int) -> None:
    whole = TaskStream(make_set(7), seed=1)
    expected = [[task.id for task in whole.take(n)] for n in takes]
    before = TaskStream(make_set(7), seed=1)
    got = [[task.id for task in before.take(n)] for n in takes[:cut]]
    after = TaskStream(make_set(7), seed=1)
    after.restore(json.loads(json.dumps(before.state())))
    got += [[task.id for task in after.take(n)] for n in takes[cut:]]
    assert got == expected


def test_a_cursor_of_other_tasks_or_another_seed_is_not_restored() -> None:
    state = TaskStream(make_set(7), seed=1).state()
    with pytest.raises(CheckpointError, match="cursor of the train set"):
        TaskStream(make_set(8), seed=1).restore(state)
    with pytest.raises(CheckpointError, match="seed 1"):
        TaskStream(make_set(7), seed=2).restore(state)


def test_a_step_that_asks_for_more_tasks_than_there_are_is_an_error() -> None:
    with pytest.raises(TaskError, match="asks for 8 tasks; the train set has 7"):
        TaskStream(make_set(7), seed=0).take(8)
    with pytest.raises(TaskError, match="the train set is empty"):
        TaskStream(make_set(0), seed=0)
