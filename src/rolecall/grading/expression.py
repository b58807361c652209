r"""Mathematics as it is written, LaTeX or plain, read into a tree: without evaluation, bounded in size and depth.

A tree is a tuple whose first item names it: `("num", Fraction)`, `("sym", "x_1")`, `("call", "sqrt", tree, ...)`, and
`add`, `mul`, `div`, `pow` of two trees, `neg`, `fact`, `deg`, `abs` of one.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from rolecall.grading.symbols import ALIASES, FUNCTIONS, GREEK, TooLarge, Unreadable, tokens_of

Tree = tuple[Any, ...]

MAX_DEPTH = 120
MAX_DIGITS = 4000

_FRACTIONS = frozenset({"\\frac", "\\dfrac", "\\tfrac", "\\cfrac"})
_BINOMIALS = frozenset({"\\binom", "\\dbinom", "\\tbinom"})
_TIMES = frozenset({"*", "\\cdot", "\\times", "\\ast"})
_OVER = frozenset({"/", "\\div"})
_FONTS = frozenset(
    ["\\mathrm", "\\mathbf", "\\mathit", "\\mathsf", "\\mathcal", "\\operatorname", "\\text", "\\textbf", "\\textit"]
)
_CLOSERS = {
    "(": ")",
    "[": "]",
    "{": "}",
    "\\{": "\\}",
    "\\lfloor": "\\rfloor",
    "\\lceil": "\\rceil",
    "\\lvert": "\\rvert",
}
_MIDDLES = {"\\lfloor": "floor", "\\lceil": "ceil", "\\lvert": "abs"}


def read_expression(text: str) -> Tree:
    r"""The tree of an expression; `Unreadable` when it is none.

    `2\frac{1}{2}` is a mixed number, `2\sqrt{3}` a product, `1/2x` is (1/2)x, `\sin 2x` takes the whole product, `xy`
    is a product of letters; `e`, `i` and `\pi` are the constants.

    >>> read_expression("2x")
    ('mul', ('num', Fraction(2, 1)), ('sym', 'x'))
    """
    reader = _Reader(tokens_of(text))
    tree = reader.sum()
    if reader.peek() is not None:
        raise Unreadable(f"{reader.peek()!r} is left over")
    return tree


class _Reader:
    """Recursive descent over tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0  # how many |...| are open

    def peek(self, ahead: int = 0) -> str | None:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise Unreadable("it ends too early")
        self.at += 1
        return token

    def want(self, token: str) -> None:
        if self.take() != token:
            raise Unreadable(f"{token!r} is missing")

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge("too deep")
        tree = self.product()
        while self.peek() in ("+", "-"):
            sign = self.take()
            right = self.product()
            tree = ("add", tree, right if sign == "+" else ("neg", right))
        self.depth -= 1
        return tree

    def product(self) -> Tree:
        tree = self.signed()
        while True:
            token = self.peek()
            if token in _TIMES:
                self.take()
                tree = ("mul", tree, self.signed())
            elif token in _OVER:
                self.take()
                tree = ("div", tree, self.signed())
            elif self.starts_factor(token):
                tree = self.beside(tree)
            else:
                return tree

    def signed(self) -> Tree:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take() == "-"
        tree = self.power()
        return ("neg", tree) if negative else tree

    def beside(self, tree: Tree) -> Tree:
        """A product without a sign; a whole number beside a fraction is a mixed number."""
        token = self.peek()
        whole = tree[1] if tree[0] == "neg" else tree
        mixed = token in _FRACTIONS and whole[0] == "num" and whole[1].denominator == 1
        if token is not None and token[0].isdigit():
            raise Unreadable("two numbers side by side")
        right = self.power()
        if mixed and right[0] == "div" and right[1][0] == right[2][0] == "num":
            both = ("add", whole, right)
            return ("neg", both) if tree[0] == "neg" else both
        return ("mul", tree, right)

    def starts_factor(self, token: str | None) -> bool:
        if token is None or token in ("+", "-", ")", "]", "}", "\\}", ",", "/", "*", "^", "_", "!", "%", ":", "**"):
            return False
        if token in ("|", "\\|"):
            return self.bars == 0
        return not (token.startswith("\\") and token in ("\\rfloor", "\\rceil", "\\rvert", "\\choose", "\\div"))

    def power(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge("too deep")
        tree = self.postfix(self.atom())
        if self.peek() in ("^", "**"):
            self.take()
            if self.degree():
                tree = ("deg", tree)
            else:
                tree = ("pow", tree, self.exponent())
            tree = self.postfix(tree)
        elif self.peek() == "\\degree":
            self.take()
            tree = ("deg", tree)
        self.depth -= 1
        return tree

    def degree(self) -> bool:
        if self.peek() == "\\circ":
            self.at += 1
            return True
        if self.tokens[self.at : self.at + 3] == ["{", "\\circ", "}"]:
            self.at += 3
            return True
        return False

    def exponent(self) -> Tree:
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take() == "-"
        tree = self.power()
        return ("neg", tree) if negative else tree

    def postfix(self, tree: Tree) -> Tree:
        while self.peek() in ("!", "%", "\\%"):
            tree = ("fact", tree) if self.take() == "!" else ("div", tree, ("num", Fraction(100)))
        return tree

    def atom(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge("too deep")
        tree = self.one()
        self.depth -= 1
        return tree

    def one(self) -> Tree:
        token = self.take()
        if token[0].isdigit() or token[0] == ".":
            return self.number(token)
        if token in ("|", "\\|"):
            self.bars += 1
            inner = self.sum()
            self.bars -= 1
            self.want(token)
            return ("abs", inner)
        if token in _CLOSERS:
            bars, self.bars = self.bars, 0
            inner = self.sum()
            if token == "{" and self.peek() == "\\choose":
                self.take()
                inner = ("call", "binom", inner, self.sum())
            self.want(_CLOSERS[token])
            self.bars = bars
            return ("call", _MIDDLES[token], inner) if token in _MIDDLES else inner
        if token.startswith("\\"):
            return self.command(token)
        if token == "sqrt":  # written without a backslash it takes a whole number: sqrt12
            return ("call", "sqrt", self.atom())
        if token == "C" and self.peek() == "(" and (chosen := self.binomial()) is not None:
            return chosen
        if token.isalpha():
            return self.symbol(token)
        raise Unreadable(f"{token!r} begins nothing")

    def binomial(self) -> Tree | None:
        """`C(n, k)`; None, and nothing taken, where the brackets hold one expression."""
        start = self.at
        self.take()
        above = self.sum()
        if self.peek() != ",":
            self.at = start
            return None
        self.take()
        below = self.sum()
        self.want(")")
        return ("call", "binom", above, below)

    def number(self, token: str) -> Tree:
        if len(token) > MAX_DIGITS:
            raise TooLarge("a number of too many digits")
        value = Fraction(token + "0" if token.endswith(".") else token)
        if "." in token and self.peek() in ("\\overline", "\\dot"):
            self.take()
            digits = self.digits()
            places = len(token.partition(".")[2])  # 0.1\\overline{6}: six after one place
            value += Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)
        return ("num", value)

    def digits(self) -> str:
        braced = self.peek() == "{"
        if braced:
            self.take()
        token = self.take()
        if not token.isdigit() or len(token) > 60:
            raise Unreadable("a period that is no digits")
        if braced:
            self.want("}")
        return token

    def symbol(self, name: str) -> Tree:
        if self.peek() == "_":
            self.take()
            name += "_" + self.flat()
        elif name == "e" or name == "i":
            return ("sym", name)
        while self.peek() == "'":
            name += self.take()
        return ("sym", name)

    def flat(self) -> str:
        """A subscript as text."""
        if self.peek() != "{":
            return self.take()
        depth = 0
        parts: list[str] = []
        while True:
            token = self.take()
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return "".join(parts)
            if token not in "{}":
                parts.append(token)

    def argument(self) -> Tree:
        """What a command takes: one group, or one character (`\\frac12`)."""
        token = self.peek()
        if token is not None and token.isdigit() and len(token) > 1:
            self.tokens[self.at : self.at + 1] = list(token)
        return self.atom()

    def command(self, token: str) -> Tree:
        name = token[1:]
        if token in _FRACTIONS:
            return ("div", self.argument(), self.argument())
        if token in _BINOMIALS:
            return ("call", "binom", self.argument(), self.argument())
        if name == "sqrt":
            return self.root()
        if token in _FONTS:
            return self.font()
        if name in ("pi", "infty") or name in GREEK:
            return self.symbol(name)
        if ALIASES.get(name, name) in FUNCTIONS:
            return self.function(ALIASES.get(name, name))
        raise Unreadable(f"{token} is not known")

    def font(self) -> Tree:
        self.want("{")
        letters: list[str] = []
        while (token := self.take()) != "}":
            letters.append(token)
        name = "".join(letters).lstrip("\\")
        name = ALIASES.get(name, name)
        if name in FUNCTIONS:
            return self.function(name)
        if len(letters) == 1 and name.isalpha():
            return self.symbol(name)
        raise Unreadable(f"{name!r} in letters of a text")

    def root(self) -> Tree:
        if self.peek() == "[":
            self.take()
            degree = self.sum()
            self.want("]")
            return ("call", "root", self.argument(), degree)
        return ("call", "sqrt", self.argument())

    def function(self, name: str) -> Tree:
        r"""`\sin^2 x`, `\log_2 8`, `\gcd(4, 6)`, `\sin 2x`."""
        base: Tree | None = None
        exponent: Tree | None = None
        for _ in range(2):
            if self.peek() == "_" and name in ("log", "lg"):
                self.take()
                base = self.argument()
            elif self.peek() == "^":
                self.take()
                exponent = self.argument() if self.peek() != "-" else self.exponent()
        parts = self.parts()
        if exponent == ("neg", ("num", Fraction(1))) and name in ("sin", "cos", "tan"):
            name, exponent = "arc" + name, None
        tree = ("call", name, *parts) if base is None else ("call", "logb", *parts, base)
        return tree if exponent is None else ("pow", tree, exponent)

    def parts(self) -> list[Tree]:
        if self.peek() in ("(", "\\{", "[", "{"):
            closer = _CLOSERS[opened := self.take()]
            bars, self.bars = self.bars, 0
            found = [self.sum()]
            while self.peek() == "," and opened != "{":
                self.take()
                found.append(self.sum())
            self.want(closer)
            self.bars = bars
            if opened != "{" or not self.starts_factor(self.peek()):
                return found
            return [("mul", found[0], self.power())]
        tree = self.signed()
        while self.starts_factor(self.peek()) and not self.names_function(self.peek()):
            tree = self.beside(tree)
        return [tree]

    def names_function(self, token: str | None) -> bool:
        return token is not None and (token[1:] in FUNCTIONS and token != "\\sqrt")
