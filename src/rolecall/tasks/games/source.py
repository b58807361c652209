"""Tasks that are games, their boards from reasoning-gym's generators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rolecall.errors import TaskError, boundary, nearest
from rolecall.records import Task
from rolecall.tasks.games.base import Game
from rolecall.tasks.games.path import PlanPath
from rolecall.tasks.games.sokoban import Sokoban
from rolecall.tasks.games.sudoku import Sudoku

GRADER = "rolecall.tasks.games.grade:game_grader"
_FAMILIES: dict[str, tuple[str, type[Game]]] = {
    "sudoku": ("mini_sudoku", Sudoku),
    "sokoban": ("sokoban", Sokoban),
    "plan_path": ("shortest_path", PlanPath),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Games:
    """Boards of one game, e.g. `Games(game="sudoku", params={"min_empty": 8})`; `params` go to reasoning-gym's
    generator. `size` bounds how many are generated. Boards of Plan-Path without a way are left out.

    The question is the rules and the board; the grader plays the moves that an answer names.
    """

    game: str = "sudoku"
    params: Mapping[str, Any] = field(default_factory=dict)
    size: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.game not in _FAMILIES:
            raise TaskError(f"there is no game {self.game!r}{nearest(self.game, _FAMILIES)}")
        if self.size < 1:
            raise TaskError(f"games size is {self.size}; wanted at least 1")
        if clash := sorted({"size", "seed"} & set(self.params)):
            raise TaskError(f"games params hold {clash}; give them as the source's own knobs")

    @property
    def label(self) -> str:
        return f"games {self.game}"

    @property
    def generated(self) -> bool:
        return True

    def tasks(self) -> Iterator[Task]:
        import reasoning_gym

        family, kind = _FAMILIES[self.game]
        with boundary(TaskError, f"{self.label} with params {dict(self.params)}"):
            dataset = reasoning_gym.create_dataset(family, size=self.size, seed=self.seed, **self.params)
        for index in range(self.size):
            with boundary(TaskError, f"{self.label}, item {index}"):
                board = _board(self.game, dataset[index])
            game = kind(board=board)
            if game.solved(board) or game.stuck(board):
                continue
            yield Task(
                id=f"games:{self.game}:{self.seed}:{index}",
                question=f"{game.rules}\n\n{board}",
                answer=None,
                source=self.label,
                grader=GRADER,
                metadata={"game": self.game, "board": board},
            )


def _board(game: str, entry: Mapping[str, Any]) -> str:
    metadata = entry["metadata"]
    if game == "sudoku":
        return "\n".join(" ".join(str(n) if n else "_" for n in line) for line in metadata["puzzle"])
    if game == "sokoban":
        return "\n".join("".join(line.split()) for line in metadata["gamestr"].splitlines() if line.strip())
    return "\n".join("".join(line) for line in metadata["matrix"])
