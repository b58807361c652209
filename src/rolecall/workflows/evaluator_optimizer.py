"""A generator answers, an evaluator judges and criticises, the generator refines with its own history (arXiv
2605.24202): until the evaluator accepts, or `max_iterations` answers were given. The last answer counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rolecall.records import Claim, ClaimKind, Message, Outcome, Task, Verdict
from rolecall.workflows.base import Team, Workflow
from rolecall.workflows.parse import check_answer_format, check_marker, extract_answer, parse_verdict
from rolecall.workflows.prompting import PromptSet, load_prompts
from rolecall.workflows.voting import answer_of, check_copies

HOLES = {
    "generator": frozenset({"task"}),
    "refine": frozenset({"critique"}),
    "evaluator": frozenset({"task", "solution"}),
}
NO_TEXT = "(There is no readable solution.)"
NO_CRITIQUE = "(The evaluator left no readable critique.)"


@dataclass(frozen=True, kw_only=True)
class EvaluatorOptimizer(Workflow):
    """An evaluator whose verdict cannot be read has not accepted. The study has 3 iterations on math and 2 on code."""

    roles: ClassVar[tuple[str, ...]] = ("generator", "evaluator")

    max_iterations: int = 3
    prompts: str = "default"
    answer_format: str = "boxed"
    verdict_marker: str = "Verdict:"

    def __post_init__(self) -> None:
        check_copies("max_iterations", self.max_iterations, least=1)
        check_answer_format(self.answer_format)
        check_marker(self.verdict_marker)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        if role == "evaluator":
            verdict = parse_verdict(text, truncated, self.verdict_marker)
            return Claim(kind=ClaimKind.VERDICT, value=None if verdict is Verdict.UNPARSED else verdict.value)
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def max_calls(self) -> Mapping[str, int]:
        return {"generator": self.max_iterations, "evaluator": self.max_iterations}

    async def run(self, task: Task, team: Team) -> Outcome:
        prompts = self.prompt_set()
        history: list[Message] = prompts["generator"].messages(task=task.question)
        solution = await team["generator"].reply(tuple(history))
        unparsed = verdicts = 0
        accepted = False
        for iteration in range(1, self.max_iterations + 1):
            messages = prompts["evaluator"].messages(task=task.question, solution=solution.text or NO_TEXT)
            report = await team["evaluator"].reply(messages, about=solution)
            if report.absent:
                break
            verdicts += 1
            unparsed += answer_of(report) is None
            accepted = answer_of(report) == Verdict.CORRECT
            if accepted or iteration == self.max_iterations:
                break
            history.append({"role": "assistant", "content": solution.text or ""})
            history += prompts["refine"].messages(critique=report.text or NO_CRITIQUE)
            solution = await team["generator"].reply(tuple(history), about=report)
        figures = {
            "iterations": float(verdicts),
            "accepted": float(accepted),
            "unparsed": float(unparsed),
        }
        return Outcome(answer=answer_of(solution), figures=figures)
