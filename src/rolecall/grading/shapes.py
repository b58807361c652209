r"""What an answer is made of: an expression, a list, a set, a tuple or interval, a matrix, a relation, words.

`read_shape` splits the text where it must be split, and leaves the leaves (`Scalar`) to `rolecall.grading.expression`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from rolecall.grading.expression import Tree, read_expression
from rolecall.grading.normalise import NAME_HEAD, THOUSANDS, unwrap
from rolecall.grading.symbols import TooLarge, Unreadable
from rolecall.grading.wording import Unit, ordinal, plain_words, spelled_number, split_unit

MAX_ITEMS = 64
MAX_LEVELS = 6


@dataclass(frozen=True)
class Scalar:
    """One expression, without its unit, percent sign or degrees; `tree` raises `Unreadable` when it is none."""

    text: str
    unit: Unit | None = None
    percent: bool = False
    degrees: bool = False

    @cached_property
    def tree(self) -> Tree:
        return read_expression(self.text)

    @property
    def decimals(self) -> int:
        """Decimal places of a plain decimal number, 0 of anything else."""
        found = re.fullmatch(r"[-+]?[0-9]*\.([0-9]+)", self.text)
        return len(found[1]) if found else 0


@dataclass(frozen=True)
class Words:
    text: str


@dataclass(frozen=True)
class Many:
    """Items in any order; `once`: a set, in which a repetition counts once."""

    items: tuple[Shape, ...]
    once: bool = False


@dataclass(frozen=True)
class Row:
    """Items in their order between brackets: a tuple, a vector, an interval."""

    left: str
    items: tuple[Shape, ...]
    right: str


@dataclass(frozen=True)
class Matrix:
    rows: tuple[tuple[Shape, ...], ...]


@dataclass(frozen=True)
class Union:
    parts: tuple[Shape, ...]


@dataclass(frozen=True)
class Without:
    """The first without the second."""

    whole: Shape
    part: Shape


@dataclass(frozen=True)
class Relation:
    """`a = b = c`, `a < x \\le b`: the sides and the signs between them."""

    sides: tuple[Shape, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Ratio:
    parts: tuple[Shape, ...]


@dataclass(frozen=True)
class Based:
    """Digits in a number base."""

    digits: str
    base: int


Shape = Scalar | Words | Many | Row | Matrix | Union | Without | Relation | Ratio | Based

_SIGNS = {
    "\\leqslant": "<=", "\\geqslant": ">=", "\\leq": "<=", "\\geq": ">=", "\\le": "<=", "\\ge": ">=", "\\lt": "<",
    "\\gt": ">", "\\neq": "!=", "\\ne": "!=", "<=": "<=", ">=": ">=", "!=": "!=", "==": "=", "=": "=", "<": "<",
    ">": ">", "\\approx": "~", "\\equiv": "=", "\\in": "in",
}  # fmt: skip
_SIGN = re.compile("|".join(re.escape(s) + ("(?![A-Za-z])" if s[0] == "\\" else "") for s in _SIGNS))
_AND = re.compile(
    r"\\(?:text|mathrm|mbox)\s*\{\s*,?\s*(?:and|or)\s*\}|\s*,?\s+(?:and|or)\s+|;|\\vee(?![A-Za-z])|\\qquad|\\quad"
)
_OUTER_COMMA = re.compile(r"(?<![0-9]),(?!\})|,(?!\}|[0-9]{3}(?![0-9]))")  # the comma of 1,000 is none
_INNER_COMMA = re.compile(r"[,;](?!\})")  # in brackets every comma is one
_CUP = re.compile(r"\\cup(?![A-Za-z])|∪|(?<=[)\]}])\s*U\s*(?=[(\[{\\])")
_COLON = re.compile(":")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
_MINUS = re.compile(r"\\(?:setminus|backslash)(?![A-Za-z])")
_MATRIX = re.compile(r"\\begin\{([pbvBV]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}", re.DOTALL)
_BASED = re.compile(r"\(?([0-9A-Fa-f]+)\)?_\{?\s*(?:\\text\{)?([0-9]{1,2})\}?\}?")
_OPENERS = {"(": ")]", "[": "])", "\\{": ("\\}",), "\\langle": ("\\rangle",), "<": (">",), "{": "}"}
_EMPTY = frozenset({"\\emptyset", "\\varnothing", "\\{\\}", "∅", "\\phi"})
_REALS = frozenset({"\\mathbb{R}", "\\mathbb R", "ℝ", "\\R", "\\Bbb{R}"})
_NUMBER_WORD = re.compile(r"[A-Za-z][A-Za-z\s-]*")


def read_shape(text: str, level: int = 0) -> Shape:
    """The shape of a cleaned answer. Raises `Unreadable` where it is too deep or has too many parts."""
    text = unwrap(text.strip()).strip()
    if level > MAX_LEVELS:
        raise TooLarge("too many levels")
    if not text:
        raise Unreadable("nothing")
    if (simple := _simple(text)) is not None:
        return simple
    for split in (_split_and, _split_relation, _split_minus, _split_comma):
        if (found := split(text, level)) is not None:
            return found
    if (found := _bracketed(text, level)) is not None:
        return found
    if "\\pm" in text or "\\mp" in text:
        return _plus_minus(text, level)
    parts = _split(text, _COLON)
    if 2 <= len(parts) <= 6 and all(parts):
        return Ratio(tuple(read_shape(part, level + 1) for part in parts))
    return scalar(text)


def _simple(text: str) -> Shape | None:
    """Shapes that are known by the whole text."""
    words = plain_words(text)
    if text in _EMPTY or words == "\\emptyset":
        return Words("\\emptyset")
    if text in _REALS or words == "\\mathbb{R}":
        return Row("(", (Scalar("-\\infty"), Scalar("\\infty")), ")")
    if _NUMBER_WORD.fullmatch(text):
        if (value := spelled_number(text)) is not None:
            return Scalar(str(value))
        if words == "\\infty" or text.lower() in ("infinity", "inf", "oo"):
            return Scalar("\\infty")
        if len(text) > 1 and (len(text) > 4 or " " in text):
            return Words(words)
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2} [ap]m", words):
        return Words(words)
    if (found := _BASED.fullmatch(text)) and 2 <= int(found[2]) <= 36:
        return Based(found[1].lower(), int(found[2]))
    if found := _MATRIX.fullmatch(text):
        rows = [row.split("&") for row in re.split(r"\\\\|\\cr(?![A-Za-z])", found[2]) if row.strip()]
        if sum(map(len, rows)) > MAX_ITEMS:
            raise TooLarge("a large matrix")
        return Matrix(tuple(tuple(read_shape(cell, 3) for cell in row) for row in rows))
    if found := re.fullmatch(r"\]([^\[\]]+)[,;]([^\[\]]+)\[", text):
        return Row("(", (read_shape(found[1], 3), read_shape(found[2], 3)), ")")
    return None


def _split(text: str, at: re.Pattern[str]) -> list[str]:
    """The pieces of a text between matches that stand outside all brackets."""
    if not at.search(text):
        return [text.strip()]
    pieces, depth, start, position = [], 0, 0, 0
    while position < len(text):
        char = text[position]
        if depth == 0 and (found := at.match(text, position)) and found.end() > position:
            pieces.append(text[start:position])
            start = position = found.end()
            continue
        if char == "\\" and position + 1 < len(text):
            command = _COMMAND.match(text, position)
            name = command.group() if command else "\\"
            depth += (name in ("\\{", "\\langle", "\\begin")) - (name in ("\\}", "\\rangle", "\\end"))
            position += len(name)
            continue
        depth += (char in "([{") - (char in ")]}")
        position += 1
    return [piece.strip() for piece in [*pieces, text[start:]]]


def _many(pieces: list[str], level: int, once: bool = False) -> Shape:
    pieces = [piece for piece in pieces if piece]
    if not pieces or len(pieces) > MAX_ITEMS:
        raise TooLarge(f"{len(pieces)} parts")
    items: list[Shape] = []
    for piece in pieces:
        item = read_shape(piece, level + 1)
        items += item.items if isinstance(item, Many) and not item.once else [item]
    return items[0] if len(items) == 1 and not once else Many(tuple(items), once)


def _split_and(text: str, level: int) -> Shape | None:
    pieces = _split(text, _AND)
    if sum(map(bool, pieces)) < 2:
        return None
    parts = [part for piece in pieces for part in (_split_outer_commas(piece) if "=" not in piece else [piece])]
    if any(_SIGN.search(piece) and not re.search(r"(?<![<>!])=", piece) for piece in pieces):
        return Union(tuple(read_shape(piece, level + 1) for piece in pieces if piece))  # x < 1 or x > 2
    return _many(parts, level)


def _split_outer_commas(text: str) -> list[str]:
    return [text] if THOUSANDS.fullmatch(text) else _split(text, _OUTER_COMMA)


def _split_relation(text: str, level: int) -> Shape | None:
    if text.startswith("<") and text.endswith(">"):
        return None
    signs: list[str] = []
    sides = _split(text, _SIGN)
    if len(sides) < 2:
        return None
    if len(_split_outer_commas(text)) > 1 and not _split_outer_commas(text)[0].isalpha():
        return None  # x = 1, y = 2: a list of relations
    if len(sides) > 6 or not all(sides):
        raise Unreadable("a relation with an empty side")
    position = 0
    for side in sides[:-1]:
        position = text.index(side, position) + len(side)
        found = _SIGN.search(text, position)
        assert found is not None
        signs.append(_SIGNS[found.group()])
        position = found.end()
    if signs == ["in"]:
        return read_shape(sides[1], level + 1)
    if len(sides) == 2 and signs == ["="] and NAME_HEAD.fullmatch(sides[0]):
        return Relation((Scalar(sides[0]), read_shape(sides[1], level + 1)), ("=",))
    return Relation(tuple(read_shape(side, level + 1) for side in sides), tuple(signs))


def _split_minus(text: str, level: int) -> Shape | None:
    parts = _split(text, _MINUS)
    if len(parts) != 2 or not all(parts):
        return None
    return Without(read_shape(parts[0], level + 1), read_shape(parts[1], level + 1))


def _split_comma(text: str, level: int) -> Shape | None:
    if THOUSANDS.fullmatch(text):
        return None
    unions = _split(text, _CUP)
    if len(unions) > 1 and all(unions):
        if len(unions) > MAX_ITEMS:
            raise TooLarge("a union of many")
        return Union(tuple(read_shape(part, level + 1) for part in unions))
    parts = _split_outer_commas(text)
    return _many(parts, level) if sum(map(bool, parts)) > 1 else None


def _bracketed(text: str, level: int) -> Shape | None:
    """A set, a tuple or an interval, when the text is one pair of brackets."""
    for opener, closers in _OPENERS.items():
        closer = next((c for c in closers if text.endswith(c)), None)
        if not text.startswith(opener) or closer is None or len(text) < len(opener) + len(closer):
            continue
        inside = text[len(opener) : len(text) - len(closer)]
        if not _closes_at_end(text):
            continue
        pieces = _split(inside, _INNER_COMMA)
        if opener in ("\\{", "{"):
            return _many(pieces, level, once=True) if any(pieces) else Words("\\emptyset")
        if len(pieces) == 1:
            return read_shape(inside, level) if (opener, closer) == ("(", ")") else None
        if len(pieces) > MAX_ITEMS or not all(pieces):
            raise Unreadable("a tuple with an empty part, or with many")
        items = tuple(read_shape(piece, level + 1) for piece in pieces)
        if opener in ("\\langle", "<"):
            return Row("(", items, ")")
        if opener == "[" and all(isinstance(item, Row) and item.left == "[" for item in items):
            rows = [item.items for item in items if isinstance(item, Row)]
            return Matrix(tuple(rows))
        return Row(opener, items, closer)
    return None


def _closes_at_end(text: str) -> bool:
    """Whether the bracket that opens a text is closed by its last one."""
    depth = 0
    found = list(re.finditer(r"\\.|[()\[\]{}<>]", text))
    for number, match in enumerate(found):
        token = match.group()
        if token in ("\\{", "(", "[", "{") or (token == "<" and number == 0):
            depth += 1
        elif token in ("\\}", ")", "]", "}") or (token == ">" and text.startswith("<")):
            depth -= 1
            if depth == 0:
                return match.end() == len(text)
    return text.startswith("\\langle")


def _plus_minus(text: str, level: int) -> Shape:
    plus = text.replace("\\pm", "+").replace("\\mp", "-")
    minus = text.replace("\\pm", "-").replace("\\mp", "+")
    return Many((read_shape(plus, level + 1), read_shape(minus, level + 1)))


_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|\bdegrees?)$", re.IGNORECASE)
_ANGLE = re.compile(r"sin|cos|tan|cot|sec|csc")  # the degrees of an angle inside a function are no unit
_PERCENT = re.compile(r"\s*(?:\\?%|\\text\{\s*percent\s*\}|\bpercent)$", re.IGNORECASE)
_MONEY = re.compile(r"^([+-]?)\s*(?:\\\$|\$|€|£|\\text\{\s*\\?\$\s*\})\s*(?=[0-9.])")
_GROUPS = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+(?![0-9])")
_SCIENTIFIC = re.compile(r"(?<![A-Za-z0-9.])([0-9]+(?:\.[0-9]+)?)[eE]([-+]?[0-9]{1,3})(?![A-Za-z0-9])")


def scalar(text: str) -> Scalar:
    """One expression with what is written around it taken off."""
    text = ordinal(text)
    money = _MONEY.sub(r"\1", text)
    body, unit = split_unit(money)
    if money != text and unit is None:
        unit = Unit("money^1", Fraction(1))
    bare = body if _ANGLE.search(body) else _DEGREES.sub("", body)
    degrees, body = bare != body, bare
    bare = _PERCENT.sub("", body)
    percent, body = bare != body, bare
    body = _GROUPS.sub(lambda found: found.group().replace("{,}", "").replace(",", ""), body)
    body = _SCIENTIFIC.sub(r"(\1*10^{\2})", body)
    body = re.sub(r"^([0-9]+)\s+([0-9]+\s*/\s*[0-9]+)$", r"(\1+\2)", body)  # 1 1/2
    return Scalar(body.strip(), unit, percent, degrees)
