"""The grader of games: the moves that an answer names are played."""

from __future__ import annotations

from rolecall.records import Grade, GradeStatus, Task
from rolecall.tasks.games import load_game, play

MAX_MOVES = 1000


def game_grader(answer: str, task: Task) -> Grade:
    """Right when the moves win the game; else wrong, with the progress of the last state as the score. The first
    illegal move ends it."""
    game = load_game(task)
    moves = game.read_moves(answer)[:MAX_MOVES]
    if not moves:
        return Grade(status=GradeStatus.WRONG, score=0.0, detail="the answer names no move")
    made = play(game, moves)
    last = made[-1]
    if last.solved:
        return Grade(status=GradeStatus.RIGHT, score=1.0)
    why = f"move {len(made)}, {last.text!r}, is not legal" if not last.legal else f"progress {last.progress:.2f}"
    return Grade(status=GradeStatus.WRONG, score=min(last.progress, 0.999), detail=why)
