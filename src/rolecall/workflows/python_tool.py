"""A coder that may run Python before it answers: each run is a recorded effect, so that an episode replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rolecall.code_problems import extract_block
from rolecall.errors import ConfigError, EffectError
from rolecall.records import Claim, ClaimKind, Outcome, Task
from rolecall.sandbox.limits import Limits
from rolecall.sandbox.tool import run_python
from rolecall.workflows.base import Team, Workflow
from rolecall.workflows.parse import check_answer_format, extract_answer
from rolecall.workflows.prompting import PromptSet, load_prompts

HOLES = {"coder": frozenset({"task"})}
RUN = "run"
LAST = "You have no more runs: answer now."


@dataclass(frozen=True, kw_only=True)
class PythonTool(Workflow):
    """Up to `max_runs` scripts run in the sandbox, each for `cpu_s` seconds; the reply without one is the answer."""

    roles: ClassVar[tuple[str, ...]] = ("coder",)

    max_runs: int = 3
    cpu_s: float = 4.0
    prompts: str = "python_tool"
    answer_format: str = "code"

    def __post_init__(self) -> None:
        if self.max_runs < 1:
            raise ConfigError(f"max_runs is {self.max_runs}; wanted 1 or more")
        Limits(cpu_s=self.cpu_s)
        check_answer_format(self.answer_format)
        self.prompt_set()

    def prompt_set(self) -> PromptSet:
        return load_prompts(self.prompts, HOLES)

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim:
        return Claim(kind=ClaimKind.ANSWER, value=extract_answer(text, self.answer_format))

    def max_calls(self) -> Mapping[str, int]:
        return {"coder": self.max_runs + 1}

    async def run(self, task: Task, team: Team) -> Outcome:
        *opening, first = self.prompt_set()["coder"].messages(task=task.question)
        talk = team["coder"].conversation(*opening)
        reply = await talk.say(first["content"])
        runs = failures = 0
        while runs < self.max_runs and (script := extract_block(reply.text, RUN)) is not None:
            found = await self._effect(team, f"python:{runs}", script)
            runs += 1
            failures += not found["ok"]
            note = f"\n{LAST}" if runs == self.max_runs else ""
            reply = await talk.say(f"{_told(found)}{note}", about=reply)
        answer = reply.claim.value if reply.claim is not None else None
        return Outcome(answer=answer, figures={"runs": float(runs), "failed_runs": float(failures)})

    async def _effect(self, team: Team, name: str, script: str) -> Mapping[str, object]:
        """The script's output; what the sandbox cannot do is told to the coder, and counts as a failed run."""
        try:
            found: Mapping[str, object] = await team.effect(
                name, partial(run_python, script, limits=Limits(cpu_s=self.cpu_s))
            )
        except EffectError as error:
            return {"ok": False, "output": "", "error": f"the script could not be run: {error}"}
        return found


def _told(found: Mapping[str, object]) -> str:
    error = f"\nIt did not end well: {found['error']}" if found["error"] else ""
    return f"The script printed:\n```\n{str(found['output']).rstrip()}\n```{error}"
