"""What a visible text asserts: answers and verdicts, strictly parsed by pure functions."""

from __future__ import annotations

import re
import string

from rolecall.code_problems import extract_program
from rolecall.errors import ConfigError
from rolecall.records import Verdict

ANSWER_FORMATS = ("boxed", "line", "text", "code")
_ANSWER_LINE = re.compile(r"answer\s*:\**", re.IGNORECASE)
_STRIPPED = string.punctuation + string.whitespace
_VERDICTS = {"correct": Verdict.CORRECT, "wrong": Verdict.WRONG, "incorrect": Verdict.WRONG}


def check_answer_format(answer_format: str) -> None:
    if answer_format not in ANSWER_FORMATS:
        raise ConfigError(f"answer_format {answer_format!r} is not one of {', '.join(ANSWER_FORMATS)}")


def extract_answer(text: str | None, answer_format: str) -> str | None:
    r"""The answer in `text`, or None: the last balanced `\boxed{}`; the line after the last `Answer:`; all of it;
    or the program in it (`code`; `extract_program` says which).

    >>> extract_answer(r"so \boxed{1} or rather \boxed{\frac{1}{2}}.", "boxed")
    '\\frac{1}{2}'
    """
    if text is None:
        return None
    if answer_format == "boxed":
        return last_boxed(text)
    if answer_format == "code":
        return extract_program(text)
    if answer_format == "line":
        places = list(_ANSWER_LINE.finditer(text))
        if not places:
            return None
        return text[places[-1].end() :].strip().split("\n", 1)[0].strip().strip("*").strip() or None
    return text.strip() or None


def last_boxed(text: str) -> str | None:
    r"""What stands in the last `\boxed{...}` whose braces balance; an escaped brace does not count."""
    end = len(text)
    while (start := text.rfind("\\boxed{", 0, end)) >= 0:
        inside = _balanced(text, start + len("\\boxed{"))
        if inside is not None:
            return inside.strip() or None
        end = start
    return None


def _balanced(text: str, start: int) -> str | None:
    depth, position = 1, start
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 2
            continue
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return text[start:position]
        position += 1
    return None


def parse_verdict(text: str | None, truncated: bool = False, marker: str = "Verdict:") -> Verdict:
    """The verdict after the last `marker`, which must be all that follows; a truncated report has none.

    >>> parse_verdict("The sum is off. **Verdict:** Incorrect.").value
    'wrong'
    >>> parse_verdict("Verdict: correct, I think").value
    'unparsed'
    """
    if text is None or truncated:
        return Verdict.UNPARSED
    place = text.lower().rfind(marker.lower())
    if place < 0:
        return Verdict.UNPARSED
    word = text[place + len(marker) :].strip(_STRIPPED).lower()
    return _VERDICTS.get(word, Verdict.UNPARSED)
