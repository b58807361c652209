"""What a game is, and one move of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """What a move led to. `progress` is the state's, in [0, 1]; `gained` is how much of it the move brought, negative
    when it lost some: the local reward of the role that moved. An illegal move leaves the state as it was.

    >>> Move(text="up", legal=False, state="*.", progress=0.0, gained=0.0, solved=False, stuck=False).legal
    False
    """

    text: str
    legal: bool
    state: str
    progress: float
    gained: float
    solved: bool
    stuck: bool


@dataclass(frozen=True, kw_only=True)
class Game:
    """A board and its rules. States are texts of the board's form; `board` is the first of them.

    `legal_moves(state)` are the moves that the rules allow; `step` gives the next state of a legal move; `progress` is
    1.0 exactly where the game is won; `stuck` says that it can no longer be won, where that is seen at once.
    """

    board: str
    rules: ClassVar[str] = ""

    def legal_moves(self, state: str) -> tuple[str, ...]:
        raise NotImplementedError

    def step(self, state: str, move: str) -> str:
        raise NotImplementedError

    def progress(self, state: str) -> float:
        raise NotImplementedError

    def solved(self, state: str) -> bool:
        return self.progress(state) >= 1.0

    def stuck(self, state: str) -> bool:
        return not self.solved(state) and not self.legal_moves(state)

    def read_moves(self, text: str) -> tuple[str, ...]:
        """The moves that a text names, in their order; legal or not."""
        raise NotImplementedError

    def move(self, state: str, text: str) -> Move:
        """Make one move; an illegal one changes nothing."""
        legal = text in self.legal_moves(state)
        after = self.step(state, text) if legal else state
        progress = self.progress(after)
        return Move(
            text=text,
            legal=legal,
            state=after,
            progress=progress,
            gained=progress - self.progress(state),
            solved=self.solved(after),
            stuck=self.stuck(after),
        )


def play(game: Game, moves: Sequence[str], state: str | None = None) -> list[Move]:
    """The moves one after another from `state` (the board); it ends after the first illegal one, and when it is won."""
    made: list[Move] = []
    state = game.board if state is None else state
    for text in moves:
        if game.solved(state):
            break
        made.append(game.move(state, text))
        if not made[-1].legal:
            break
        state = made[-1].state
    return made
