"""Whether two shapes are the same answer. `Unreadable` where a part is none that can be read here."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction

from rolecall.grading.expression import Tree
from rolecall.grading.normalise import NAME_HEAD
from rolecall.grading.regions import region, same_region
from rolecall.grading.shapes import Based, Many, Matrix, Ratio, Relation, Row, Scalar, Shape, Union, Without, Words
from rolecall.grading.symbols import Unreadable
from rolecall.grading.values import (
    TooBig,
    Undefined,
    context,
    equal,
    inexact,
    is_real,
    mentions,
    proportional,
    symbols,
    value,
)

ROUNDED_PLACES = 6  # a decimal of at least so many places stands for all that round to it
_DEGREE: Tree = ("deg", ("num", Fraction(1)))


def alike(answer: Shape, reference: Shape) -> bool:
    """Whether `answer` is right for `reference`; not symmetric in units, names and percent signs that only one has."""
    answer, reference = _named(answer, reference)
    if isinstance(answer, Scalar) and isinstance(reference, Scalar):
        return same_scalar(answer, reference)
    if isinstance(answer, Words) or isinstance(reference, Words):
        return answer == reference
    if _is_region(answer) or _is_region(reference):
        return same_region(region(answer), region(reference))
    match answer, reference:
        case Relation(), Relation():
            return _same_relation(answer, reference)
        case Relation(), _:
            return _right_side(answer, reference)
        case Based(), Based():
            return (int(answer.digits, 36), answer.base) == (int(reference.digits, 36), reference.base)
        case (Based(digits, _), Scalar(text)) | (Scalar(text), Based(digits, _)):
            return text.lower() == digits
        case Ratio(), Ratio():
            return _same_ratio(answer.parts, reference.parts)
        case (Ratio((top, bottom)), Scalar()) | (Scalar(), Ratio((top, bottom))):
            other = reference if isinstance(reference, Scalar) else answer
            return _same_ratio((top, bottom), (other, Scalar("1")))
        case Matrix(), Matrix():
            return _same_matrix(answer, reference)
        case (Matrix(), Row() | Many()) | (Row() | Many(), Matrix()):
            matrix, other = (answer, reference) if isinstance(answer, Matrix) else (reference, answer)
            assert isinstance(matrix, Matrix)
            return _same_vector(matrix, other)
        case Row(), Row():
            brackets = len(answer.items) > 2 or (answer.left, answer.right) == (reference.left, reference.right)
            return brackets and _in_order(answer.items, reference.items)
        case (Row(), Many()) | (Many(), Row()):
            row, many = (answer, reference) if isinstance(answer, Row) else (reference, answer)
            assert isinstance(row, Row)
            assert isinstance(many, Many)
            if many.once:
                return False
            if (row.left, row.right) == ("[", "]") and len(row.items) != 2:
                return _in_any_order(answer.items, reference.items, once=False)  # type: ignore[union-attr]
            return _in_order(answer.items, reference.items)  # type: ignore[union-attr]
        case (Many(), _) | (_, Many()):
            return _in_any_order(_items(answer), _items(reference), once=_once(answer) or _once(reference))
    return False


def _items(shape: Shape) -> Sequence[Shape]:
    return shape.items if isinstance(shape, Many) else (shape,)


def _once(shape: Shape) -> bool:
    return isinstance(shape, Many) and shape.once


def _named(answer: Shape, reference: Shape) -> tuple[Shape, Shape]:
    """Both without the name that they are assigned to (`x = 5`), where one has none or both have the same."""
    a, b = _name(answer), _name(reference)
    if isinstance(answer, Relation) and a is not None and (b == a or not isinstance(reference, Relation)):
        answer = _after_name(answer)
    if isinstance(reference, Relation) and b is not None and (b == a or not isinstance(answer, Relation) or a is None):
        stripped = _after_name(reference)
        reference = stripped if b == a or not isinstance(answer, Relation) else reference
    return _assigned(answer, reference), _assigned(reference, answer)


def _name(shape: Shape) -> str | None:
    if not isinstance(shape, Relation) or shape.signs[0] != "=":
        return None
    first = shape.sides[0]
    if isinstance(first, Row) and all(isinstance(item, Scalar) and len(item.text) < 3 for item in first.items):
        return "(" + ",".join(item.text for item in first.items if isinstance(item, Scalar)) + ")"
    return first.text if isinstance(first, Scalar) and NAME_HEAD.fullmatch(first.text) else None


def _after_name(relation: Relation) -> Shape:
    sides, signs = relation.sides[1:], relation.signs[1:]
    return sides[0] if len(sides) == 1 else Relation(sides, signs)


def _assigned(shape: Shape, other: Shape) -> Shape:
    """`y = 2, x = 1` as (1, 2), its values by name; `x = 1, x = 2` as 1, 2."""
    if not isinstance(shape, Many) or not all(_name(item) for item in shape.items):
        return shape
    pairs = [(_name(item) or "", _after_name(item)) for item in shape.items if isinstance(item, Relation)]
    names = [name for name, _ in pairs]
    if len(set(names)) == 1:
        return Many(tuple(item for _, item in pairs), shape.once)
    if len(set(names)) < len(names):
        return shape
    if isinstance(other, Many) and all(_name(item) for item in other.items):
        return shape if sorted(names) != sorted(_name(item) or "" for item in other.items) else _by_name(pairs)
    return _by_name(pairs)


def _by_name(pairs: list[tuple[str, Shape]]) -> Row:
    return Row("(", tuple(item for _, item in sorted(pairs, key=lambda pair: pair[0])), ")")


def _is_region(shape: Shape) -> bool:
    if isinstance(shape, Relation):
        return any(sign in ("<", "<=", ">", ">=", "!=") for sign in shape.signs) and not _many_letters(shape)
    if isinstance(shape, Row) and len(shape.items) == 2 and (shape.left, shape.right) in (("(", "]"), ("[", ")")):
        return True
    if isinstance(shape, Row) and any(isinstance(i, Scalar) and "infty" in i.text for i in shape.items):
        return True
    return isinstance(shape, Union | Without)


def _many_letters(shape: Relation) -> bool:
    return len(frozenset().union(*(symbols(side.tree) for side in shape.sides if isinstance(side, Scalar)))) > 1


def _in_order(a: Sequence[Shape], b: Sequence[Shape]) -> bool:
    return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))


def _in_any_order(a: Sequence[Shape], b: Sequence[Shape], *, once: bool) -> bool:
    if once:
        a, b = _distinct(a), _distinct(b)
    if len(a) != len(b):
        return False
    left = list(b)
    for item in a:
        place = next((n for n, other in enumerate(left) if alike(item, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _distinct(items: Sequence[Shape]) -> list[Shape]:
    found: list[Shape] = []
    for item in items:
        if not any(alike(item, other) for other in found):
            found.append(item)
    return found


def _right_side(answer: Relation, reference: Shape) -> bool:
    """`12*3 = 36` for 36: every side says the reference. What follows a sign of approximation is no part of it."""
    if not set(answer.signs) <= {"=", "~"}:
        return False
    if answer.signs[0] == "~" and _letter_first(answer):
        return alike(answer.sides[1], reference)
    end = answer.signs.index("~") + 1 if "~" in answer.signs else len(answer.sides)
    return all(alike(side, reference) for side in answer.sides[:end])


def _letter_first(answer: Relation) -> bool:
    first = answer.sides[0]
    return isinstance(first, Scalar) and bool(NAME_HEAD.fullmatch(first.text))


def _same_relation(a: Relation, b: Relation) -> bool:
    if a.signs == b.signs and _in_order(a.sides, b.sides):
        return True
    if a.signs == b.signs == ("=",):
        sides = [side for side in (*a.sides, *b.sides) if isinstance(side, Scalar)]
        if len(sides) == 4:
            trees = [side.tree for side in sides]
            return proportional(_difference(trees[0], trees[1]), _difference(trees[2], trees[3]))
    if set(a.signs) != {"="} or set(b.signs) != {"="}:
        raise Unreadable("relations of more kinds than are compared here")
    return False


def _difference(a: Tree, b: Tree) -> Tree:
    return ("add", a, ("neg", b))


def _same_ratio(a: Sequence[Shape], b: Sequence[Shape]) -> bool:
    if len(a) != len(b):
        return False
    trees_a, trees_b = ([part.tree for part in parts if isinstance(part, Scalar)] for parts in (a, b))
    if not len(trees_a) == len(trees_b) == len(a):
        raise Unreadable("a ratio of more than numbers")
    return all(
        _equal(("mul", trees_a[i], trees_b[j]), ("mul", trees_a[j], trees_b[i]))
        for i, j in itertools.pairwise(range(len(a)))
    )


def _same_matrix(a: Matrix, b: Matrix) -> bool:
    return len(a.rows) == len(b.rows) and all(_in_order(x, y) for x, y in zip(a.rows, b.rows, strict=True))


def _same_vector(matrix: Matrix, other: Shape) -> bool:
    rows = matrix.rows
    if len(rows) == 1 or all(len(row) == 1 for row in rows):
        return isinstance(other, Row | Many) and _in_order([cell for row in rows for cell in row], other.items)
    return False


def same_scalar(a: Scalar, b: Scalar) -> bool:
    """Whether two expressions are the same number or function, units and percent signs considered."""
    factor = Fraction(1)
    if a.unit is not None and b.unit is not None and "^" in a.unit.kind and "^" in b.unit.kind:
        if a.unit.kind != b.unit.kind:
            return False
        factor = a.unit.factor / b.unit.factor
    if factor == 1 and a.percent == b.percent and _squeezed(a.text) == _squeezed(b.text):
        return True
    x, y = a.tree, b.tree
    if mentions(x, "infty") or mentions(y, "infty"):
        return x == y
    if factor != 1:
        x = ("mul", x, ("num", factor))
    if _same_number(x, y, max(a.decimals, 0), max(b.decimals, 0)):
        return True
    hundred: Tree = ("num", Fraction(100))
    if a.percent != b.percent:
        x, y = (("div", x, hundred), y) if a.percent else (x, ("div", y, hundred))
        return _same_number(x, y, a.decimals, b.decimals)
    if a.degrees != b.degrees and mentions(x if b.degrees else y, "pi"):  # radians for degrees
        x, y = (("mul", x, _DEGREE), y) if a.degrees else (x, ("mul", y, _DEGREE))
        return _same_number(x, y, 0, 0)
    return False


def _squeezed(text: str) -> str:
    return re.sub(r"(?<![0-9])\s+|\s+(?![0-9])", "", text).removeprefix("+")


def _same_number(x: Tree, y: Tree, x_places: int, y_places: int) -> bool:
    if _equal(x, y):
        return True
    places = min((p for p in (x_places, y_places) if p >= ROUNDED_PLACES), default=0)
    if not places or symbols(x) or symbols(y):
        return False
    a, b = value(x), value(y)
    if not (is_real(a) and is_real(b)):
        return False
    return bool(abs(inexact(a) - inexact(b)) <= context().mpf(10) ** -places * 0.500001)


def _equal(x: Tree, y: Tree) -> bool:
    """Equality of trees; a value too large to write down, or none at all, is equal to nothing but the same tree."""
    if x == y:
        return True
    try:
        return equal(x, y)
    except TooBig:
        return False
    except Undefined as error:
        if not symbols(y):
            try:
                value(y)
            except Undefined:
                raise Unreadable(f"the reference has no value: {error}") from None
        return False
