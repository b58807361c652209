"""One Solver by itself: the control that a team is compared with. It uses the team's own solver prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolecall.records import Claim, ClaimKind, Outcome, Task
from rolecall.workflows.base import Team, Workflow
from rolecall.workflows.parse import check_answer_format, extract_answer
from rolecall.workflows.prompting import PromptSet, load_prompts

HOLES = {"solver": frozenset({"task"})}


@dataclass(frozen=True, kw_only=True)
class SingleAgent(Workflow):
    """Ask the solver once."""

    roles: ClassVar[tuple[str, ...]] = ("solver",)

    prompts: str = "default"
    answer_format: str = "boxed"

    def __post_init__(self) -> None:
        check_answer_format(self.answer_format)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    async def run(self, task: Task, team: Team) -> Outcome:
        solution = await team["solver"].reply(self.prompt_set()["solver"].messages(task=task.question))
        return Outcome(answer=solution.claim.value if solution.claim is not None else None)
