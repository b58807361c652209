"""Values of trees, exactly where they are rational, else to 50 digits; and whether two trees are equal.

The cost is bounded: a number too large to be worth writing down raises `TooBig`, and letters are set to a few fixed
numbers, so that equal expressions agree everywhere and others differ (as polynomials do at random points, R. Zippel,
"Probabilistic algorithms for sparse polynomials", 1979).
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from rolecall.grading.expression import Tree

Value = Any  # a Fraction, or a real or complex number of mpmath

DIGITS = 50
EXACT_BITS = 20_000  # a larger rational goes on as a number of 50 digits
MAX_EXPONENT = 1 << 40
MAX_ANGLE_BITS = 512
MAX_FACTORIAL = 3000
CONSTANTS = frozenset({"e", "i", "pi", "infty"})
_LOCAL = threading.local()


class TooBig(Exception):
    """The value has more digits than any answer."""


class Undefined(Exception):
    """The expression has no value here: a division by zero, a logarithm of zero, an infinity."""


def context() -> Any:
    """mpmath's arithmetic, one object a thread: its precision is state."""
    if not hasattr(_LOCAL, "mp"):
        import mpmath

        _LOCAL.mp = mpmath.ctx_mp.MPContext()
        _LOCAL.mp.dps = DIGITS
    return _LOCAL.mp


def symbols(tree: Tree) -> frozenset[str]:
    """The letters of a tree that are not constants."""
    if tree[0] == "sym":
        return frozenset() if tree[1] in CONSTANTS else frozenset({tree[1]})
    return frozenset().union(*(symbols(part) for part in tree[1:] if isinstance(part, tuple)))


def mentions(tree: Tree, name: str) -> bool:
    if tree[0] == "sym":
        return bool(tree[1] == name)
    return any(mentions(part, name) for part in tree[1:] if isinstance(part, tuple))


def value(tree: Tree, at: Mapping[str, Fraction] | None = None) -> Value:
    """The value of a tree, its letters set by `at`. Raises `TooBig` or `Undefined`."""
    return _value(tree, at or {})


def _value(tree: Tree, at: Mapping[str, Fraction]) -> Value:
    kind = tree[0]
    if kind == "num":
        return tree[1]
    if kind == "sym":
        return _symbol(tree[1], at)
    if kind == "call":
        return _call(tree[1], [_value(part, at) for part in tree[2:]])
    parts = [_value(part, at) for part in tree[1:]]
    return _bounded(_OPERATIONS[kind](*parts))


def _symbol(name: str, at: Mapping[str, Fraction]) -> Value:
    if name in at:
        return at[name]
    mp = context()
    if name == "pi":
        return +mp.pi
    if name == "e":
        return +mp.e
    if name == "i":
        return mp.mpc(0, 1)
    raise Undefined(f"{name} has no value")


def inexact(number: Value) -> Any:
    if not isinstance(number, Fraction):
        return number
    mp = context()
    return mp.mpf(number.numerator) / mp.mpf(number.denominator)


def _bounded(number: Value) -> Value:
    if isinstance(number, Fraction):
        bits = max(number.numerator.bit_length(), number.denominator.bit_length())
        return number if bits <= EXACT_BITS else inexact(number)
    mp = context()
    if not mp.isfinite(number):
        raise Undefined("no finite value")
    if abs(mp.mag(number)) > MAX_EXPONENT and number != 0:
        raise TooBig
    return number


def _both(a: Value, b: Value) -> tuple[Value, Value]:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a, b
    return inexact(a), inexact(b)


def _add(a: Value, b: Value) -> Value:
    a, b = _both(a, b)
    return a + b


def _mul(a: Value, b: Value) -> Value:
    a, b = _both(a, b)
    return a * b


def _div(a: Value, b: Value) -> Value:
    if is_zero(b):
        raise Undefined("a division by zero")
    a, b = _both(a, b)
    return a / b


