"""The words in answers: numbers spelled out, units, phrases for "there is none", choice letters, times of day."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

_ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ONES += ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8}
_PARTS |= {"halve": 2, "ninth": 9, "tenth": 10, "twelfth": 12, "hundredth": 100}

NOTHING = frozenset(
    {"no solution", "no solutions", "none", "no real solution", "no real solutions", "no answer", "empty set", "empty"}
    | {"the empty set", "nothing", "there is no solution", "there are no solutions", "no such number", "no real roots"}
    | {"has no solution", "has no solutions", "no such integer", "no such integers"}
)
SAME_WORDS = {
    "does not exist": "dne",
    "undefined": "dne",
    "not defined": "dne",
    "infinitely many": "\\infty",
    "infinitely many solutions": "\\infty",
    "infinite": "\\infty",
    "all real numbers": "\\mathbb{R}",
    "all reals": "\\mathbb{R}",
    "the real numbers": "\\mathbb{R}",
}
_STOP = frozenset(
    [
        "not",
        "no",
        "isn't",
        "isnt",
        "is",
        "or",
        "and",
        "maybe",
        "perhaps",
        "if",
        "when",
        "than",
        "more",
        "less",
        "but",
        "except",
        "never",
        "unless",
        "wrong",
    ]
)


class Unit(NamedTuple):
    """What a unit measures, and how many of the first unit of its kind it is; an unknown one measures nothing."""

    kind: str
    factor: Fraction


def _units() -> dict[str, Unit]:
    tables: dict[str, dict[str, str | int]] = {
        "length": {
            "m": 1, "meter": 1, "metre": 1, "km": 1000, "kilometer": 1000, "kilometre": 1000, "cm": "1/100",
            "centimeter": "1/100", "centimetre": "1/100", "mm": "1/1000", "millimeter": "1/1000",
            "millimetre": "1/1000",
        },
        "inches": {
            "in": 1, "inch": 1, "inche": 1, "ft": 12, "foot": 12, "feet": 12, "yd": 36, "yard": 36, "mile": 63360,
        },
        "mass": {"g": 1, "gram": 1, "kg": 1000, "kilogram": 1000, "mg": "1/1000", "milligram": "1/1000"},
        "pounds": {"pound": 16, "lb": 16, "ounce": 1, "oz": 1},
        "time": {
            "s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600, "day": 86400,
            "week": 604800,
        },
        "volume": {"l": 1000, "liter": 1000, "litre": 1000, "ml": 1, "milliliter": 1, "millilitre": 1},
        "money": {"dollar": 1, "usd": 1, "cent": "1/100"},
    }  # fmt: skip
    return {name: Unit(kind, Fraction(size)) for kind, table in tables.items() for name, size in table.items()}


UNITS = _units()
_SINGLE = frozenset(["m", "g", "s", "h", "l"])
_TRAILING = re.compile(
    r"(?P<space>\s*)(?:\\(?:text|mathrm|textrm|rm|mbox)\s*\{\s*(?P<text>[A-Za-z][A-Za-z .\-/^23]*)\}|"
    r"(?P<bare>[A-Za-z]{1,20}(?:\s*/\s*[A-Za-z]{1,10}|\s+[A-Za-z]{2,20})?))(?:\s*\^\s*\{?(?P<power>[23])\}?)?\.?$"
)
_ORDINAL = re.compile(r"([0-9]+)\s*(?:st|nd|rd|th)")
_CLOCK = re.compile(r"([0-9]{1,2}:[0-9]{2})\s*([ap])\.?\s*m\.?", re.IGNORECASE)


def split_unit(text: str) -> tuple[str, Unit | None]:
    r"""A number's text and its unit: `5 cm`, `5\text{ cm}^2`, `7 apples`, `3 m/s`; (text, None) when there is none."""
    found = _TRAILING.search(text[-80:])
    if found is None or (start := len(text) - len(text[-80:]) + found.start()) == 0:
        return text, None
    words = (found["text"] or found["bare"]).strip().rstrip(".")
    if not re.search(r"[0-9})]$", text[:start].rstrip()):
        return text, None
    unit = _unit(words, found["power"])
    known = unit.kind != words.lower()
    one_letter = len(words) == 1
    if found["bare"] and one_letter and not (words.lower() in _SINGLE and found["space"]):
        return text, None
    many = len(words.split())
    if not known and (
        len(words) < 3
        or many > (3 if found["text"] else 1)
        or _STOP & set(words.lower().split())
        or (found["bare"] and not found["space"])
        or not words.replace(" ", "").isalpha()
        or spelled_number(words) is not None
    ):
        return text, None
    return text[:start].rstrip(), unit


