"""The demonstrations behind the tiny models of the study: what careful demonstrators write is right, and is read so by
the workflows; what stubborn and hasty ones write is what the study leaves to be learned."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from rolecall.workflows.evaluator_optimizer import EvaluatorOptimizer
from rolecall.workflows.orchestrator_workers import OrchestratorWorkers, parse_strategies
from rolecall.workflows.parse import last_boxed
from rolecall.workflows.prompting import load_prompts
from rolecall.workflows.voting import Voting

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="module")
def made() -> Any:
    """The scripts of recipes/, which import each other from their own folder."""
    sys.path.insert(0, str(RECIPES))
    try:
        import make_workflow_models
        import workflow_transcripts
    finally:
        sys.path.remove(str(RECIPES))
    holes = {role: names for one in make_workflow_models.WORKFLOWS for role, names in one.HOLES.items()}
    return make_workflow_models, workflow_transcripts, load_prompts("tiny_workflows", holes)


def scene(transcripts: Any, **changes: Any) -> Any:
    from tiny_transcripts import Sum

    given = {
        "task": Sum(question="7-9+3-8"),
        "answers": ("\\boxed{-6}", "\\boxed{-7}", "\\boxed{4}"),
        "report": "Verdict: wrong",
        "strategies": ("left", "pairs"),
        "work": ("7-9=-2+3=1-8=-7 \\boxed{-7}", "\\boxed{1}"),
        "reasoning": "7-9=-2",
    }
    return transcripts.Scene(**{**given, **changes})


def reply(made: Any, role: str, *, careful: float = 1.0, stubborn: float = 0.0, **changes: Any) -> str:
    _, transcripts, prompts = made
    habits = transcripts.Habits(careful=careful, stubborn=stubborn, too_many=0.0)
    return transcripts.demonstration(prompts, role, scene(transcripts, **changes), random.Random(0), habits)[1]


def test_two_ways_of_working_a_sum_out(made):
    task = scene(made[1]).task
    assert made[1].left(task) == "7-9=-2+3=1-8=-7"
    assert made[1].pairs(task) == "7-9=-2 3-8=-5 -2-5=-7"


def test_careful_demonstrators_are_right_and_read_so_by_the_workflows(made):
    assert reply(made, "aggregator") == "7-9=-2+3=1-8=-7 \\boxed{2}"
    claim = Voting(prompts="tiny_workflows").claim("aggregator", reply(made, "aggregator"), False)
    assert claim.value == "2"
    report = reply(made, "evaluator")
    assert report == "7-9=-2+3=1-8=-7?-6 Verdict: wrong"
    assert EvaluatorOptimizer(prompts="tiny_workflows").claim("evaluator", report, False).value == "wrong"
    for role in ("voter", "generator", "solver", "refine", "revise", "synthesizer", "worker"):
        assert last_boxed(reply(made, role)) == "-7", role
    workers = OrchestratorWorkers(prompts="tiny_workflows")
    assert workers.claim("worker", reply(made, "worker"), False).value == "-7"
    assert 1 <= len(parse_strategies(reply(made, "orchestrator"))) <= 3


def test_stubborn_ones_repeat_and_hasty_ones_leave_the_working_out(made):
    assert reply(made, "refine", stubborn=1.0) == "\\boxed{-6}"
    assert reply(made, "aggregator", careful=0.0, stubborn=1.0) == "\\boxed{1}"
    assert reply(made, "evaluator", careful=0.0) == "Verdict: wrong"
    assert reply(made, "thinker", careful=0.0) == "7-9=-2"


def test_prompts_of_the_demonstrations_are_those_that_the_workflow_sends(made):
    _, transcripts, prompts = made
    asked = transcripts.messages(prompts, "refine", scene(transcripts))
    assert [one["role"] for one in asked] == ["user", "assistant", "user"]
    assert asked[-1]["content"] == "Refine Verdict: wrong"
    aggregator = transcripts.messages(prompts, "aggregator", scene(transcripts))[0]["content"]
    assert aggregator.startswith("Choose 7-9+3-8\n### Candidate 1\n\\boxed{-6}\n\n### Candidate 2\n")
    assert transcripts.messages(prompts, "worker", scene(transcripts), 1)[0]["content"] == "Work pairs: 7-9+3-8"


def test_a_widened_model_computes_the_same(made, monkeypatch):
    import torch

    script = made[0]
    monkeypatch.setattr(script, "NOISE", 0.0)
    small = script.WorkflowSpeaker(script.Scale(width=64, learning_rate=1.0, stop_answer=1, stop_totals=1, max_steps=1))
    weights = {name: script.wide(name, w, 2) for name, w in small.model.state_dict().items() if "embed" not in name}
    wide = script.make_model(small.tokenizer, 128)
    with torch.no_grad():
        wide.load_state_dict({k: v for k, v in weights.items() if k != "lm_head.weight"}, strict=False)
        wide.get_input_embeddings().weight.copy_(small.model.get_input_embeddings().weight.repeat(1, 2))
        ids = torch.tensor([small.tokenizer("Vote 7-9+3-8")["input_ids"]])
        assert torch.allclose(small.model(ids).logits, wide(ids).logits, atol=1e-5)
