r"""Sets of reals as unions of intervals: `x < 1 \text{ or } x > 2` and `(-\infty, 1) \cup (2, \infty)` are one set."""

from __future__ import annotations

from typing import Any, NamedTuple

from rolecall.grading.expression import Tree
from rolecall.grading.shapes import Many, Relation, Row, Scalar, Shape, Union, Without, Words
from rolecall.grading.symbols import Unreadable
from rolecall.grading.values import context, inexact, is_real, same, symbols, value

_INFINITY: Tree = ("sym", "infty")


class Piece(NamedTuple):
    """An interval; a point is one that is closed on both sides."""

    low: Any
    low_closed: bool
    high: Any
    high_closed: bool


def region(shape: Shape) -> list[Piece]:
    """The pieces of a set of reals, ordered, disjoint and not touching. Raises `Unreadable` when it is none."""
    return _merged(_pieces(shape))


def same_region(a: list[Piece], b: list[Piece]) -> bool:
    return len(a) == len(b) and all(
        x.low_closed == y.low_closed
        and x.high_closed == y.high_closed
        and _same(x.low, y.low)
        and _same(x.high, y.high)
        for x, y in zip(a, b, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    mp = context()
    return bool(a == b) if mp.isinf(a) or mp.isinf(b) else same(a, b)


def end_point(shape: Shape) -> Any:
    """The value of a bound as a real number of mpmath, or an infinity."""
    if not isinstance(shape, Scalar):
        raise Unreadable("a bound that is no number")
    tree, mp = shape.tree, context()
    if tree == _INFINITY:
        return mp.inf
    if tree == ("neg", _INFINITY):
        return -mp.inf
    if symbols(tree):
        raise Unreadable("a bound with letters")
    found = value(tree)
    if not is_real(found):
        raise Unreadable("a bound that is not real")
    return mp.re(inexact(found))


def _pieces(shape: Shape) -> list[Piece]:
    match shape:
        case Row(left, (low, high), right):
            return [Piece(end_point(low), left == "[", end_point(high), right == "]")]
        case Many(items, _):
            return [piece for item in items for piece in _pieces(item)]
        case Union(parts):
            return [piece for part in parts for piece in _pieces(part)]
        case Without(whole, part):
            return _cut(_merged(_pieces(whole)), _merged(_pieces(part)))
        case Relation(sides, signs):
            return _inequality(sides, signs)
        case Words("\\emptyset"):
            return []
        case Scalar():
            at = end_point(shape)
            return [Piece(at, True, at, True)]
    raise Unreadable("no set of reals")


def _inequality(sides: tuple[Shape, ...], signs: tuple[str, ...]) -> list[Piece]:
    mp = context()
    if len(sides) == 3 and signs[0][0] == signs[1][0] and signs[0][0] in "<>" and _is_letter(sides[1]):
        low, high = (sides[0], sides[2]) if signs[0][0] == "<" else (sides[2], sides[0])
        low_sign, high_sign = signs if signs[0][0] == "<" else signs[::-1]
        return [Piece(end_point(low), "=" in low_sign, end_point(high), "=" in high_sign)]
    if len(sides) != 2 or _is_letter(sides[0]) is _is_letter(sides[1]):
        raise Unreadable("a relation that bounds no single letter")
    sign = signs[0]
    if not _is_letter(sides[0]):
        sides, sign = sides[::-1], sign.translate(str.maketrans("<>", "><"))
    at = end_point(sides[1])
    if sign == "!=":
        return [Piece(-mp.inf, False, at, False), Piece(at, False, mp.inf, False)]
    if sign == "=":
        return [Piece(at, True, at, True)]
    if sign[0] == "<":
        return [Piece(-mp.inf, False, at, "=" in sign)]
    return [Piece(at, "=" in sign, mp.inf, False)]


def _is_letter(shape: Shape) -> bool:
    return isinstance(shape, Scalar) and shape.tree[0] == "sym" and bool(symbols(shape.tree))


def _merged(pieces: list[Piece]) -> list[Piece]:
    found: list[Piece] = []
    kept = [p for p in pieces if p.low < p.high or (_same(p.low, p.high) and p.low_closed and p.high_closed)]
    for piece in sorted(kept, key=lambda p: (p.low, not p.low_closed)):
        if not found:
            found.append(piece)
            continue
        last = found[-1]
        touches = _same(piece.low, last.high) and (piece.low_closed or last.high_closed)
        if touches or piece.low < last.high:
            if _same(piece.high, last.high):
                last = last._replace(high_closed=last.high_closed or piece.high_closed)
            elif piece.high > last.high:
                last = last._replace(high=piece.high, high_closed=piece.high_closed)
            found[-1] = last
        else:
            found.append(piece)
    return found


def _cut(whole: list[Piece], part: list[Piece]) -> list[Piece]:
    for gap in part:
        left = []
        for piece in whole:
            below = piece._replace(high=min(piece.high, gap.low), high_closed=_closed_below(piece, gap))
            above = piece._replace(low=max(piece.low, gap.high), low_closed=_closed_above(piece, gap))
            left += [below, above]
        whole = [p for p in left if p.low < p.high or (_same(p.low, p.high) and p.low_closed and p.high_closed)]
    return whole


def _closed_below(piece: Piece, gap: Piece) -> bool:
    if piece.high < gap.low and not _same(piece.high, gap.low):
        return piece.high_closed
    return not gap.low_closed and (piece.high_closed or piece.high > gap.low)


def _closed_above(piece: Piece, gap: Piece) -> bool:
    if piece.low > gap.high and not _same(piece.low, gap.high):
        return piece.low_closed
    return not gap.high_closed and (piece.low_closed or piece.low < gap.high)
