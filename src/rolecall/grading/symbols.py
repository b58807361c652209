r"""The words and signs of mathematics as it is written: a text cut into symbols, each known by its name."""

from __future__ import annotations

import re

MAX_TOKENS = 400

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+|\.(?![0-9]))?|\.[0-9]+)|(?P<command>\\[A-Za-z]+|\\[{}%|])|(?P<word>[A-Za-z]+)|"
    r"(?P<sign>\*\*|[-+*/^_!|(){}\[\],%:]))"
)
FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "ln",
        "log",
        "lg",
        "exp",
        "sqrt",
        "abs",
        "floor",
        "ceil",
        "binom",
        "gcd",
        "lcm",
        "max",
        "min",
        "root",
    ]
)
GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "varepsilon",
        "zeta",
        "eta",
        "theta",
        "vartheta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "varphi",
        "chi",
        "psi",
        "omega",
        "ell",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Sigma",
        "Phi",
        "Psi",
        "Omega",
    ]
)
ALIASES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "cosec": "csc", "tg": "tan", "ctg": "cot"}


class Unreadable(Exception):
    """The text is no expression that this reader knows."""


class TooLarge(Unreadable):
    """The text is deeper or longer than any answer: nothing else should try to read it."""


def tokens_of(text: str) -> list[str]:
    """The symbols of a text, at most `MAX_TOKENS`; `Unreadable` where it holds something else.

    >>> tokens_of("2sinx")
    ['2', '\\\\sin', 'x']
    """
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if len(tokens) >= MAX_TOKENS:
            raise TooLarge(f"more than {MAX_TOKENS} symbols")
        if found is None:
            raise Unreadable(f"nothing is read at {text[position : position + 20]!r}")
        position = found.end()
        word = found["word"]
        tokens += _split_word(word) if word else [found.group().strip()]
    if not tokens:
        raise Unreadable("empty")
    return tokens


def _split_word(word: str) -> list[str]:
    """A word as names: a function or constant by its whole name, else the letters; long words are no mathematics."""
    lower = word if word in GREEK else word.lower()
    lower = ALIASES.get(lower, lower)
    if lower == "sqrt":
        return ["sqrt"]
    if lower in FUNCTIONS or lower in ("pi", "infty") or lower in GREEK:
        return ["\\" + lower]
    if lower in ("inf", "infinity", "oo"):
        return ["\\infty"]
    for name in ("sqrt", "sin", "cos", "tan", "ln", "log", "pi"):  # xsqrt, sinx, 2pir
        place = word.find(name)
        if place >= 0 and len(word) <= len(name) + 2:
            return [*word[:place], *_split_word(name), *word[place + len(name) :]]
    if len(word) > 4:
        raise Unreadable(f"{word!r} is a word")
    return list(word)
