"""A planner plays a game move by move: each move is a recorded effect, so that a replay stands in the same state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rolecall.records import Claim, ClaimKind, Outcome, Task
from rolecall.tasks.games import Game, load_game, play
from rolecall.workflows.base import Team, Workflow


@dataclass(frozen=True, kw_only=True)
class PlayGame(Workflow):
    """The planner sees the state and names its next moves, at most `moves_per_turn` of them, until the game is won, is
    stuck, or `max_turns` are over. A reply without a legal move costs a turn and changes nothing.

    The outcome's figures: `progress` of the last state, `moves` made, `illegal` ones.
    """

    roles: ClassVar[tuple[str, ...]] = ("planner",)

    max_turns: int = 12
    moves_per_turn: int = 1

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        """What follows the last "Move:" of the reply, on its line; unparsed where there is none."""
        return Claim(kind=ClaimKind.CHOICE, value=None if text is None or truncated else named_moves(text))

    async def run(self, task: Task, team: Team) -> Outcome:
        game = load_game(task)
        state, made, illegal = game.board, [], 0
        for turn in range(self.max_turns):
            reply = await team["planner"].reply(_prompt(game, state, self.max_turns - turn, self.moves_per_turn))
            text = reply.claim.value if reply.claim is not None else None
            found = await team.effect("move", lambda s=state, t=text: advance(game, s, t, self.moves_per_turn))
            made += found["moves"]
            illegal += found["illegal"]
            state = found["state"]
            if found["solved"] or found["stuck"]:
                break
        figures = {"progress": game.progress(state), "moves": float(len(made)), "illegal": float(illegal)}
        return Outcome(answer=", ".join(made) or None, figures=figures)

    def max_calls(self) -> Mapping[str, int]:
        return {"planner": self.max_turns}


def named_moves(text: str) -> str | None:
    """What stands behind the last "Move:" or "Moves:"."""
    for mark in ("moves:", "move:"):
        place = text.lower().rfind(mark)
        if place >= 0:
            return text[place + len(mark) :].strip().split("\n", 1)[0].strip() or None
    return None


def advance(game: Game, state: str, text: str | None, limit: int) -> dict[str, Any]:
    """The state after the moves that a reply names: what the effect records.

    `moves` are the legal ones, `gained` is the progress that they brought together: the planner's local reward.
    """
    tried = play(game, game.read_moves(text or "")[:limit], state)
    legal = [move for move in tried if move.legal]
    after = legal[-1].state if legal else state
    return {
        "state": after,
        "moves": [move.text for move in legal],
        "illegal": int(not tried or not tried[-1].legal),
        "gained": game.progress(after) - game.progress(state),
        "solved": game.solved(after),
        "stuck": game.stuck(after),
        "tried": [asdict(move) for move in tried],
    }


def _prompt(game: Game, state: str, turns: int, limit: int) -> list[Any]:
    many = "one move" if limit == 1 else f"at most {limit} moves"
    content = (
        f"{game.rules}\n\n{state}\n\nYou have {turns} turns left. Think, then end with a line of {many}, "
        f'such as "Move: {next(iter(game.legal_moves(state)), "")}".'
    )
    return [{"role": "user", "content": content}]
