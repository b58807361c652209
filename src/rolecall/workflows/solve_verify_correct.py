"""A Solver answers, a Verifier judges the solution, a Corrector repairs it: in two forms.

`mode="unroll"` is the short one that is trained: solver, verifier, corrector, verifier, corrector; it ends when the
verifier says "correct". `mode="system"` is the long one that reasons: a candidate is accepted after `passes` verdicts
"correct" in a row; after `max_errors` failures in a row, or `max_iterations`, the candidate that was judged correct
most often is the answer, the earliest one of equals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rolecall.errors import ConfigError
from rolecall.records import Claim, ClaimKind, Message, Outcome, Task, Verdict
from rolecall.workflows.base import Reply, Team, Workflow
from rolecall.workflows.parse import check_answer_format, check_marker, extract_answer, parse_verdict
from rolecall.workflows.prompting import PromptSet, load_prompts

HOLES = {
    "solver": frozenset({"task"}),
    "verifier": frozenset({"task", "solution"}),
    "corrector": frozenset({"task", "solution", "report"}),
}
NO_REPORT = "(The reviewer left no readable report.)"


@dataclass(frozen=True, kw_only=True)
class SolveVerifyCorrect(Workflow):
    """Knobs: `max_rounds` of verifying and correcting for the unroll; the other caps are for the system."""

    roles: ClassVar[tuple[str, ...]] = ("solver", "verifier", "corrector")

    mode: Literal["unroll", "system"] = "unroll"
    max_rounds: int = 2
    passes: int = 4
    max_errors: int = 10
    max_iterations: int = 10
    max_solves: int = 3
    prompts: str = "default"
    answer_format: str = "boxed"
    verdict_marker: str = "Verdict:"

    def __post_init__(self) -> None:
        if self.mode not in ("unroll", "system"):
            raise ConfigError(f"mode {self.mode!r} is not one of 'unroll', 'system'")
        for name in ("max_rounds", "passes", "max_errors", "max_iterations", "max_solves"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; wanted 1 or more")
        check_answer_format(self.answer_format)
        check_marker(self.verdict_marker)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        if role == "verifier":
            verdict = parse_verdict(text, truncated, self.verdict_marker)
            return Claim(kind=ClaimKind.VERDICT, value=None if verdict is Verdict.UNPARSED else verdict.value)
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def max_calls(self) -> Mapping[str, int]:
        if self.mode == "unroll":
            return {"solver": 1, "verifier": self.max_rounds, "corrector": self.max_rounds}
        return {"solver": self.max_solves, "verifier": self.max_iterations + 1, "corrector": self.max_iterations}

    async def run(self, task: Task, team: Team) -> Outcome:
        return await (self._unroll(task, team) if self.mode == "unroll" else self._system(task, team))

    async def _unroll(self, task: Task, team: Team) -> Outcome:
        course = Course()
        solution = await team["solver"].reply(self._solve_prompt(task))
        for _ in range(self.max_rounds):
            if solution.text is None:
                break
            course.begin(solution)
            report = await self._verify(task, team, solution)
            if report.absent:
                break
            if course.judge(report):
                return course.outcome(solution, accepted=True)
            course.corrections += 1
            solution = await self._correct(task, team, solution, report)
        if solution.text is not None:
            course.begin(solution)
        return course.outcome(course.candidates[-1] if course.candidates else None, accepted=False)

    async def _system(self, task: Task, team: Team) -> Outcome:
        course = Course()
        for _ in range(self.max_solves):
            solution = await team["solver"].reply(self._solve_prompt(task))
            if not solution.truncated and solution.text is not None:
                break
        else:
            return course.outcome(None, accepted=False)
        course.begin(solution)
        report = await self._verify(task, team, solution)
        if report.absent:
            return course.outcome(solution, accepted=False)
        passed = course.judge(report)
        streak, errors = int(passed), 0
        for _ in range(self.max_iterations):
            if streak >= self.passes:
                return course.outcome(solution, accepted=True)
            if errors >= self.max_errors:
                break
            if not passed:
                streak, errors = 0, errors + 1
                course.corrections += 1
                repaired = await self._correct(task, team, solution, report)
                if repaired.truncated or repaired.text is None:
                    break
                solution = repaired
                course.begin(solution)
            report = await self._verify(task, team, solution)
            passed = course.judge(report)
            streak, errors = (streak + 1, 0) if passed else (0, errors)
        if streak >= self.passes:
            return course.outcome(solution, accepted=True)
        return course.outcome(course.most_often_passed(), accepted=False)

    def _solve_prompt(self, task: Task) -> list[Message]:
        return self.prompt_set()["solver"].messages(task=task.question)

    async def _verify(self, task: Task, team: Team, solution: Reply) -> Reply:
        prompt = self.prompt_set()["verifier"]
        messages = prompt.messages(task=task.question, solution=solution.text or "")
        return await team["verifier"].reply(messages, about=solution)

    async def _correct(self, task: Task, team: Team, solution: Reply, report: Reply) -> Reply:
        prompt = self.prompt_set()["corrector"]
        messages = prompt.messages(
            task=task.question, solution=solution.text or "", report=report.text if report.text else NO_REPORT
        )
        reply = await team["corrector"].reply(messages, about=report)
        return solution if reply.absent else reply


@dataclass(kw_only=True, slots=True)
class Course:
    """What happened in one episode so far: the candidates in order, and how often each was judged correct."""

    candidates: list[Reply] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    verifications: int = 0
    corrections: int = 0
    unparsed: int = 0

    def begin(self, solution: Reply) -> None:
        """A new candidate is on the table (or still the same one)."""
        if not self.candidates or self.candidates[-1] is not solution:
            self.candidates.append(solution)
            self.passes.append(0)

    def judge(self, report: Reply) -> bool:
        """Count a verdict on the last candidate; an unparsed one does not pass."""
        self.verifications += 1
        value = report.claim.value if report.claim is not None else None
        self.unparsed += value is None
        passed = value == Verdict.CORRECT
        self.passes[-1] += passed
        return passed

    def most_often_passed(self) -> Reply:
        return self.candidates[max(range(len(self.passes)), key=lambda i: (self.passes[i], -i))]

    def outcome(self, chosen: Reply | None, accepted: bool) -> Outcome:
        figures = {
            "accepted": float(accepted),
            "candidates": float(len(self.candidates)),
            "verifications": float(self.verifications),
            "corrections": float(self.corrections),
            "unparsed": float(self.unparsed),
            "chosen": float(self.candidates.index(chosen)) if chosen is not None else -1.0,
        }
        claim = chosen.claim if chosen is not None else None
        return Outcome(answer=claim.value if claim is not None else None, figures=figures)
