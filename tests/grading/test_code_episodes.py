"""Code tasks through whole workflows with scripted replies: graded by their tests, tools recorded and replayed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer, ScriptedEngine
from rolecall.grading import GraderPool, grade_episodes
from rolecall.records import OutcomeClass, Sampling, Task
from rolecall.rewards import REWARDS
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import Finished, run_episode
from rolecall.rollout.transcript import RoleSettings, Transcript
from rolecall.tasks import HumanEval
from rolecall.testing import check_workflow
from rolecall.workflows import Workflow
from rolecall.workflows.python_tool import PythonTool
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

TASK = next(iter(HumanEval().tasks()))
CODE = TASK.metadata["code"]
RIGHT = f"This compares all pairs.\n```python\n{CODE['prefix']}{CODE['solution']}```\nDone."
WRONG = "```python\ndef has_close_elements(numbers, threshold):\n    return True\n```"
PASS, FAIL = "Verdict: correct", "It always says True. Verdict: wrong"


def play(workflow: Workflow, reply: Callable[[Request], Answer], task: Task = TASK) -> Finished:
    settings = RoleSettings(policy="p", sampling=Sampling(max_tokens=8192), renderer=PlainRenderer())
    roles = dict.fromkeys(workflow.roles, settings)
    return run_episode(workflow, Transcript(task=task), roles, ScriptedEngine(reply))


def team(request: Request) -> Answer:
    return {"solver": WRONG, "verifier": FAIL if request.key.call == 0 else PASS, "corrector": RIGHT}[request.key.role]


def test_solver_verifier_and_corrector_repair_a_program():
    workflow = SolveVerifyCorrect(prompts="code", answer_format="code")
    episode = play(workflow, team).episode
    assert [str(turn.key) for turn in episode.turns] == ["solver:0", "verifier:0", "corrector:0", "verifier:1"]
    with GraderPool() as pool:
        graded = grade_episodes([episode], pool)[0]
    assert graded.team.right
    by_role = {turn.role: graded.answers[turn.id].right for turn in episode.turns if turn.id in graded.answers}
    assert by_role == {"solver": False, "corrector": True}
    rewards = REWARDS["agent_specific"]()(graded)
    by_key = {str(turn.key): rewards[turn.id].total for turn in episode.turns}
    assert by_key["solver:0"] < by_key["corrector:0"]


def test_a_conforming_workflow_of_code():
    check_workflow(SolveVerifyCorrect(prompts="code", answer_format="code"), [TASK], team)


def coder(request: Request) -> Answer:
    if request.key.call == 0:
        return "Let me see.\n```run\nprint(sum(range(10)))\n```"
    if request.key.call == 1:
        return "And now:\n```run\n1 / 0\n```"
    return RIGHT


def test_a_role_that_runs_python_sees_what_it_printed_and_why_it_failed():
    finished = play(PythonTool(), coder)
    episode = finished.episode
    assert episode.outcome_class is OutcomeClass.OK
    asked = [turn.messages[-1]["content"] for turn in episode.turns]
    assert asked[1] == "The script printed:\n```\n45\n```"
    assert "It did not end well: exit code 1: ZeroDivisionError: division by zero" in asked[2]
    assert episode.outcome is not None
    assert dict(episode.outcome.figures) == {"runs": 2.0, "failed_runs": 1.0}
    with GraderPool() as pool:
        assert grade_episodes([episode], pool)[0].team.right


def test_runs_end_at_their_limit():
    finished = play(PythonTool(max_runs=1), lambda request: "```run\nprint(1)\n```")
    assert [turn.messages[-1]["content"].endswith("answer now.") for turn in finished.episode.turns] == [False, True]
    assert finished.episode.answer is None


def test_runs_of_python_are_recorded_and_replayed_without_running_again(monkeypatch):
    """`check_workflow` replays the episode from its records: nothing runs a second time then."""
    check_workflow(PythonTool(), [TASK], coder, rounds=1)
    first = play(PythonTool(), coder)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a replay ran the script")

    monkeypatch.setattr("rolecall.workflows.python_tool.run_python", refuse)
    settings = RoleSettings(policy="p", sampling=Sampling(max_tokens=8192), renderer=PlainRenderer())
    again = run_episode(PythonTool(), first.transcript, {"coder": settings}, ScriptedEngine(coder))
    assert again.episode.answer == first.episode.answer


def test_a_script_that_hangs_does_not_stop_the_episode():
    replies = ["```run\nwhile True:\n    pass\n```", RIGHT]
    finished = play(PythonTool(cpu_s=0.3), lambda request: replies[request.key.call])
    assert "more cpu time than it may use" in finished.episode.turns[1].messages[-1]["content"]


@pytest.mark.parametrize("text", [None, "", "no program"])
def test_no_program_is_no_answer(text):
    workflow = SolveVerifyCorrect(prompts="code", answer_format="code")
    assert workflow.claim("solver", text, False).value is None
