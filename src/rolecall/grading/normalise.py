"""Answers as people and models write them, brought to one form; plain numbers read exactly, never evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_PLAIN_CHARS = 300  # a longer text is not read as a plain number: int() is quadratic in the digits

_CHARS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "°": r"^\circ",
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": r"\div ", "√": r"\sqrt ", "π": r"\pi ", "∞": r"\infty ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∪": r"\cup ", "∈": r"\in ",
    "∅": r"\emptyset", "ℝ": r"\mathbb{R}", "⟨": r"\langle ", "⟩": r"\rangle ", "′": "'", "∖": r"\setminus ",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅕": r"\frac{1}{5}", "⅛": r"\frac{1}{8}", "²": "^{2}", "³": "^{3}", "⁴": "^{4}", "⁵": "^{5}", "⁻¹": "^{-1}",
    "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "φ": r"\phi ", "\t": " ", "\r": " ",
}  # fmt: skip
_TRANSLATE = str.maketrans(
    {char: text for char, text in _CHARS.items() if len(char) == 1}
    | {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full-width ASCII
    | {chr(code): "" for code in [*range(9), *range(0xE, 0x20), 0x7F, 0x200B, 0x2060, 0xFEFF]}
)
_SPACING = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|limits|Big|big|Bigg|bigg|Bigl|Bigr|bigl|bigr)(?![A-Za-z])\.?|"
    r"(?<!\\)\\[!,;: >]|~|\\phantom\{[^{}]*\}"
)
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore)[\s,]+)?(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|result|solution)\s*(?:is|are|:|=)"
    r"\s*:?\s*|\\(?:boxed|therefore)\s+(?=\S)|#+\s*",
    re.IGNORECASE,
)
_VARIABLE = r"\\?[A-Za-z]+(?:_\{?[A-Za-z0-9]{1,6}\}?)?"
_NAME = re.compile(r"(?P<name>[A-Za-z](?:_\{?[A-Za-z0-9]{1,4}\}?)?)\s*=\s*(?=[^=])")
NAME_HEAD = re.compile(
    rf"(?:{_VARIABLE}|[A-Za-z]{{1,3}}'?\s*\([A-Za-z](?:\s*,\s*[A-Za-z])*\)|\([a-z](?:\s*,\s*[a-z])+\))"
)
_WRAPPERS = ((r"$$", r"$$"), (r"$", r"$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_COMMANDS = (
    r"\text{",
    r"\mathrm{",
    r"\mathbf{",
    r"\textbf{",
    r"\boldsymbol{",
    r"\textrm{",
    r"\mbox{",
    r"\ensuremath{",
    "{",
)

_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|\bdegrees?)$", re.IGNORECASE | re.ASCII)
_PERCENT = re.compile(r"\s*(?:\\?%|\bpercent)$", re.IGNORECASE | re.ASCII)
_CURRENCY = re.compile(r"^([+-]?)\s*\\?\$\s*")
_SIGN = re.compile(r"^([+-])\s+")
THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?:\.[0-9]*)?")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_RATIO = re.compile(r"([+-]?[0-9]+)\s*/\s*([+-]?[0-9]+)")
_FRAC = re.compile(r"([+-]?)\s*\\[dt]?frac(?:\{\s*([+-]?[0-9]+)\s*\}\{\s*([+-]?[0-9]+)\s*\}|([0-9])([0-9]))")
_BOX = re.compile(r"\\f?boxed?\s*\{|\\fbox\s*\{")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainNumber:
    """An exact number; `percent`: it was written with a percent sign, and `value` is the number before the sign."""

    value: Fraction
    percent: bool = False

    @property
    def readings(self) -> tuple[Fraction, ...]:
        """50% may stand for 50, the sign being a unit, or for one half."""
        return (self.value, self.value / 100) if self.percent else (self.value,)


def clean(text: str) -> str:
    r"""The mathematics in an answer without its wrapping: dollars, `\boxed{}`, "The answer is", a full stop, spacing.

    >>> clean(r"The answer is $\boxed{x = 1{,}000}$.")
    'x = 1{,}000'
    """
    text = unboxed(_SPACING.sub("", text.translate(_TRANSLATE)))
    for _ in range(8):
        before = text
        text = unwrap(text.strip())
        text = text.rstrip(".;, \\") if len(text) > 1 and not text.endswith("\\,") else text
        text = _LEAD.sub("", text, count=1) if _LEAD.match(text) else text
        if text == before:
            break
    return text


def normalise(text: str) -> str:
    r"""A cleaned answer without the name that it is assigned to.

    >>> normalise(r"The answer is $\boxed{x = 1{,}000}$.")
    '1{,}000'
    """
    text = clean(text)
    for _ in range(8):
        before = text
        text = _NAME.sub("", text, count=1) if _NAME.match(text) else text
        text = clean(text) if text != before else text
        if text == before:
            break
    return text


def assigned_name(text: str) -> str | None:
    """The name in an answer of the form `x = 5`, or None."""
    text = unwrap(unboxed(_SPACING.sub("", text)).strip()).strip()
    found = _NAME.match(text)
    return found["name"] if found else None


def unboxed(text: str) -> str:
    r"""What stands in the last whole `\boxed{}` of `text`, or `text` itself when there is none."""
    start = max((found.end() for found in _BOX.finditer(text)), default=None)
    stop = None if start is None else _closing(text, start)
    return text if stop is None else text[start:stop]


def _closing(text: str, start: int) -> int | None:
    """Where the brace that is open at `start` closes; an escaped brace does not count."""
    depth, position = 1, start
    while position < len(text):
        char = text[position]
        position += 2 if char == "\\" else 1
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            return position - 1
    return None


def unwrap(text: str) -> str:
    """A text without the dollars, the font command or the braces around all of it."""
    for left, right in _WRAPPERS:
        inner = text[len(left) : -len(right)]
        if len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right) and left not in inner:
            return inner
    for command in _COMMANDS:
        if text.startswith(command) and _closing(text, len(command)) == len(text) - 1:
            return text[len(command) : -1]
    return text


def plain_number(text: str) -> PlainNumber | None:
    r"""The exact value of a normalised integer, decimal, ratio or simple `\frac`, with or without a unit of degrees,
    a percent sign, a dollar sign, separators of thousands; None for anything else.

    >>> plain_number(r"\frac{3}{-4}").value
    Fraction(-3, 4)
    """
    if len(text) > MAX_PLAIN_CHARS:
        return None
    text = _DEGREES.sub("", _CURRENCY.sub(r"\1", text.strip()))
    bare = _PERCENT.sub("", text)
    percent = bare != text
    bare = _SIGN.sub(r"\1", bare)
    if THOUSANDS.fullmatch(bare):
        bare = bare.replace("{,}", "").replace(",", "")
    if _DECIMAL.fullmatch(bare):
        return PlainNumber(value=Fraction(bare), percent=percent)
    if ratio := _RATIO.fullmatch(bare):
        sign, top, bottom = "", ratio[1], ratio[2]
    elif frac := _FRAC.fullmatch(bare):
        sign, top, bottom = frac[1], frac[2] or frac[4], frac[3] or frac[5]
    else:
        return None
    if int(bottom) == 0:
        return None
    value = Fraction(int(top), int(bottom))
    return PlainNumber(value=-value if sign == "-" else value, percent=percent)
