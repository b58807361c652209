"""A thinker writes the reasoning, a solver answers from the problem and it (the two roles of CCPO, arXiv 2603.21563).

Without the thinker the solver answers from the problem alone: what a counterfactual is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rolecall.records import Claim, ClaimKind, Outcome, Task
from rolecall.workflows.base import Team, Workflow
from rolecall.workflows.parse import check_answer_format, extract_answer
from rolecall.workflows.prompting import PromptSet, load_prompts
from rolecall.workflows.voting import answer_of

HOLES = {
    "thinker": frozenset({"task"}),
    "solver": frozenset({"task"}),
    "solver_with_reasoning": frozenset({"task", "reasoning"}),
}


@dataclass(frozen=True, kw_only=True)
class ThinkSolve(Workflow):
    """The thinker's text is reasoning and claims nothing by itself."""

    roles: ClassVar[tuple[str, ...]] = ("thinker", "solver")

    prompts: str = "default"
    answer_format: str = "boxed"

    def __post_init__(self) -> None:
        check_answer_format(self.answer_format)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim | None:
        if role == "thinker":
            return None
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def max_calls(self) -> Mapping[str, int]:
        return {"thinker": 1, "solver": 1}

    async def run(self, task: Task, team: Team) -> Outcome:
        prompts = self.prompt_set()
        thought = await team["thinker"].reply(prompts["thinker"].messages(task=task.question))
        if thought.text is None:
            solution = await team["solver"].reply(prompts["solver"].messages(task=task.question))
        else:
            messages = prompts["solver_with_reasoning"].messages(task=task.question, reasoning=thought.text)
            solution = await team["solver"].reply(messages, about=thought)
        return Outcome(answer=answer_of(solution), figures={"with_reasoning": float(thought.text is not None)})
