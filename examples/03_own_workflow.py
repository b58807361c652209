"""Your own workflow: two proposers side by side, a chooser, no model. `python examples/03_own_workflow.py`

To train it, name it in a recipe and put the folder of this file on the Python path:

    [workflow]
    name = "03_own_workflow:Choose"
    num_proposers = 2
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from rolecall.engines.base import Request
from rolecall.engines.scripted import ScriptedEngine
from rolecall.records import Claim, ClaimKind, Message, Outcome, Sampling, Task
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import run_episode
from rolecall.rollout.transcript import RoleSettings, Transcript
from rolecall.testing import check_workflow
from rolecall.workflows import Team, Workflow


def ask(text: str) -> list[Message]:
    return [{"role": "user", "content": text}]


@dataclass(frozen=True, kw_only=True)
class Choose(Workflow):
    """Copies of a proposer answer side by side; a chooser names the number of the answer that it believes."""

    roles: ClassVar[tuple[str, ...]] = ("proposer", "chooser")

    num_proposers: int = 2

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        kind = ClaimKind.ANSWER if role == "proposer" else ClaimKind.CHOICE
        return Claim(kind=kind, value=text.strip() if text else None)

    async def run(self, task: Task, team: Team) -> Outcome:
        proposers = team.copies("proposer", self.num_proposers)
        answers = await asyncio.gather(*[agent.reply(ask(task.question)) for agent in proposers])
        listed = "\n".join(f"{number}. {answer.text}" for number, answer in enumerate(answers, 1))
        choice = await team["chooser"].reply(ask(f"{task.question}\n{listed}\nWhich number?"))
        digits = "".join(filter(str.isdigit, choice.text or ""))
        index = int(digits) - 1 if digits else 0
        chosen = answers[index] if 0 <= index < len(answers) else answers[0]
        return Outcome(answer=chosen.text, figures={"parsed": float(bool(digits))})


def reply(request: Request) -> str:
    """A stand-in for a model: proposers disagree, the chooser takes the second."""
    return str(5 + request.key.copy) if request.key.role == "proposer" else "2"


def main() -> None:
    task = Task(id="sum", question="What is 2 + 4?", answer="6")
    workflow = Choose()
    check_workflow(workflow, [task])  # replays under shuffled latencies; raises at the first difference
    roles = dict.fromkeys(
        workflow.roles, RoleSettings(policy="any", sampling=Sampling(max_tokens=16), renderer=PlainRenderer())
    )
    transcript = Transcript(task=task, index=0, step=0, attempt=0, run_seed=0)
    episode = run_episode(workflow, transcript, roles, ScriptedEngine(reply)).episode
    for turn in episode.turns:
        print(f"{turn.key}: {turn.text}")
    print(f"{episode.outcome_class}: {episode.answer}")


if __name__ == "__main__":
    main()