def _pow(a: Value, b: Value) -> Value:
    if is_zero(a):
        if not isinstance(b, Fraction) or b < 0:
            raise Undefined("a power of zero")
        return Fraction(1) if b == 0 else Fraction(0)
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        if b.denominator == 1:
            bits = max(a.numerator.bit_length(), a.denominator.bit_length()) * abs(b.numerator)
            if abs(a) == 1 or bits <= EXACT_BITS:
                return a ** (b.numerator if abs(a) != 1 else b.numerator % 2)
        elif b.denominator <= 64 and (root := exact_root(a, b.denominator)) is not None:
            return _pow(root, Fraction(b.numerator))
        elif a < 0 and b.denominator % 2 and b.denominator <= 64:  # the real root, as schools write it
            size = _pow(-a, b)
            return -size if b.numerator % 2 else size
    mp = context()
    a, b = inexact(a), inexact(b)
    size = max(mp.mag(b), 0) + max(mp.mag(mp.log(a)), 0)
    if size > 41:
        raise TooBig
    return mp.power(a, b)


def exact_root(a: Fraction, degree: int) -> Fraction | None:
    """The rational root of a rational, or None; of a negative one where the degree is odd."""
    if a < 0:
        root = exact_root(-a, degree) if degree % 2 else None
        return None if root is None else -root
    top, bottom = _integer_root(a.numerator, degree), _integer_root(a.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _integer_root(n: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(n)
    elif n < 2:
        root = n
    else:
        root = 1 << -(-n.bit_length() // degree)
        while True:
            better = ((degree - 1) * root + n // root ** (degree - 1)) // degree
            if better >= root:
                break
            root = better
    return root if root**degree == n else None


def _fact(a: Value) -> Value:
    if isinstance(a, Fraction) and a.denominator == 1:
        if a < 0:
            raise Undefined("a factorial of a negative number")
        if a.numerator <= MAX_FACTORIAL:
            return Fraction(math.factorial(a.numerator))
    mp = context()
    number = inexact(a)
    if mp.mag(number) > 24:
        raise TooBig
    return mp.gamma(number + 1)


def _deg(a: Value) -> Value:
    return _mul(a, _div(context().pi + 0, Fraction(180)))


def _abs(a: Value) -> Value:
    return abs(a)


_OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": _add,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "neg": lambda a: -a,
    "fact": _fact,
    "deg": _deg,
    "abs": _abs,
}


def _call(name: str, parts: list[Value]) -> Value:
    wanted = {"binom": 2, "root": 2, "logb": 2}.get(name, 1)
    if name not in ("gcd", "lcm", "max", "min") and len(parts) != wanted:
        raise Undefined(f"{name} of {len(parts)} numbers")
    if name == "sqrt":
        return _bounded(_pow(parts[0], Fraction(1, 2)))
    if name == "root":
        return _bounded(_pow(parts[0], _div(Fraction(1), parts[1])))
    if name in ("gcd", "lcm", "max", "min", "floor", "ceil", "binom"):
        return _bounded(_of_integers(name, parts))
    if name == "abs":
        return abs(parts[0])
    return _bounded(_transcendental(name, [inexact(part) for part in parts]))


def _of_integers(name: str, parts: list[Value]) -> Value:
    mp = context()
    if name == "binom":
        n, k = parts
        if all(isinstance(x, Fraction) and x.denominator == 1 for x in parts) and 0 <= n <= MAX_FACTORIAL:
            return Fraction(math.comb(int(n), int(k)) if k >= 0 else 0)
        if any(mp.mag(inexact(x)) > 24 for x in parts):
            raise TooBig
        return mp.binomial(inexact(n), inexact(k))
    if name in ("floor", "ceil"):
        if isinstance(parts[0], Fraction):
            return Fraction(math.floor(parts[0]) if name == "floor" else math.ceil(parts[0]))
        if mp.im(parts[0]) != 0 or mp.mag(parts[0]) > 150:
            raise Undefined(f"{name} of such a number")
        near = mp.nint(parts[0])
        if abs(parts[0] - near) < mp.mpf(10) ** (10 - DIGITS):
            return Fraction(int(near))
        return Fraction(int(mp.floor(parts[0]) if name == "floor" else mp.ceil(parts[0])))
    if not all(isinstance(x, Fraction) for x in parts):
        raise Undefined(f"{name} of such numbers")
    if name in ("max", "min"):
        return max(parts) if name == "max" else min(parts)
    if any(x.denominator != 1 for x in parts):
        raise Undefined(f"{name} of fractions")
    whole = [int(x) for x in parts]
    return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))


def _transcendental(name: str, parts: list[Any]) -> Value:
    mp = context()
    x = parts[0]
    if name == "exp":
        if mp.mag(x) > 40:
            raise TooBig
        return mp.exp(x)
    if name in ("ln", "log", "lg", "logb"):
        base = parts[1] if name == "logb" else mp.mpf(10) if name == "lg" else mp.e
        if is_zero(x) or is_zero(base) or is_zero(base - 1):
            raise Undefined("a logarithm without a value")
        return mp.log(x) / mp.log(base) if name != "ln" and name != "log" else mp.log(x)
    if mp.mag(x) > MAX_ANGLE_BITS:
        raise TooBig
    if name in ("cot", "sec", "csc"):
        over = {"cot": mp.tan, "sec": mp.cos, "csc": mp.sin}[name](x)
        return _div(mp.mpf(1), over)
    if name == "tan" and is_zero(mp.cos(x)):
        raise Undefined("a tangent without a value")
    inverse = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
    return getattr(mp, inverse.get(name, name))(x)


def is_zero(a: Value) -> bool:
    if isinstance(a, Fraction):
        return a == 0
    return bool(abs(a) < context().mpf(10) ** (8 - DIGITS))


def same(a: Value, b: Value) -> bool:
    """Equal exactly, or to 42 digits of the larger."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    a, b = inexact(a), inexact(b)
    mp = context()
    return bool(abs(a - b) <= mp.mpf(10) ** (8 - DIGITS) * max(1, abs(a), abs(b)))


def is_real(a: Value) -> bool:
    mp = context()
    return isinstance(a, Fraction) or abs(mp.im(a)) <= mp.mpf(10) ** (8 - DIGITS) * max(1, abs(a))


def points(names: frozenset[str], num: int = 4) -> Iterator[dict[str, Fraction]]:
    """Fixed numbers for letters: between 1 and 3, of unusual digits, the last point with negative ones."""
    for number in range(num):
        at = {}
        for name in names:
            digest = hashlib.sha256(f"{number} {name}".encode()).digest()
            size = 1 + Fraction(int.from_bytes(digest[:4], "big") % 19_993, 9_973)
            at[name] = -size if number == num - 1 else size
        yield at


def equal(a: Tree, b: Tree) -> bool:
    """Whether two trees are equal as mathematics: everywhere that both have a (real) value."""
    names = symbols(a) | symbols(b)
    if not names:
        return same(value(a), value(b))
    if symbols(a) ^ symbols(b) and (not symbols(a) or not symbols(b)) and _constant(a) is not _constant(b):
        return False
    complex_numbers = mentions(a, "i") or mentions(b, "i")
    compared = 0
    for at in points(names):
        pair = _pair(a, b, at)
        if pair is None or not (complex_numbers or all(map(is_real, pair))):
            continue
        if not same(*pair):
            return False
        compared += 1
    return compared > 0


def _constant(tree: Tree) -> bool:
    """Whether a tree has the same value at all points."""
    found = [_pair(tree, tree, at) for at in points(symbols(tree))]
    values = [pair[0] for pair in found if pair is not None]
    return all(same(values[0], other) for other in values[1:]) if values else False


def _pair(a: Tree, b: Tree, at: dict[str, Fraction]) -> tuple[Value, Value] | None:
    try:
        return value(a, at), value(b, at)
    except Undefined:
        return None


def proportional(a: Tree, b: Tree) -> bool:
    """Whether a = c b for a number c that is not 0: the equations a = 0 and b = 0 are then one equation."""
    names = symbols(a) | symbols(b)
    if not names or symbols(a) != symbols(b):
        return False
    ratios = []
    for at in points(names, 6):
        pair = _pair(a, b, at)
        if pair is None or not all(map(is_real, pair)):
            continue
        if is_zero(pair[0]) or is_zero(pair[1]):
            return False
        ratios.append(_div(*pair))
    return len(ratios) > 1 and all(same(ratios[0], other) for other in ratios[1:])
