"""Boards of one character a cell, and steps on them."""

from __future__ import annotations

import re

STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_LETTERS = {"u": "up", "d": "down", "l": "left", "r": "right"}
_WORD = re.compile(r"\b(up|down|left|right)\b", re.IGNORECASE)
_STRING = re.compile(r"(?<![A-Za-z])[UDLR]+(?![A-Za-z])")

Cell = tuple[int, int]


def cells(state: str) -> dict[Cell, str]:
    return {(r, c): char for r, line in enumerate(state.splitlines()) for c, char in enumerate(line)}


def text(board: dict[Cell, str]) -> str:
    rows = 1 + max(r for r, _ in board)
    return "\n".join("".join(board[r, c] for c in sorted(c for q, c in board if q == r)) for r in range(rows))


def moved(cell: Cell, step: str) -> Cell:
    return cell[0] + STEPS[step][0], cell[1] + STEPS[step][1]


def read_steps(reply: str) -> tuple[str, ...]:
    """The directions in a text: words (`up, left`), or where there are none the letters of the last `LDUR`."""
    words = tuple(word.lower() for word in _WORD.findall(reply))
    if words:
        return words
    strings = _STRING.findall(reply)
    return tuple(_LETTERS[letter.lower()] for letter in strings[-1]) if strings else ()
