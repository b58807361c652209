"""What a visible text asserts: answers and verdicts, strictly parsed by pure functions."""

from __future__ import annotations

import re
import string

from rolecall.code_problems import extract_program
from rolecall.errors import ConfigError
from rolecall.records import Verdict

ANSWER_FORMATS = ("boxed", "line", "text", "code", "choice", "boxed_or_number")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped one is neither
_BARE_BOX = re.compile(r"\\boxed\s*([0-9A-Za-z]+)")
_NUMBER = re.compile(
    r"(?<![0-9A-Za-z.,_/])-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:/[0-9]+)?(?![0-9A-Za-z_/])%?"
)
_CHOICE_SAID = re.compile(
    r"(?:answer|option|choice)(?:\s++is)?\s*+:?\s*+(?:\*\*)?\s*+\(?([A-J])\)?(?![A-Za-z'])", re.IGNORECASE
)  # possessive: three runs of blanks in a row would take the cube of their length
_CHOICE_LINE = re.compile(r"^[^\S\n]*+(?:\*\*)?\(?([A-J])\)?[).:]?(?:\*\*)?[^\S\n]*+$", re.MULTILINE)
_ANSWER_LINE = re.compile(r"answer\s*:\**", re.IGNORECASE)
_STRIPPED = string.punctuation + string.whitespace
_VERDICTS = {"correct": Verdict.CORRECT, "wrong": Verdict.WRONG, "incorrect": Verdict.WRONG}


def check_answer_format(answer_format: str) -> None:
    if answer_format not in ANSWER_FORMATS:
        raise ConfigError(f"answer_format {answer_format!r} is not one of {', '.join(ANSWER_FORMATS)}")


def check_marker(marker: str) -> None:
    if not marker.strip():
        raise ConfigError(f"verdict_marker is {marker!r}; wanted the words before a verdict, such as 'Verdict:'")


def extract_answer(text: str | None, answer_format: str) -> str | None:
    r"""The answer in `text`, or None: the last balanced `\boxed{}`; the line after the last `Answer:`; all of it;
    or the program in it (`code`; `extract_program` says which).

    "choice" is the letter of a multiple-choice answer: boxed, behind "answer is", or alone on a line, the last of them.
    "boxed_or_number" is the last box, and only where there is none the last number of the text.

    >>> extract_answer(r"so \boxed{1} or rather \boxed{\frac{1}{2}}.", "boxed")
    '\\frac{1}{2}'
    """
    if text is None:
        return None
    if answer_format == "boxed":
        return last_boxed(text)
    if answer_format == "boxed_or_number":
        return last_boxed(text) if "\\boxed" in text else last_number(text)
    if answer_format == "choice":
        return last_choice(text)
    if answer_format == "code":
        return extract_program(text)
    if answer_format == "line":
        places = list(_ANSWER_LINE.finditer(text))
        if not places:
            return None
        return text[places[-1].end() :].strip().split("\n", 1)[0].strip().strip("*").strip() or None
    return text.strip() or None


def last_boxed(text: str) -> str | None:
    r"""What stands in the last `\boxed{...}` whose braces balance, the inner one of a box in a box; an escaped brace
    does not count. `\boxed 5` holds what follows it, where no box has braces.

    >>> last_boxed(r"\boxed{1}, and \boxed{x = \boxed{2}}"), last_boxed(r"so \boxed 5.")
    ('2', '5')
    """
    boxes = {found.end() for found in _BOX.finditer(text)}
    last, end = -1, -1
    opened: list[int] = []
    for brace in _BRACES.finditer(text) if boxes else ():  # one pass: a model may write thousands that never close
        if brace.group() == "{":
            opened.append(brace.end())
        elif brace.group() == "}" and opened and (start := opened.pop()) in boxes and start > last:
            last, end = start, brace.start()
    if last >= 0:
        return text[last:end].strip() or None
    bare = _BARE_BOX.findall(text)
    return str(bare[-1]) if bare and not boxes else None


def last_number(text: str) -> str | None:
    """The last number in a text, as it is written: for workflows that ask for it, since it may be any number.

    >>> last_number("She pays 3 times $1,250.50, all in all 3,751.50 dollars in step2.")
    '3,751.50'
    """
    numbers = [found.group() for found in _NUMBER.finditer(text)]
    return numbers[-1] if numbers else None


def last_choice(text: str) -> str | None:
    """The letter of a multiple-choice answer.

    >>> last_choice("A is too small. The answer is (C)."), last_choice("A quick guess")
    ('C', None)
    """
    boxed = last_boxed(text)
    if boxed is not None:
        letter = re.fullmatch(r"\\?[a-z]*\{?\(?([A-J])\)?\}?", boxed)
        return letter[1] if letter else None
    places = [*_CHOICE_SAID.finditer(text), *_CHOICE_LINE.finditer(text)]
    return max(places, key=lambda found: found.start())[1].upper() if places else None


def parse_verdict(text: str | None, truncated: bool = False, marker: str = "Verdict:") -> Verdict:
    """The verdict after the last `marker`, which must be all that follows; a truncated report has none.

    >>> parse_verdict("The sum is off. **Verdict:** Incorrect.").value
    'wrong'
    >>> parse_verdict("Verdict: correct, I think").value
    'unparsed'
    """
    if text is None or truncated:
        return Verdict.UNPARSED
    _, found, said = text.lower().rpartition(marker.lower())  # cut where it is found: `lower` may change the length
    return _VERDICTS.get(said.strip(_STRIPPED), Verdict.UNPARSED) if found else Verdict.UNPARSED
