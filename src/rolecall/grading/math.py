"""Grades of mathematical answers: plain numbers exactly and at once, everything else by math-verify.

`grade_math` has no time limit of its own (math-verify's limit is a signal, which works in no thread but the main one):
call it through a `GraderPool`, which kills a worker that takes too long.
"""

from __future__ import annotations

import logging
import re
from fractions import Fraction
from typing import Any

from rolecall.errors import GraderError
from rolecall.grading.normalise import assigned_name, normalise, plain_number
from rolecall.records import Grade, GradeStatus

MAX_ANSWER_CHARS = 10_000
MAX_NESTING = 50  # the parsers take exponential time, or all of the stack, on deeper ones
NEAR = Fraction(1, 10**5)  # decimals nearer than this (relative) are left to math-verify, which rounds to 6 places

_POWER = re.compile(r"(?:\*\*|\^)\s*(-?[0-9]+)")  # LaTeX takes one character as the exponent: 2^10 is (2^1)0
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s-]+[^\W\d_]+)*")
_LATEX_NAMES = frozenset({"pi", "oo", "inf", "infinity"})


def right(detail: str = "") -> Grade:
    return Grade(status=GradeStatus.RIGHT, score=1.0, detail=detail)


def wrong(detail: str = "") -> Grade:
    return Grade(status=GradeStatus.WRONG, score=0.0, detail=detail)


def failed(detail: str) -> Grade:
    return Grade(status=GradeStatus.FAILED, score=None, detail=detail)


def grade_plain(answer: str, reference: str) -> Grade | None:
    """The grade when it needs no computer algebra, else None.

    Equal numbers are right, by exact rational arithmetic. Numbers that differ are wrong; only decimals that agree to
    about five places are left open, because math-verify rounds to six. Words are compared with words, as texts.

    An empty answer is wrong, and so is one that no reading could make right: of more than `MAX_ANSWER_CHARS` (and ten
    times the reference), or with brackets more than `MAX_NESTING` deep (and deeper than the reference).
    """
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(reference):
        return right() if int(answer) == int(reference) else wrong()
    if not answer.strip():
        return wrong("empty answer")
    if len(answer) > max(MAX_ANSWER_CHARS, 10 * len(reference)):
        return wrong(f"the answer has {len(answer)} characters; at most {MAX_ANSWER_CHARS} are read")
    seen, wanted = normalise(answer), normalise(reference)
    if nesting(answer) > max(MAX_NESTING, nesting(reference)):
        return wrong(f"the answer nests brackets more than {MAX_NESTING} deep")
    names = {assigned_name(answer), assigned_name(reference)} - {None}
    if len(names) > 1:
        return None
    if seen and seen == wanted:
        return right()
    a, b = plain_number(seen), plain_number(wanted)
    if is_words(wanted) and (is_words(seen) or a is not None):
        return right() if seen.casefold() == wanted.casefold() else wrong()
    if a is None or b is None:
        return wrong("the answer is words") if b is not None and is_words(seen) else None
    if a.percent and b.percent:
        pairs = [(a.value, b.value)]
    else:
        pairs = [(x, y) for x in a.readings for y in b.readings]
    if any(x == y for x, y in pairs):
        return right()
    return None if any(_near(x, y) for x, y in pairs) else wrong()


def _near(x: Fraction, y: Fraction) -> bool:
    both_integers = x.denominator == 1 and y.denominator == 1
    return not both_integers and abs(x - y) <= NEAR * max(Fraction(1), abs(y))


def nesting(text: str) -> int:
    """How deep brackets open in `text`."""
    depth = deepest = 0
    for char in text:
        if char in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "})]":
            depth -= 1
    return deepest


def is_words(text: str) -> bool:
    """Whether a text is words ("yes", "Monday"): math-verify would read letters as factors, so "tea" as "eat"."""
    return bool(_WORDS.fullmatch(text)) and text.casefold() not in _LATEX_NAMES


def grade_math(answer: str, reference: str) -> Grade:
    """Whether `answer` is mathematically equal to `reference`.

    An answer that is no mathematics is wrong. `GraderError` when the reference is missing, or when reading or comparing
    raised: that says nothing about the answer.
    """
    if not reference.strip():
        raise GraderError("the reference answer is empty; wanted a number or an expression: check the task's data")
    grade = grade_plain(answer, reference)
    return grade if grade is not None else _grade_by_algebra(answer, reference)


def _grade_by_algebra(answer: str, reference: str) -> Grade:
    gold = _read(reference)
    if not gold:
        return wrong("the reference is no mathematics, and the answer is not the same text")
    found = _read(answer)
    if not found:
        return wrong("the answer is no mathematics")
    return right() if _equal(gold, found) else wrong()


def _read(text: str) -> list[Any]:
    """The expressions that math-verify sees in a text; without its fallback to the bare string."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    name = assigned_name(text)
    body = normalise(text).replace(r"\$", "").replace("$", "")
    if r"\\" in body and r"\begin" not in body:
        return []  # math-verify would read the first line alone: an answer of two lines is two answers
    body = _POWER.sub(r"^{\1}", body).replace("**", "^")
    if name is not None:
        body = f"{name} = {body}"
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own limit is off: ours is the pool's
    found = parse(
        f"${body}$",
        extraction_config=[LatexExtractionConfig(), ExprExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return list(found)


def _equal(gold: list[Any], found: list[Any]) -> bool:
    from math_verify import verify

    return bool(verify(gold, found, timeout_seconds=None, raise_on_error=True))
