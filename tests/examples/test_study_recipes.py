"""The recipes of the workflow study: every cell of every matrix resolves, and the settings are the study's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolecall.assemble import make_plan
from rolecall.config import load_config
from rolecall.dry_run import describe
from rolecall.matrix import load_matrix

STUDY = Path(__file__).resolve().parents[2] / "recipes" / "study"
RECIPES = ("qwen3.toml", "tiny.toml")
MATRICES = {"matrix.toml": (36, 6), "tiny_matrix.toml": (18, 3), "tiny_seeds.toml": (18, 0), "tiny_arms.toml": (80, 0)}
"""Teams and controls of each."""


def test_every_file_of_the_folder_is_tested() -> None:
    assert {path.name for path in STUDY.glob("*.toml")} == {*RECIPES, *MATRICES}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_passes_the_dry_run(name: str) -> None:
    words = describe(make_plan(load_config(STUDY / name)))
    assert "voter -> shared (adapter of " in words
    assert "algorithm workflow_grpo: units by turn, peers by task_trajectory, 8 episodes a task" in words


@pytest.mark.parametrize("name", MATRICES)
def test_every_cell_of_a_matrix_resolves(name: str) -> None:
    matrix = load_matrix(STUDY / name)
    controls = [cell for cell in matrix.cells if cell.is_control]
    assert (len(matrix.cells) - len(controls), len(controls)) == MATRICES[name]
    assert all(cell.config.evaluation.every_steps and cell.config.tasks.sizes.validation for cell in matrix.cells)
    learners = [learner for cell in matrix.cells for learner in make_plan(cell.config).learners.values()]
    assert all(learner.schedule == "constant" or learner.schedule_steps for learner in learners)


def test_the_cells_of_the_study_have_its_names_and_settings() -> None:
    cells = {cell.name: cell.config for cell in load_matrix(STUDY / "matrix.toml").cells}
    voting, workers = cells["Voting-IP-1.7B-Math"], cells["OrchWorkers-SP-4B-Code"]
    evaluator = cells["EvalOpt-IP-0.6B-Math"]
    assert (voting.model.model, voting.sharing) == ("Qwen/Qwen3-1.7B", "isolated")
    assert voting.model.lora is not None
    assert (voting.model.lora.rank, voting.model.lora.alpha) == (64, 32.0)
    learner, loss = voting.learner, make_plan(voting).algorithm.loss
    assert (learner.lr, learner.weight_decay, learner.warmup_steps, learner.schedule) == (2e-5, 0.01, 15, "cosine")
    assert (loss.clip_low, loss.clip_high, loss.dual_clip, loss.aggregate) == (0.2, 0.28, 3.0, "sequence_mean")
    assert (voting.rollout.tasks_per_step, voting.steps, voting.sampling.temperature) == (64, 500, 0.7)
    assert voting.model.chat_template == {"enable_thinking": False}
    limits = {name: cells[name].sampling.max_prompt_tokens for name in ("EvalOpt-IP-0.6B-Math", "Voting-IP-1.7B-Math")}
    assert limits == {"EvalOpt-IP-0.6B-Math": 30720, "Voting-IP-1.7B-Math": 20480}
    assert evaluator.workflow.params["max_iterations"] == 3
    assert cells["EvalOpt-IP-0.6B-Code"].workflow.params["max_iterations"] == 2
    assert (workers.tasks.name, workers.sampling.max_tokens, workers.sharing) == ("code", 2048, "shared")
    assert workers.algorithm.params["merge_copies"] == ["worker"]
    assert "merge_copies" not in voting.algorithm.params
    assert workers.workflow.params["answer_format"] == "code"
