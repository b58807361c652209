"""Answers written to break a grader: none is right, none takes long, none takes a worker with it."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecall.grading import GraderPool, grade_math
from rolecall.grading.expression import read_expression
from rolecall.grading.math import MAX_READ_CHARS, grade_plain
from rolecall.grading.symbols import Unreadable
from rolecall.grading.values import TooBig, Undefined, value
from rolecall.records import GradeStatus, Task

HOSTILE = {
    "a tower of powers": "9**9**9",
    "a tower of LaTeX": "9^{9^{9^{9}}}",
    "a tower after a word": "so x is 9**9**9",
    "a million digits": "9" * 1_000_000,
    "megabytes of words": "spam " * 600_000,
    "megabytes of boxes": r"\boxed{" * 400_000,
    "brackets without end": "(" * 49 + "1" + ")" * 49,
    "braces that never close": "{" * 5000,
    "braces that were never open": "}" * 5000,
    "half a fraction": r"\frac{1}{" * 30,
    "fractions in fractions": r"\frac{1}{" * 40 + "2" + "}" * 40,
    "roots of roots": r"\sqrt" * 90 + "2",
    "factorials": "9" + "!" * 300,
    "a factorial of a billion": "(10^9)!",
    "a binomial of billions": r"\binom{10^9}{5 \cdot 10^8}",
    "a power with a huge exponent": "10**1000000000",
    "a polynomial of degree 100,000": "(x+y+1)^{100000}",
    "a sine of a huge angle": r"\sin(10^{10^9})",
    "signs": "-" * 450 + "1",
    "bars": "|" * 400,
    "a list of many": "1" + ",1" * 240,
    "a union of many": "[1,2]" + r"\cup[1,2]" * 45,
    "equal signs": "1=1" * 120,
    "plus and minus": r"\pm" * 100 + "1",
    "and": "1 and " * 80,
    "a macro that grows": r"\def\x{\x\x}\x",
    "a command that defines itself": r"\newcommand{\a}{\a\a}\a",
    "a loop of TeX": r"\loop\iftrue\repeat",
    "control characters": "\x00\x1b[2J\x07",
    "text that runs to the left": "\u202e5\u202c1",
    "half of a surrogate pair": "\ud8005",
    "code": "__import__('os').system('sleep 60')",
    "an attribute": "().__class__.__bases__",
    "a lambda": "(lambda f: f(f))(lambda f: f(f))",
    "a period of thousands": r"0.\overline{" + "1" * 5000 + "}",
    "least common multiples": "lcm(" + "123456789123456789," * 20 + "1)",
    "dollars": "$" * 9000,
    "an exponent of a float": "1e999999999",
    "sums": r"\sum_{k=1}^{10^{12}} k!",
    "a product to infinity": r"\prod_{k=1}^{999999999} k^k",
}
REFERENCES = ["5", r"2\sqrt{3}", "x^2+2x", r"(-\infty,1)\cup(2,\infty)", r"\{1,2,3\}", "(7,8)"]


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_are_read_quickly_and_never_right(answer: str) -> None:
    """What is decided outside the workers blocks a run's event loop: it has milliseconds, not seconds."""
    for reference in REFERENCES:
        begun = time.process_time()
        grade = grade_plain(answer, reference)
        assert time.process_time() - begun < 1.0
        assert grade is None or not grade.right


def test_a_pool_calls_every_hostile_answer_wrong_and_loses_no_worker() -> None:
    task = Task(id="t", question="?", answer="5")
    with GraderPool(workers=2, deadline_s=20.0) as pool:
        pool.start(["math"])
        grades = dict(zip(HOSTILE, pool.grade([(answer, task) for answer in HOSTILE.values()]), strict=True))
        assert {name: grade.status for name, grade in grades.items()} == dict.fromkeys(HOSTILE, GradeStatus.WRONG)
        assert pool.stats.replaced == 0
        assert pool.grade([(r"\sum_{k=1}^{3} k - 1", task)])[0].right


def test_a_tower_of_powers_is_wrong_and_not_a_failure() -> None:
    assert grade_math("so x is 9**9**9", "5").status is GradeStatus.WRONG
    assert grade_math("9**9**9", "9^{9^9}").right
    assert not grade_math("9**9**9**9", "9**9**9").right


@given(st.text(alphabet=r"0123456789xyei+-*/^_!|(){}[],.:;=<>\$% &~" + "\n", max_size=120))
@settings(max_examples=150, deadline=None)
def test_no_text_of_mathematical_characters_breaks_the_reading(text: str) -> None:
    for reference in ("5", r"\{1,2\}", "x+1"):
        grade = grade_plain(text, reference)
        assert grade is None or grade.status is not GradeStatus.FAILED


def test_random_pieces_of_latex_are_read_within_milliseconds() -> None:
    rng = random.Random(0)
    pieces = ["1", "9", "x", "+", "-", "^", "{", "}", "(", ")", r"\frac", r"\sqrt", "!", "|", ",", "[", "]", "**"]
    pieces += [r"\cup", "=", "<", r"\pm", " and ", " ", "e", "sin", r"\binom", r"\{", r"\}", r"\\", "&", ":"]
    begun = time.process_time()
    for _ in range(300):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(5, 200)))[:MAX_READ_CHARS]
        for reference in ("5", r"\{1,2,3\}"):
            grade = grade_plain(text, reference)
            assert grade is None or not grade.right or text.strip() == "5"
    assert time.process_time() - begun < 20.0


@pytest.mark.parametrize("text", ["9^9^9^9^9", "(10^9)!", r"\sin(10^{10^{9}})", r"e^{10^{13}}", r"\binom{10^9}{3}"])
def test_numbers_too_large_to_write_down_are_refused_and_not_worked_out(text: str) -> None:
    begun = time.process_time()
    with pytest.raises((TooBig, Undefined)):
        value(read_expression(text))
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize("text", ["(" * 200 + "1" + ")" * 200, "1+" * 500 + "1", "9" * 5000, "hello", "1 2", ""])
def test_what_is_too_deep_too_long_or_no_mathematics_is_not_read(text: str) -> None:
    with pytest.raises(Unreadable):
        read_expression(text)
