from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.errors import ConfigError
from rolecall.records import ClaimKind, Verdict
from rolecall.workflows.evaluator_optimizer import EvaluatorOptimizer
from rolecall.workflows.orchestrator_workers import parse_strategies
from rolecall.workflows.parse import ANSWER_FORMATS, extract_answer, last_boxed, parse_verdict
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect
from rolecall.workflows.voting import parse_choice


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Verdict: correct", Verdict.CORRECT),
        ("verdict: CORRECT.", Verdict.CORRECT),
        ("**Verdict:** **Correct**\n", Verdict.CORRECT),
        ("Verdict: Incorrect", Verdict.WRONG),
        ("Verdict: **wrong**!", Verdict.WRONG),
        ("Verdict: correct\nOn second thoughts. Verdict: wrong", Verdict.WRONG),
        ("Verdict: not correct", Verdict.UNPARSED),
        ("Verdict: correct, mostly", Verdict.UNPARSED),
        ("The solution is correct.", Verdict.UNPARSED),
        ("Verdict:", Verdict.UNPARSED),
        ("\u0130\u0130\u0130 Verdict: correct", Verdict.CORRECT),  # letters that are two in lower case
        ("", Verdict.UNPARSED),
        (None, Verdict.UNPARSED),
    ],
)
def test_a_verdict_is_the_single_word_after_the_last_marker(text: str | None, verdict: Verdict) -> None:
    assert parse_verdict(text) is verdict


def test_a_truncated_report_has_no_verdict_even_when_it_names_one() -> None:
    assert parse_verdict("Verdict: correct", truncated=True) is Verdict.UNPARSED


@given(st.text())
def test_text_without_the_marker_never_has_a_verdict(text: str) -> None:
    if "verdict:" not in text.lower():
        assert parse_verdict(text) is Verdict.UNPARSED


def test_a_verifiers_claim_is_its_verdict_and_incorrect_is_wrong() -> None:
    workflow = SolveVerifyCorrect()
    assert workflow.claim("verifier", "Verdict: Incorrect", False).value == "wrong"
    assert workflow.claim("verifier", "Verdict: Incorrect", True).value is None
    assert workflow.claim("verifier", "Verdict: correct", False).kind is ClaimKind.VERDICT
    assert workflow.claim("corrector", r"\boxed{5}", False).value == "5"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{1} no, \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{4} and then \boxed{5", "4"),
        (r"\boxed{}", None),
        ("42", None),
    ],
)
def test_a_boxed_answer_is_the_last_whose_braces_balance(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


def test_a_line_answer_is_the_line_after_the_last_marker() -> None:
    assert extract_answer("Answer: 3\nno\n**Answer:** 4 \nbye", "line") == "4"
    assert extract_answer("nothing", "line") is None
    assert extract_answer("  17\n", "text") == "17"
    assert extract_answer(None, "text") is None


DEGENERATE = {
    "boxes that never close": "\\boxed{" * 3000,
    "boxes around boxes": "\\boxed{" * 3000 + "}" * 3000,
    "a number without end": "9" * 20000 + "a",
    "a box with such a number": "\\boxed{" + "9" * 20000 + "}",
    "blanks after a marker": "answer is" + " " * 20000 + "option is" + "\n" * 20000,
    "empty lines": "\n" * 20000 + "x",
    "a fence with blanks": "```" + " " * 20000 + "`",
    "fences": "~" * 20000 + "`\n" + "```\n" * 5000,
    "stars": "*" * 20000,
}
"""What models write that have collapsed, or that are cut off in the middle of a repetition."""


@pytest.mark.parametrize("name", DEGENERATE)
def test_text_without_end_is_read_in_no_time(name: str) -> None:
    text, begun = DEGENERATE[name], time.process_time()
    for form in ANSWER_FORMATS:
        extract_answer(text, form)
    parse_verdict(text)
    parse_choice(text, 3)
    parse_strategies(text)
    assert time.process_time() - begun < 2.0


def test_the_last_of_nested_boxes_is_the_inner_one() -> None:
    assert last_boxed("\\boxed{" * 3000 + "7" + "}" * 3000) == "7"


def test_a_marker_of_no_letters_is_an_error() -> None:
    for marker in ("", " \n"):
        with pytest.raises(ConfigError, match=r"verdict_marker is '.*'; wanted the words before a verdict"):
            SolveVerifyCorrect(verdict_marker=marker)
        with pytest.raises(ConfigError, match=r"verdict_marker is '.*'; wanted the words before a verdict"):
            EvaluatorOptimizer(verdict_marker=marker)


def test_an_unknown_answer_format_is_an_error() -> None:
    with pytest.raises(ConfigError, match="answer_format 'box' is not one of boxed"):
        SolveVerifyCorrect(answer_format="box")
