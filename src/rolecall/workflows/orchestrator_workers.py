"""An orchestrator proposes strategies, workers follow one each side by side, a synthesizer writes the answer (the
study's "propose" mode, arXiv 2605.24202). More strategies than allowed make the episode invalid, and so does none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rolecall.records import Claim, ClaimKind, Outcome, Task
from rolecall.workflows.base import Team, Workflow
from rolecall.workflows.parse import check_answer_format, extract_answer
from rolecall.workflows.prompting import PromptSet, load_prompts
from rolecall.workflows.voting import answer_of, check_copies, listed

HOLES = {
    "orchestrator": frozenset({"task", "max_strategies"}),
    "worker": frozenset({"task", "strategy"}),
    "synthesizer": frozenset({"task", "candidates"}),
}
_STRATEGY = re.compile(r"^[ \t*#>-]*strategy[ \t]*(\d+)[ \t]*[:.)][ \t*]*(.*)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class OrchestratorWorkers(Workflow):
    """At most `max_strategies` lines "STRATEGY k: ..."; each worker solves the whole problem by its strategy."""

    roles: ClassVar[tuple[str, ...]] = ("orchestrator", "worker", "synthesizer")

    max_strategies: int = 3
    prompts: str = "default"
    answer_format: str = "boxed"

    def __post_init__(self) -> None:
        check_copies("max_strategies", self.max_strategies, least=1)
        check_answer_format(self.answer_format)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim | None:
        if role == "orchestrator":
            return None
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def in_form(self, role: str, text: str) -> bool | None:
        """The orchestrator's form is a plan; the others answer."""
        if role == "orchestrator":
            return bool(parse_strategies(text))
        return super().in_form(role, text)

    def max_calls(self) -> Mapping[str, int]:
        return {"orchestrator": 1, "worker": self.max_strategies, "synthesizer": 1}

    async def run(self, task: Task, team: Team) -> Outcome:
        prompts = self.prompt_set()
        plan = await team["orchestrator"].reply(
            prompts["orchestrator"].messages(task=task.question, max_strategies=str(self.max_strategies))
        )
        strategies = ["Solve it in the way that you find best."] if plan.absent else parse_strategies(plan.text)
        figures = {"strategies": float(len(strategies))}
        if not 1 <= len(strategies) <= self.max_strategies:
            reason = f"the orchestrator gave {len(strategies)} strategies; wanted 1 to {self.max_strategies}"
            return Outcome(answer=None, figures=figures, valid=False, reason=reason)
        about = None if plan.absent else plan
        workers = team.copies("worker", len(strategies))
        replies = await asyncio.gather(
            *[
                worker.reply(prompts["worker"].messages(task=task.question, strategy=strategy), about=about)
                for worker, strategy in zip(workers, strategies, strict=True)
            ]
        )
        solutions = [reply for reply in replies if not reply.absent]
        if not solutions:
            return Outcome(answer=None, figures=figures)
        figures["num_different"] = float(len({answer_of(reply) for reply in solutions}))
        final = await team["synthesizer"].reply(
            prompts["synthesizer"].messages(task=task.question, candidates=listed(solutions)), about=solutions[0]
        )
        return Outcome(answer=answer_of(solutions[0] if final.absent else final), figures=figures)


def parse_strategies(text: str | None) -> list[str]:
    """The text of each line "STRATEGY k: ...", with the lines that follow it, in the order of the text; one without
    any text is none.

    >>> parse_strategies("STRATEGY 1: count\\nSTRATEGY 2: guess,\\nthen check")
    ['count', 'guess,\\nthen check']
    """
    said = text or ""
    found = list(_STRATEGY.finditer(said))
    ends = [*[one.start() for one in found[1:]], len(said)]
    texts = [f"{one.group(2)}{said[one.end() : end]}".strip() for one, end in zip(found, ends, strict=False)]
    return [one for one in texts if one]
