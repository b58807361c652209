"""What a workflow is: an async function in which roles reply to messages, and which can be replayed.

    @dataclass(frozen=True, kw_only=True)
    class Debate(Workflow):
        roles = ("debater", "judge")

        async def run(self, task: Task, team: Team) -> Outcome:
            cases = await asyncio.gather(*[agent.reply(opening(task)) for agent in team.copies("debater", 2)])
            ruling = await team["judge"].reply(ruling_prompt(task, cases))
            return Outcome(answer=ruling.text)

Rules of replay: random numbers come from `team.rng`; whatever else the workflow awaits goes through `team.effect`; it
reads no clock and keeps nothing between episodes. `rolecall.testing.check_workflow` finds the places that break them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from rolecall.errors import WorkflowError, nearest
from rolecall.records import Claim, Message, Messages, Outcome, Task, Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What other roles may see of a turn; `text` is None when a truncated reasoning left nothing visible.

    >>> Reply(text="7", claim=None, turn_id="t/solver:0", truncated=False).absent
    False
    """

    text: str | None
    claim: Claim | None
    turn_id: str
    truncated: bool

    @property
    def absent(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent(Reply):
    """The reply of an agent that a counterfactual has taken out of the team: it has no text, no claim and no turn."""

    text: str | None = None
    claim: Claim | None = None
    turn_id: str = ""
    truncated: bool = False

    @property
    def absent(self) -> bool:
        return True


class Session(Protocol):
    """Whoever runs the episode behind a team: `rolecall.rollout` implements it."""

    @property
    def rng(self) -> random.Random: ...

    async def call(self, role: str, copy: int, messages: Messages, about: str | None) -> Reply: ...

    async def effect(self, name: str, fn: Callable[[], Any], deadline_s: float | None) -> Any: ...

    def note_absence(self) -> None:
        """A call was left out: effects recorded from here on were made in another world."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """A role, and which copy of it, bound to a policy inside one episode."""

    role: str
    copy: int
    team: Team

    async def reply(self, messages: Messages, about: Reply | str | None = None) -> Reply:
        """One engine call; `about` is the turn that this one judges, repairs or chooses from.

        Raises `CallError` (a deadline, a prompt that is too long); a workflow may catch it, and a replay raises it
        again at the same call.
        """
        if not isinstance(about, Reply | str | None):
            raise WorkflowError(f"{self.role}: about is {about!r:.80}; wanted a reply, or the id of its turn")
        if self.team.lacks(self.role, self.copy):
            self.team.session.note_absence()
            return Absent()
        turn_id = about.turn_id or None if isinstance(about, Reply) else about
        return await self.team.session.call(self.role, self.copy, messages, turn_id)

    def conversation(self, *opening: Message) -> Conversation:
        """This agent's own history, for a workflow whose roles remember; it starts with `opening`."""
        return Conversation(self, opening)


class Conversation:
    """Messages so far between the workflow and one agent: `say` sends all of them and keeps the visible reply."""

    def __init__(self, agent: Agent, opening: Sequence[Message]) -> None:
        self.agent = agent
        self.messages: list[Message] = list(opening)

    async def say(self, text: str, about: Reply | str | None = None) -> Reply:
        self.messages.append({"role": "user", "content": text})
        reply = await self.agent.reply(tuple(self.messages), about=about)
        if not reply.absent:
            self.messages.append({"role": "assistant", "content": reply.text or ""})
        return reply


@dataclass(frozen=True, kw_only=True, slots=True)
class Team:
    """The agents of one episode: `team["solver"]`, or `team["voter", 2]` for a copy."""

    roles: tuple[str, ...]
    session: Session
    absent: frozenset[tuple[str, int | None]] = frozenset()

    def __getitem__(self, name: str | tuple[str, int]) -> Agent:
        role, copy = (name, 0) if isinstance(name, str) else name
        if role not in self.roles:
            raise WorkflowError(f"the team has no role {role!r}{nearest(role, self.roles)}")
        if copy < 0:
            raise WorkflowError(f"copy {copy} of {role!r}: copies are numbered from 0")
        return Agent(role=role, copy=copy, team=self)

    def copies(self, role: str, num_copies: int) -> tuple[Agent, ...]:
        """Copies 0 to `num_copies - 1` of a role, to be asked side by side."""
        return tuple(self[role, copy] for copy in range(num_copies))

    @property
    def rng(self) -> random.Random:
        """Random numbers that depend on the run, the task and the episode alone, so that a replay draws them again."""
        return self.session.rng

    async def effect(
        self, name: str, fn: Callable[[], Any] | Callable[[], Awaitable[Any]], *, deadline_s: float | None = None
    ) -> Any:
        """Await `fn()` once and record its value under `name`; a replay gets the recorded value.

        A plain function runs in a thread, so that it cannot block the other episodes. Raises `EffectError` when `fn`
        raises or its deadline passes. Two effects of one name cannot run at once: name copies apart.
        """
        return await self.session.effect(name, fn, deadline_s)

    def without(self, role: str, copy: int | None = None) -> Team:
        """This team with one copy of a role (None: all of them) taken out: calls to it return `Absent`."""
        if role not in self.roles:
            raise WorkflowError(f"the team has no role {role!r} to leave out{nearest(role, self.roles)}")
        return replace(self, absent=self.absent | {(role, copy)})

    def lacks(self, role: str, copy: int) -> bool:
        return bool(self.absent) and ((role, copy) in self.absent or (role, None) in self.absent)


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """The program in which roles work on a task. A subclass is a frozen dataclass; its fields are its knobs."""

    roles: ClassVar[tuple[str, ...]] = ()

    async def run(self, task: Task, team: Team) -> Outcome:
        raise NotImplementedError(f"{type(self).__name__} has no method `async def run(self, task, team) -> Outcome`")

    def claim(self, role: str, text: str | None, truncated: bool) -> Claim | None:
        """What the visible `text` of a turn of `role` asserts in checkable form; pure. None: nothing to check."""
        return None

    def in_form(self, role: str, text: str) -> bool | None:
        """Whether `text` is in the form that `role` is asked for, such as an answer in a box; pure. None: the role has
        no form of its own. What `claim` can read is in form; a role without claims may say here what is."""
        claim = self.claim(role, text, False)
        return None if claim is None else claim.value not in (None, Verdict.UNPARSED)

    def max_calls(self) -> Mapping[str, int]:
        """The most calls of each role in one episode, all copies together; a role that is absent may call any number
        of times. For estimates alone (`--dry-run`)."""
        return {}
