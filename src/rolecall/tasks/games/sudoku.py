"""Sudoku 4x4: every row, column and 2x2 square holds 1 to 4 once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from rolecall.tasks.games.base import Game

_MOVE = re.compile(r"r\s*([1-4])\s*,?\s*c\s*([1-4])\s*(?:=|:|->)\s*([1-4])", re.IGNORECASE)
_GRID = re.compile(r"((?:[1-4][ \t]+){3}[1-4][ \t]*(?:\n\s*|$)){4}")
_CELLS = [(row, column) for row in range(4) for column in range(4)]


@dataclass(frozen=True, kw_only=True)
class Sudoku(Game):
    """A state is four lines of four cells, `_` where a cell is empty; a move is `r1c3=4`.

    Progress is the share of the cells, empty at the start, that are filled. A move is legal when its cell is empty and
    its number is not yet in the cell's row, column or square, so that a full board is a solution.

    >>> Sudoku(board="1 2 3 4\\n3 4 1 2\\n2 1 4 3\\n4 3 2 _").legal_moves("1 2 3 4\\n3 4 1 2\\n2 1 4 3\\n4 3 2 _")
    ('r4c4=1',)
    """

    rules: ClassVar[str] = (
        "Fill the empty cells (_) so that each row, each column and each 2x2 square holds 1, 2, 3 and 4 once. "
        "A move is r<row>c<column>=<number>, such as r1c3=4."
    )

    def legal_moves(self, state: str) -> tuple[str, ...]:
        grid = _grid(state)
        return tuple(
            f"r{row + 1}c{column + 1}={number}"
            for row, column in _CELLS
            if grid[row][column] == "_"
            for number in "1234"
            if number not in _seen(grid, row, column)
        )

    def step(self, state: str, move: str) -> str:
        grid = _grid(state)
        grid[int(move[1]) - 1][int(move[3]) - 1] = move[5]
        return "\n".join(" ".join(line) for line in grid)

    def progress(self, state: str) -> float:
        empty = self.board.count("_")
        return 1.0 if empty == 0 else (empty - state.count("_")) / empty

    def read_moves(self, text: str) -> tuple[str, ...]:
        """Moves as they are named, or those that lead to the last whole grid in the text."""
        found = tuple(f"r{row}c{column}={number}" for row, column, number in _MOVE.findall(text))
        grids = [match.group() for match in _GRID.finditer(text)]
        if found or not grids:
            return found
        start, end = _grid(self.board), grids[-1].split()
        if any(start[r][c] not in ("_", end[4 * r + c]) for r, c in _CELLS):
            return ("",)  # it changes a number that was given: no move
        return tuple(f"r{r + 1}c{c + 1}={end[4 * r + c]}" for r, c in _CELLS if start[r][c] == "_")


def _grid(state: str) -> list[list[str]]:
    return [line.split() for line in state.splitlines()]


def _seen(grid: list[list[str]], row: int, column: int) -> set[str]:
    top, left = 2 * (row // 2), 2 * (column // 2)
    square = [grid[top + i][left + j] for i in range(2) for j in range(2)]
    return {*grid[row], *(line[column] for line in grid), *square}
