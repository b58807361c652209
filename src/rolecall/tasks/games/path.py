"""Plan-Path: from a start to a goal on a grid with blocked cells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from rolecall.tasks.games.base import Game
from rolecall.tasks.games.grid import STEPS, Cell, cells, moved, read_steps, text


@dataclass(frozen=True, kw_only=True)
class PlanPath(Game):
    """`*` is the traveller, `#` the goal, `O` open, `X` blocked, `@` the traveller on the goal; a move is a direction.

    Progress is 1 - d / d0, d the length of the shortest way to the goal now and d0 at the start, and at least 0. A move
    along a shortest way gains 1 / d0: the local reward of AT-GRPO's Plan-Path (arXiv 2510.11062) before its clip at 0.

    >>> PlanPath(board="*O#").move("*O#", "right")
    Move(text='right', legal=True, state='O*#', progress=0.5, gained=0.5, solved=False, stuck=False)
    """

    rules: ClassVar[str] = (
        "Move from * to #. O is an open cell, X a blocked one. A move is up, down, left or right; write the moves in "
        "their order."
    )

    def legal_moves(self, state: str) -> tuple[str, ...]:
        board = cells(state)
        here = _traveller(board)
        return tuple(step for step in STEPS if board.get(moved(here, step), "X") != "X")

    def step(self, state: str, move: str) -> str:
        board = cells(state)
        here = _traveller(board)
        there = moved(here, move)
        board[here] = "#" if board[here] == "@" else "O"
        board[there] = "@" if board[there] == "#" else "*"
        return text(board)

    def distance(self, state: str) -> int | None:
        """Steps of the shortest way to the goal; None when there is none."""
        board = cells(state)
        return self._distances.get(_traveller(board))

    @cached_property
    def _distances(self) -> dict[Cell, int]:
        board = cells(self.board)
        goal = next(cell for cell, char in board.items() if char in "#@")
        found, waiting = {goal: 0}, deque([goal])
        while waiting:
            here = waiting.popleft()
            for step in STEPS:
                there = moved(here, step)
                if board.get(there, "X") != "X" and there not in found:
                    found[there] = found[here] + 1
                    waiting.append(there)
        return found

    def progress(self, state: str) -> float:
        first, now = self.distance(self.board), self.distance(state)
        if first is None or now is None:
            return 0.0
        return 1.0 if now == 0 else max(0.0, 1 - now / first)

    def stuck(self, state: str) -> bool:
        return self.distance(state) is None

    def read_moves(self, text: str) -> tuple[str, ...]:
        return read_steps(text)


def _traveller(board: dict[Cell, str]) -> Cell:
    return next(cell for cell, char in board.items() if char in "*@")
