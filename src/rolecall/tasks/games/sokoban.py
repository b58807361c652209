"""Sokoban: push every box onto a goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolecall.tasks.games.base import Game
from rolecall.tasks.games.grid import STEPS, Cell, cells, moved, read_steps, text

_PLAYER, _BOX, _GOAL = "*%", "@$", "X%$"


@dataclass(frozen=True, kw_only=True)
class Sokoban(Game):
    """`*` player, `%` player on a goal, `@` box, `$` box on a goal, `X` goal, `+` wall, `-` floor, as in reasoning-gym.

    A move is a direction; a box before the player is pushed when the cell behind it is free. Progress is the share of
    boxes on goals. A box in a corner off the goals can never leave it: the game is stuck.

    >>> Sokoban(board="*@X").move("*@X", "right").solved
    True
    """

    rules: ClassVar[str] = (
        "Push every box onto a goal. * is the player, % the player on a goal, @ a box, $ a box on a goal, X a goal, + a"
        " wall, - floor. A move is up, down, left or right; write the moves in their order."
    )

    def legal_moves(self, state: str) -> tuple[str, ...]:
        board = cells(state)
        here = next(cell for cell, char in board.items() if char in _PLAYER)
        return tuple(step for step in STEPS if _free(board, here, step))

    def step(self, state: str, move: str) -> str:
        board = cells(state)
        here = next(cell for cell, char in board.items() if char in _PLAYER)
        there = moved(here, move)
        if board[there] in _BOX:
            behind = moved(there, move)
            board[behind] = "$" if board[behind] == "X" else "@"
            board[there] = "X" if board[there] == "$" else "-"
        board[there] = "%" if board[there] == "X" else "*"
        board[here] = "X" if board[here] == "%" else "-"
        return text(board)

    def progress(self, state: str) -> float:
        boxes = sum(char in _BOX for char in state)
        return 1.0 if boxes == 0 else state.count("$") / boxes

    def stuck(self, state: str) -> bool:
        board = cells(state)
        return any(char == "@" and _cornered(board, cell) for cell, char in board.items())

    def read_moves(self, text: str) -> tuple[str, ...]:
        return read_steps(text)


def _free(board: dict[Cell, str], here: Cell, step: str) -> bool:
    there = moved(here, step)
    if board.get(there, "+") in _BOX:
        return board.get(moved(there, step), "+") in "-X"
    return board.get(there, "+") in "-X"


def _cornered(board: dict[Cell, str], cell: Cell) -> bool:
    walls = {step: board.get(moved(cell, step), "+") == "+" for step in STEPS}
    return (walls["up"] or walls["down"]) and (walls["left"] or walls["right"])
