"""Mathematical answers: what is equal, what is not, and what needs no computer algebra."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.errors import GraderError
from rolecall.grading import grade_math
from rolecall.grading.math import grade_plain
from rolecall.grading.normalise import normalise, plain_number
from rolecall.records import GradeStatus

RIGHT = [
    (r"336^\circ", "336"),
    ("336", r"336^\circ"),
    (r"$336^{\circ}$", "336"),
    ("336°", "336"),
    ("336 degrees", "336"),
    ("1/2", "0.5"),
    ("0.5", "1/2"),
    (r"\frac{1}{2}", "0.5"),
    (r"\dfrac12", "1/2"),
    (r"-\frac{3}{4}", "-0.75"),
    ("1,000", "1000"),
    ("1{,}000", "1000"),
    (r"1\,000", "1000"),
    ("$7$", "7"),
    (r"\boxed{7}", "7"),
    (r"So the answer is $\boxed{\frac{1}{2}}$.", "1/2"),
    (r"\( 7 \)", "7"),
    (r"\text{7}", "7"),
    ("50%", "50"),
    (r"50\%", "0.5"),
    ("0.5", "50%"),
    (r"\$5", "5"),
    ("x = 5", "5"),
    ("5", "x=5"),
    ("x_1 = 5", "5"),
    ("The answer is 7.", "7"),
    ("7.0", "7"),
    ("07", "7"),
    ("+7", "7"),
    ("−7", "-7"),
    ("- 7", "-7"),
    ("1e3", "1000"),
    ("Yes", "yes"),
]

WRONG = [
    ("7", "17"),
    ("17", "7"),
    ("336", "3360"),
    ("3360", "336"),
    ("", "7"),
    ("   \n", "7"),
    ("-7", "7"),
    ("50%", "5000%"),
    ("50", "0.5"),
    ("0.33", "1/3"),
    ("7x", "7"),
    ("1,0", "10"),
    ("tea", "eat"),  # read as products of letters, these two would be equal
]

VALUE_RIGHT = [
    (r"\sqrt{12}", r"2\sqrt{3}"),
    ("2*sqrt(3)", r"2\sqrt{3}"),
    ("(x+1)^2-1", "x^2+2x"),
    ("2**10", "1024"),
    ("0.333333", "1/3"),
    (r"\{1,2\}", "2, 1"),
    ("5 cm", "5"),
    ("12*3 = 36", "36"),
    ("seven", "7"),
]

ALGEBRA_RIGHT = [
    (r"\sum_{k=1}^{3} k", "6"),
    (r"\int_0^1 2x \, dx", "1"),
]

ALGEBRA_WRONG = [
    ("7 or 17", "7"),
    ("7 17", "7"),
    ("1 7", "17"),
    ("7, 17", "7"),
    (r"7 \\ 17", "7"),
    ("$7$ and $17$", "7"),
    ("y = 5", "x = 5"),
    ("(1,2)", "(2,1)"),
    (r"\frac{1", "1"),
    ("7!", "7"),
    ("garbage in, garbage out", "5"),
    ("\x00\x1b[2J", "5"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "5"),
]


@pytest.mark.parametrize(("answer", "reference"), RIGHT)
def test_plain_answers_that_are_equal_grade_right_without_algebra(answer: str, reference: str) -> None:
    grade = grade_plain(answer, reference)
    assert grade is not None
    assert grade.status is GradeStatus.RIGHT
    assert grade.score == 1.0


@pytest.mark.parametrize(("answer", "reference"), WRONG)
def test_answers_that_differ_grade_wrong(answer: str, reference: str) -> None:
    assert grade_math(answer, reference).status is GradeStatus.WRONG


@pytest.mark.parametrize(("answer", "reference"), VALUE_RIGHT)
def test_expressions_are_compared_by_value_without_algebra(answer: str, reference: str) -> None:
    grade = grade_plain(answer, reference)
    assert grade is not None
    assert grade.right


@pytest.mark.parametrize(("answer", "reference"), ALGEBRA_RIGHT)
def test_answers_that_are_equal_by_algebra_grade_right(answer: str, reference: str) -> None:
    assert grade_plain(answer, reference) is None
    assert grade_math(answer, reference).right


@pytest.mark.parametrize(("answer", "reference"), ALGEBRA_WRONG)
def test_answers_that_algebra_tells_apart_grade_wrong(answer: str, reference: str) -> None:
    assert grade_math(answer, reference).status is GradeStatus.WRONG


def test_a_missing_reference_is_a_failure_of_the_grader_and_not_a_wrong_answer() -> None:
    with pytest.raises(GraderError, match="reference answer is empty"):
        grade_math("7", " ")


@pytest.mark.parametrize("answer", ["9" * 20_000, "{" * 60, r"\frac{" * 10_000 + "1" + "}{2}" * 10_000])
def test_answers_that_no_reading_could_make_right_are_wrong_at_once(answer: str) -> None:
    grade = grade_plain(answer, "5")
    assert grade is not None
    assert grade.status is GradeStatus.WRONG
    assert "characters" in grade.detail or "deep" in grade.detail


def test_a_long_or_deep_answer_is_read_when_its_reference_is_like_it() -> None:
    digits = "1" * 20_000
    assert grade_plain(digits, digits) is not None
    assert grade_plain(digits, digits).right  # type: ignore[union-attr]
    deep = "(" * 60 + "1" + ")" * 60
    assert grade_plain(deep, deep).right  # type: ignore[union-attr]


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_integers_grade_as_their_exact_values(a: int, b: int) -> None:
    assert grade_plain(str(a), str(b)).right is (a == b)  # type: ignore[union-attr]
    assert grade_plain(f"{a:,}", str(a)).right  # type: ignore[union-attr]


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_ratios_read_as_exact_fractions(top: int, bottom: int) -> None:
    assert plain_number(f"{top}/{bottom}").value == Fraction(top, bottom)  # type: ignore[union-attr]
    assert plain_number(rf"\frac{{{top}}}{{{bottom}}}").value == Fraction(top, bottom)  # type: ignore[union-attr]


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4))
def test_decimals_read_as_exact_fractions(number: object) -> None:
    assert plain_number(str(number)).value == Fraction(str(number))  # type: ignore[union-attr]


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_plain_answers(text: str) -> None:
    normalise(text)
    grade = grade_plain(text, "7")
    assert grade is None or grade.status is not GradeStatus.FAILED


@pytest.mark.parametrize("text", ["1/0", r"\frac{1}{0}", "7/2/3", "2+2", "x", "٣", "1,00", "1e9999", "", "."])
def test_what_is_no_plain_number_is_not_read_as_one(text: str) -> None:
    assert plain_number(text) is None


def test_importing_the_grading_package_imports_no_library_that_graders_use() -> None:
    code = (
        "import rolecall.grading, sys; heavy = {'math_verify', 'sympy', 'reasoning_gym', 'torch', 'numpy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
