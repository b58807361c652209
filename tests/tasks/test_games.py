"""Games: rules worked out by hand, boards of reasoning-gym, progress as a local reward, a workflow that plays them."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
import reasoning_gym

from rolecall.engines.base import Request
from rolecall.errors import TaskError
from rolecall.records import ClaimKind, GradedEpisode, GradeStatus, Task
from rolecall.registry import load_named
from rolecall.rewards import REWARDS, GameProgress
from rolecall.tasks.games import GAMES, Games, PlanPath, Sokoban, Sudoku, load_game, play
from rolecall.tasks.games.grade import game_grader
from rolecall.testing import check_workflow
from rolecall.testing_credit import Said, made_episode
from rolecall.workflows.play_game import PlayGame, advance, named_moves

FULL = "1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1"
BOARD = "_ 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 _"
GRID = "*OX\nXO#\nOOO"


def task(game: str, board: str) -> Task:
    return Task(id=f"{game}:t", question=board, answer=None, metadata={"game": game, "board": board})


def test_a_sudoku_move_fills_one_of_its_empty_cells() -> None:
    game = Sudoku(board=BOARD)
    assert game.legal_moves(BOARD) == ("r1c1=1", "r4c4=1")
    move = game.move(BOARD, "r1c1=1")
    assert (move.progress, move.gained, move.solved, move.legal) == (0.5, 0.5, False, True)
    assert game.move(move.state, "r4c4=1").solved


@pytest.mark.parametrize("text", ["r1c1=2", "r1c2=1", "r5c1=1", "", "up"])
def test_an_illegal_sudoku_move_changes_nothing(text: str) -> None:
    move = Sudoku(board=BOARD).move(BOARD, text)
    assert (move.legal, move.state, move.gained) == (False, BOARD, 0.0)


def test_a_sudoku_without_a_legal_move_is_stuck() -> None:
    board = "1 2 3 _\n_ _ _ 4\n_ _ _ _\n_ _ _ _"
    game = Sudoku(board=board)
    assert not game.stuck(board)
    blocked = "1 2 3 _\n3 4 2 4\n2 1 4 3\n4 3 1 2"
    assert Sudoku(board=blocked).stuck(blocked)


def test_a_whole_grid_is_read_as_the_moves_that_lead_to_it() -> None:
    game = Sudoku(board=BOARD)
    assert game.read_moves(f"So:\n{FULL}") == ("r1c1=1", "r4c4=1")
    assert game.read_moves("r1c1=1, then R4 C4 = 1") == ("r1c1=1", "r4c4=1")
    changed = FULL.replace("1 2 3 4\n", "2 1 3 4\n")
    assert not play(game, game.read_moves(changed))[0].legal  # it changes numbers that were given


def test_progress_on_a_path_is_the_share_of_the_shortest_way() -> None:
    game = PlanPath(board=GRID)
    assert game.distance(GRID) == 3
    made = play(game, ["right", "down", "right"])
    assert [round(move.gained, 6) for move in made] == [round(1 / 3, 6)] * 3
    assert made[-1].state == "OOX\nXO@\nOOO"
    assert made[-1].solved


def test_a_step_away_from_the_goal_loses_what_it_costs_and_a_blocked_one_is_illegal() -> None:
    game = PlanPath(board=GRID)
    state = game.step(GRID, "right")
    assert game.move(state, "left").gained == pytest.approx(-1 / 3)
    assert not game.move(GRID, "down").legal
    assert not game.move(GRID, "up").legal
    blocked = PlanPath(board="*X#")
    assert blocked.stuck("*X#")


def test_a_box_is_pushed_onto_its_goal_and_never_through_a_wall_or_a_box() -> None:
    game = Sokoban(board="++++++\n+*@-X+\n++++++")
    made = play(game, ["right", "right"])
    assert made[0].state == "++++++\n+-*@X+\n++++++"
    assert [move.solved for move in made] == [False, True]
    assert not Sokoban(board="*@@X").move("*@@X", "right").legal
    assert not Sokoban(board="*@+").move("*@+", "right").legal


def test_a_player_leaves_a_goal_as_it_was_and_a_box_in_a_corner_is_stuck() -> None:
    assert Sokoban(board="%-@X").move("%-@X", "right").state == "X*@X"
    assert Sokoban(board="-*$X").move("-*$X", "right").state == "--%$"
    corner = "++++\n+@-+\n+*X+\n++++"
    assert Sokoban(board=corner).stuck(corner)
    assert not Sokoban(board="+++++\n+-@-+\n+X*-+\n+++++").stuck("+++++\n+---+\n+-@-+\n+X*-+\n+++++")


@pytest.mark.parametrize("name", ["sudoku", "plan_path"])
def test_boards_of_reasoning_gym_are_solved_by_its_own_answers(name: str) -> None:
    family = {"sudoku": "mini_sudoku", "plan_path": "shortest_path"}[name]
    entries = reasoning_gym.create_dataset(family, size=40, seed=3)
    tasks = list(itertools.islice(Games(game=name, size=40, seed=3).tasks(), 15))
    assert len(tasks) == 15
    for one in tasks:
        entry = entries[int(one.id.rsplit(":", 1)[1])]
        assert game_grader(entry["answer"], one).right, one.id
        game = load_game(one)
        assert game.progress(game.board) == 0.0
        assert not game_grader(game.legal_moves(game.board)[0], one).right or entry["answer"].count(" ") == 0


SMALL = {"max_w": 7, "max_h": 7, "min_boxes": 1, "max_boxes": 2}


def test_boards_of_sokoban_are_solved_by_reasoning_gyms_own_answers() -> None:
    """Small boards, of which many are made in a moment."""
    tasks = list(itertools.islice(Games(game="sokoban", size=20, params=SMALL).tasks(), 8))
    entries = reasoning_gym.create_dataset("sokoban", size=20, seed=0, **SMALL)
    assert len(tasks) == 8
    for one in tasks:
        answer = entries[int(one.id.rsplit(":", 1)[1])]["answer"]
        assert game_grader(answer, one).right, one.id
        assert not game_grader(answer[:-1], one).right


def test_the_grade_of_a_game_is_its_progress_until_it_is_won() -> None:
    one = task("sudoku", BOARD)
    half = game_grader("r1c1=1", one)
    assert (half.status, half.score) == (GradeStatus.WRONG, 0.5)
    assert game_grader("r1c1=1 r4c4=1", one).right
    assert game_grader("no idea", one).score == 0.0
    assert "not legal" in game_grader("r1c1=2", one).detail


def test_a_reply_makes_at_most_the_moves_that_a_turn_has() -> None:
    game = PlanPath(board=GRID)
    found = advance(game, GRID, "right, down, right", 2)
    assert found["moves"] == ["right", "down"]
    assert found["gained"] == pytest.approx(2 / 3)
    assert advance(game, GRID, None, 2)["illegal"] == 1
    assert named_moves("I move: up?\nMove: down\n") == "down"
    assert named_moves("down") is None


def played(*moves: str | None, game: str = "plan_path", board: str = GRID) -> GradedEpisode:
    said = [Said(role="planner", kind=ClaimKind.CHOICE, value=move) for move in moves]
    graded = made_episode(*said)
    return replace(graded, episode=replace(graded.episode, task=task(game, board)))


def test_the_local_reward_weighs_format_legality_and_what_a_turn_gained() -> None:
    """The goal is 3 steps away: a step towards it gains 1/3, one back gains nothing, an illegal one has its format."""
    given = list(GameProgress()(played("right", "left", "right", "up", None, "down")).values())
    third = 1 / 3
    parts = [(1, 1, third), (1, 1, 0), (1, 1, third), (1, 0, 0), None, (1, 1, third)]
    for reward, wanted in zip(given, parts, strict=True):
        if wanted is None:
            assert (reward.parts, reward.total) == ({"progress": 0.0, "unparsed": 1.0}, 0.0)
        else:
            assert reward.parts == pytest.approx(dict(zip(("format", "legal", "progress"), wanted, strict=True)))
            assert reward.total == pytest.approx(0.1 * wanted[0] + 0.1 * wanted[1] + 0.8 * wanted[2])
    many = GameProgress(moves_per_turn=2)(played("right, down, right"))
    (reward,) = many.values()
    assert reward.parts["progress"] == pytest.approx(2 / 3)
    half = GameProgress(moves_per_turn=2)(played("r1c1=1, r1c1=2", game="sudoku", board=BOARD))
    assert [one.total for one in half.values()] == [pytest.approx(0.1 + 0.1 * 0.5 + 0.8 * 0.5)]


def test_the_local_reward_has_a_short_name_and_wants_a_game() -> None:
    assert load_named("game_progress", REWARDS, "reward", {"legal": 0.2}) == GameProgress(legal=0.2)
    with pytest.raises(TaskError, match="is no game"):
        GameProgress()(made_episode(Said(role="planner", value="up")))


def suggested(request: Request) -> str:
    """The legal move that the prompt shows."""
    found = re.search(r'such as "(Move: [^"]*)"', request.messages[-1]["content"])
    assert found is not None
    return f"I think.\n{found[1]}"


def test_a_workflow_plays_move_by_move_and_replays() -> None:
    boards = [task("plan_path", GRID), task("sudoku", BOARD), task("sokoban", "*@-X")]
    check_workflow(PlayGame(max_turns=4), boards, suggested)


def test_a_task_that_is_no_game_is_refused() -> None:
    with pytest.raises(TaskError, match="is no game"):
        load_game(Task(id="t", question="?", answer="5"))
    with pytest.raises(TaskError, match="sudoku"):
        Games(game="sudoko")
    assert set(GAMES) == {"sudoku", "sokoban", "plan_path"}
