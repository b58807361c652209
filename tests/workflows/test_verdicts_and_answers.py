from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecall.errors import ConfigError
from rolecall.records import ClaimKind, Verdict
from rolecall.workflows.parse import extract_answer, last_boxed, parse_verdict
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect


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


def test_an_unknown_answer_format_is_an_error() -> None:
    with pytest.raises(ConfigError, match="answer_format 'box' is not one of boxed"):
        SolveVerifyCorrect(answer_format="box")
