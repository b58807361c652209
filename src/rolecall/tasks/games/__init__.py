"""Games that are played move by move: Sudoku 4x4, Sokoban and Plan-Path, with states, legal moves, progress, success.

A task holds a board; `load_game(task)` gives the `Game`, whose states are texts: they can be shown, recorded, replayed.
"""

from __future__ import annotations

from rolecall.errors import TaskError, nearest
from rolecall.records import Task
from rolecall.tasks.games.base import Game, Move, play
from rolecall.tasks.games.path import PlanPath
from rolecall.tasks.games.sokoban import Sokoban
from rolecall.tasks.games.source import Games
from rolecall.tasks.games.sudoku import Sudoku

GAMES: dict[str, type[Game]] = {"sudoku": Sudoku, "sokoban": Sokoban, "plan_path": PlanPath}

__all__ = ["GAMES", "Game", "Games", "Move", "PlanPath", "Sokoban", "Sudoku", "load_game", "play"]


def load_game(task: Task) -> Game:
    """The game of a task of the source `games`; `TaskError` when it is none."""
    name, board = task.metadata.get("game"), task.metadata.get("board")
    if name not in GAMES or not isinstance(board, str):
        raise TaskError(
            f"task {task.id!r} is no game: its metadata has game = {name!r}{nearest(str(name), GAMES)}; use a task of "
            f"the source 'games'"
        )
    return GAMES[name](board=board)
