"""Grades of mathematical answers: numbers exactly, other mathematics by value, the rest by math-verify.

Three readers in turn, each cheaper than the next: plain numbers and words as texts; shapes of expressions, compared by
value (`compare`); computer algebra. The first that understands both sides decides. `grade_math` has no time limit of
its own (math-verify's limit is a signal, which works in no thread but the main one): call it through a `GraderPool`,
which kills a worker that takes too long.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from rolecall.errors import GraderError
from rolecall.grading.compare import alike
from rolecall.grading.normalise import assigned_name, clean, normalise, plain_number
from rolecall.grading.shapes import read_shape
from rolecall.grading.symbols import TooLarge, Unreadable
from rolecall.grading.values import TooBig, Undefined
from rolecall.grading.wording import choice_letter, plain_words, spelled_number
from rolecall.records import Grade, GradeStatus

MAX_ANSWER_CHARS = 10_000
MAX_NESTING = 50  # the parsers take exponential time, or all of the stack, on deeper ones
MAX_PLAIN_REFERENCE = 120  # an answer that is too large is wrong where the reference is no longer than this
MAX_READ_CHARS = 500  # longer texts go to math-verify, which looks for mathematics in prose

_POWER = re.compile(r"(?:\*\*|\^)\s*(-?[0-9]+)")  # LaTeX takes one character as the exponent: 2^10 is (2^1)0
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_WORDS = re.compile(r"[^\W\d_]{2,}(?:[\s-]+[^\W\d_]+)*")
_PRODUCT = re.compile(r"[A-Za-z]{2}|[abcdknmpqrstxyz]{2,4}")  # letters side by side are a product: "tea" is a word
_CHOICE_REFERENCE = re.compile(r"\(?[A-J]\)?|(?:\([A-J]\)|[A-J][).:])\s*\S.*", re.DOTALL)
_CHOICE_LABEL = re.compile(r"^\(?[A-J][).:]+\s*")
_HUGE = re.compile(
    r"[0-9]{2,}\)?\s*!|!\s*!|(?:\*\*|\^)\s*[({]*-?(?:[0-9]{5,}|[0-9]+\s*[)}]*\s*(?:\*\*|\^|!|e[0-9]))|[0-9][eE][0-9]{4,}"
)
_LATEX_NAMES = frozenset({"pi", "oo", "inf", "infinity"})


def right(detail: str = "") -> Grade:
    return Grade(status=GradeStatus.RIGHT, score=1.0, detail=detail)


def wrong(detail: str = "") -> Grade:
    return Grade(status=GradeStatus.WRONG, score=0.0, detail=detail)


def failed(detail: str) -> Grade:
    return Grade(status=GradeStatus.FAILED, score=None, detail=detail)


def grade_plain(answer: str, reference: str) -> Grade | None:
    """The grade when it needs no computer algebra, else None.

    Equal numbers are right, by exact rational arithmetic; a decimal of at least six places also equals what rounds to
    it. Words are compared with words, as texts. Everything else that `read_shape` can read is compared by value.

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
    if seen and seen == wanted and len(names) < 2:
        return right()
    if _CHOICE_REFERENCE.fullmatch(wanted) and (grade := _grade_choice(clean(answer), wanted)) is not None:
        return grade
    if len(names) < 2 and (grade := _grade_numbers(seen, wanted)) is not None:
        return grade
    if is_words(wanted) and is_words(seen) and not (_PRODUCT.fullmatch(seen) and _PRODUCT.fullmatch(wanted)):
        number = spelled_number(seen)
        same = plain_words(seen) == plain_words(wanted) or (number is not None and number == spelled_number(wanted))
        return right() if same else wrong()
    return _grade_by_value(answer, reference)


def _grade_choice(answer: str, reference: str) -> Grade | None:
    """Multiple choice: the reference is a letter, or a letter and what it stands for."""
    letter = choice_letter(answer)
    if letter is not None:
        return right() if letter == choice_letter(reference) else wrong()
    meant = _CHOICE_LABEL.sub("", reference)
    if meant == reference:
        return None
    return grade_math(answer, meant) if meant else wrong("the answer names no choice")


def _grade_numbers(seen: str, wanted: str) -> Grade | None:
    a, b = plain_number(seen), plain_number(wanted)
    if a is None or b is None:
        return None
    if a.percent and b.percent:
        pairs = [(a.value, b.value)]
    else:
        pairs = [(x, y) for x in a.readings for y in b.readings]
    if any(x == y for x, y in pairs):
        return right()
    rational = all(x.denominator != 1 for pair in pairs for x in pair)
    return None if rational else wrong()  # 0.333333 may stand for 1/3


def _grade_by_value(answer: str, reference: str) -> Grade | None:
    """By shape and value; None where one of the two is not read, or is too long to be a mere answer."""
    if len(answer) > MAX_READ_CHARS or len(reference) > MAX_READ_CHARS:
        return None
    try:
        return right() if alike(read_shape(clean(answer)), read_shape(clean(reference))) else wrong()
    except (TooLarge, RecursionError) as error:
        return None if len(reference) > MAX_PLAIN_REFERENCE else wrong(f"the answer is more than is read: {error}")
    except (Unreadable, TooBig, Undefined):
        return None


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


def warm_up() -> None:
    """Import what grading needs; math-verify builds its parsers at their first use."""
    grade_math(r"2\sqrt{3} + x", r"x + \sqrt{12}")
    _grade_by_algebra(r"\frac{1}{2} + x", "x + 0.5")
    _grade_by_algebra(r"\sum_{k=1}^{3} k", "6")  # sums import more


def _grade_by_algebra(answer: str, reference: str) -> Grade:
    if _HUGE.search(answer) and not _HUGE.search(reference):
        return wrong("the answer holds a number too large to be worked out")
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
