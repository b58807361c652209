"""The local reward of games: how much of the way a turn's moves have brought the team (AT-GRPO, arXiv 2510.11062)."""

from __future__ import annotations

from dataclasses import dataclass

from rolecall.records import GradedEpisode, Reward, Turn
from rolecall.rewards.base import marked
from rolecall.tasks.games import Game, load_game, play


@dataclass(frozen=True, kw_only=True, slots=True)
class GameProgress:
    """`format` + `legal` + `progress` of a turn, weighted .1, .1 and .8 as in AT-GRPO's local rewards.

    `format` is 1 when the claim names a move, `legal` the share of the named moves that were legal, `progress` the
    progress that they gained, at least 0. A turn's state is the one that its parents' moves lead to. A turn that claims
    nothing is not judged; `moves_per_turn` is the workflow's.
    """

    format: float = 0.1
    legal: float = 0.1
    progress: float = 0.8
    moves_per_turn: int = 1

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        game = load_game(graded.episode.task)
        states: dict[str | None, str] = {None: game.board}
        found: dict[str, Reward] = {}
        for turn in graded.episode.turns:
            before = states.get(turn.parent, game.board)
            states[turn.id], found[turn.id] = self._judged(game, before, turn)
        return found

    def _judged(self, game: Game, before: str, turn: Turn) -> tuple[str, Reward]:
        if turn.claim is None:
            return before, marked("progress", "unjudged", None)
        moves = game.read_moves(turn.claim.value or "")[: self.moves_per_turn]
        if not moves:
            return before, marked("progress", "unparsed", 0.0)
        made = play(game, moves, before)
        legal = [move for move in made if move.legal]
        after = legal[-1].state if legal else before
        gained = max(0.0, game.progress(after) - game.progress(before))
        parts = {"format": 1.0, "legal": len(legal) / len(moves), "progress": gained}
        total = self.format * parts["format"] + self.legal * parts["legal"] + self.progress * parts["progress"]
        return after, Reward(parts=parts, total=total)
