"""Answers as people and models write them, brought to one form; plain numbers read exactly, never evaluated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_PLAIN_CHARS = 300  # a longer text is not read as a plain number: int() is quadratic in the digits

_TRANSLATE = str.maketrans({"−": "-", "–": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "°": r"^\circ"})
_SPACING = re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|(?<!\\)\\[!,;: ]|~")
_LEAD = re.compile(r"(?:the\s+)?(?:final\s+)?answer\s*(?:is|:|=)\s*:?\s*", re.IGNORECASE)
_NAME = re.compile(r"(?P<name>[A-Za-z](?:_\{?[A-Za-z0-9]{1,4}\}?)?)\s*=\s*(?=[^=])")
_WRAPPERS = ((r"$$", r"$$"), (r"$", r"$"), (r"\(", r"\)"), (r"\[", r"\]"))
_COMMANDS = (r"\text{", r"\mathrm{", r"\mathbf{", r"\textbf{", r"{")

_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|\bdegrees?)$", re.IGNORECASE | re.ASCII)
_PERCENT = re.compile(r"\s*(?:\\?%|\bpercent)$", re.IGNORECASE | re.ASCII)
_CURRENCY = re.compile(r"^([+-]?)\s*\\?\$\s*")
_SIGN = re.compile(r"^([+-])\s+")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?:\.[0-9]*)?")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_RATIO = re.compile(r"([+-]?[0-9]+)\s*/\s*([+-]?[0-9]+)")
_FRAC = re.compile(r"([+-]?)\s*\\[dt]?frac(?:\{\s*([+-]?[0-9]+)\s*\}\{\s*([+-]?[0-9]+)\s*\}|([0-9])([0-9]))")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainNumber:
    """An exact number; `percent`: it was written with a percent sign, and `value` is the number before the sign."""

    value: Fraction
    percent: bool = False

    @property
    def readings(self) -> tuple[Fraction, ...]:
        """50% may stand for 50, the sign being a unit, or for one half."""
        return (self.value, self.value / 100) if self.percent else (self.value,)


def normalise(text: str) -> str:
    r"""The mathematics in an answer without its wrapping: dollars, `\boxed{}`, "x =", "The answer is", a full stop.

    >>> normalise(r"The answer is $\boxed{x = 1{,}000}$.")
    '1{,}000'
    """
    text = last_boxed(_SPACING.sub("", text.translate(_TRANSLATE)))
    for _ in range(8):
        before = text
        text = _unwrap(text.strip())
        text = text.rstrip(".;, \\") if len(text) > 1 else text
        text = _LEAD.sub("", text, count=1) if _LEAD.match(text) else text
        text = _NAME.sub("", text, count=1) if _NAME.match(text) else text
        if text == before:
            break
    return text


def assigned_name(text: str) -> str | None:
    """The name in an answer of the form `x = 5`, or None."""
    text = _unwrap(last_boxed(_SPACING.sub("", text)).strip()).strip()
    found = _NAME.match(text)
    return found["name"] if found else None


def last_boxed(text: str) -> str:
    r"""What stands in the last whole `\boxed{}` of `text`, or `text` itself when there is none."""
    start = text.rfind(r"\boxed{")
    if start < 0:
        return text
    start += len(r"\boxed{")
    stop = _closing(text, start)
    return text[start:stop] if stop is not None else text


def _closing(text: str, start: int) -> int | None:
    """Where the brace that is open at `start` closes."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return None


def _unwrap(text: str) -> str:
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
    if _THOUSANDS.fullmatch(bare):
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
