"""Play a workflow without a model: a function speaks for every role. `python examples/01_play_a_workflow.py`

With a model and yourself as the verifier:  rolecall play recipes/demo.toml --role verifier
"""

from __future__ import annotations

from rolecall.engines.base import Request
from rolecall.engines.scripted import ScriptedEngine
from rolecall.grading import GraderPool, grade_episodes
from rolecall.records import Key, Sampling, Task
from rolecall.rewards import AgentSpecific
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import run_episode
from rolecall.rollout.transcript import RoleSettings, Transcript, edit
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect


def reply(request: Request) -> str:
    """A solver that slips, a verifier that sees it, a corrector that repairs it; then the verifier is content."""
    role, _, call = request.key
    if role == "verifier":
        return "Verdict: wrong" if call == 0 else "Verdict: correct"
    return r"It is \boxed{5}." if role == "solver" else r"It is \boxed{6}."


def main() -> None:
    workflow = SolveVerifyCorrect(max_rounds=2)
    settings = RoleSettings(policy="any", sampling=Sampling(max_prompt_tokens=10**6), renderer=PlainRenderer())
    roles = dict.fromkeys(workflow.roles, settings)
    task = Task(id="sum", question="What is 2 + 4?", answer="6")
    finished = run_episode(workflow, Transcript(task=task), roles, ScriptedEngine(reply))
    with GraderPool() as graders:
        graded = grade_episodes([finished.episode], graders)[0]
    rewards = AgentSpecific()(graded)
    for turn in graded.episode.turns:
        claim = turn.claim.value if turn.claim else None
        print(f"{turn.key}: {turn.text!r} claims {claim!r}, reward {rewards[turn.id].total}")
    print(f"{graded.episode.outcome_class}: answer {graded.episode.answer}, team {graded.team.status}")

    # What if the first verdict had been "correct"? What came before it is replayed, and costs no call.
    changed = edit(finished, Key("verifier", 0, 0), "Verdict: correct", workflow.claim)
    other = run_episode(workflow, changed, roles, ScriptedEngine(reply), on_mismatch="resample")
    print(f"with another verdict: answer {other.episode.answer}, {other.num_sampled} calls made")


if __name__ == "__main__":
    main()