def _unit(words: str, power: str | None) -> Unit:
    lower = words.lower().strip()
    for lead, exponent in (("square ", 2), ("sq ", 2), ("sq. ", 2), ("cubic ", 3), ("cu ", 3)):
        if lower.startswith(lead):
            lower, power = lower[len(lead) :], str(exponent)
    if found := re.fullmatch(r"(.*?)\s*\^?([23])", lower):
        lower, power = found[1], found[2]
    if "/" in lower:
        over, under = (part.strip() for part in lower.split("/", 1))
    elif " per " in lower:
        over, under = (part.strip() for part in lower.split(" per ", 1))
    else:
        over, under = lower, ""
    top, bottom = _known(over), _known(under)
    if top is None or (under and bottom is None):
        return Unit(words.lower(), Fraction(1))
    exponent = int(power or 1)
    kind, factor = f"{top.kind}^{exponent}", top.factor**exponent
    return Unit(f"{kind}/{bottom.kind}", factor / bottom.factor) if bottom else Unit(kind, factor)


def _known(name: str) -> Unit | None:
    return UNITS.get(name) or (UNITS.get(name[:-1]) if name.endswith("s") else None)


def spelled_number(text: str) -> Fraction | None:
    """The value of a number in words: "twenty-one", "one hundred and five", "three fourths", "minus two"."""
    if len(text) > 120:
        return None
    words = re.split(r"[\s-]+", text.casefold().strip())
    negative = words[0] in ("minus", "negative") and len(words) > 1
    words = words[1:] if negative else words
    value = _fraction(words) if words else None
    return -value if value is not None and negative else value


def _fraction(words: list[str]) -> Fraction | None:
    last = words[-1].removesuffix("s") if words[-1] not in _ONES else ""
    if last in _PARTS:
        before = words[:-1]
        if before and before[0] in ("a", "an"):
            before = ["one", *before[1:]]
        if "and" in before:
            place = len(before) - 1 - before[::-1].index("and")
            whole, top = _whole(before[:place]), _whole(before[place + 1 :])
            if whole is not None and before[place + 1 :] in (["a"], ["one"]):
                top = 1
            return None if whole is None or top is None else whole + Fraction(top, _PARTS[last])
        top = _whole(before) if before else 1
        return None if top is None else Fraction(top, _PARTS[last])
    whole = _whole(words)
    return None if whole is None else Fraction(whole)


def _whole(words: list[str]) -> int | None:
    total = current = 0
    read = False
    for number, word in enumerate(words):
        if word in _ONES:
            n = _ONES.index(word)
            if read and (n >= 10 or n == 0) and current % 100:
                return None
            if read and current % 10:
                return None
            current += n
        elif word in _TENS:
            if current % 100:
                return None
            current += _TENS[word]
        elif word == "hundred":
            current = (current or 1) * 100
        elif word in _SCALES:
            total += (current or 1) * _SCALES[word]
            current = 0
        elif word in ("and", "a") and (number > 0 or word == "a") and number < len(words) - 1:
            continue
        else:
            return None
        read = True
    return total + current if read else None


def plain_words(text: str) -> str:
    """Words in one form: no case, no article, one space, times of day without dots, one phrase of those that agree."""
    words = " ".join(text.casefold().replace("’", "'").split()).strip(" .!")
    words = re.sub(r"^(?:the|an|a)\s+(?=\S{2})", "", words) if words not in NOTHING else words
    if found := _CLOCK.fullmatch(words):
        return f"{found[1].lstrip('0')} {found[2]}m"
    if words in NOTHING:
        return "\\emptyset"
    return SAME_WORDS.get(words, words)


def ordinal(text: str) -> str:
    found = _ORDINAL.fullmatch(text.strip())
    return found[1] if found else text


_LETTER = r"(?P<letter>[A-J])"
_CHOICE_ALONE = re.compile(rf"\(?\s*{_LETTER}\s*[).:]?", re.IGNORECASE)
_CHOICE_LED = re.compile(
    rf"(?:(?:the\s+)?(?:correct\s+|right\s+|best\s+|final\s+)?(?:answer|option|choice)(?:\s+is)?\s*:?\s*)+"
    rf"\(?\s*{_LETTER}(?:\s*[).:].*|\s*$)",
    re.IGNORECASE | re.DOTALL,
)
_CHOICE_FIRST = re.compile(rf"(?:\(\s*{_LETTER}\s*\)|(?P<bare>[A-J])\s*[).:])\s*\S.*", re.DOTALL)


def choice_letter(text: str) -> str | None:
    r"""The letter of an answer to a multiple-choice question: `B`, `(b)`, `\text{(B)}`, `B) 12`, `option B`.

    >>> choice_letter(r"\textbf{(D)}\ 45"), choice_letter("A cat"), choice_letter("B or C")
    ('D', None, None)
    """
    text = text.strip().replace("\\ ", " ").strip("$").strip()
    if found := re.match(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}", text):
        text = (found[1] + text[found.end() :]).strip()
    text = text.strip("*").strip()
    found = _CHOICE_ALONE.fullmatch(text) or _CHOICE_LED.fullmatch(text) or _CHOICE_FIRST.fullmatch(text)
    if found is None:
        return None
    groups = found.groupdict()
    return str(groups["letter"] or groups.get("bare")).upper()
