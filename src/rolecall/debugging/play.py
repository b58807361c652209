"""`rolecall play`: a person types the replies of a role; the recipe's policies play the others.

Between two replies of the person the episode stands at its frontier; it is replayed from its records up to there, at no
cost, so no event loop runs while somebody thinks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rolecall.assemble import make_tasks
from rolecall.config import RunConfig
from rolecall.debugging.show import Page, claim_words, show_episode
from rolecall.debugging.stage import Stage, open_stage
from rolecall.engines.base import Reply, Request
from rolecall.engines.scripted import END_ID
from rolecall.errors import EngineError, RolecallError, UsageError, nearest
from rolecall.records import Completion, GradedEpisode, Key, Sampling, Stop, Task
from rolecall.rollout.loop import LoopRunner
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import Frontier, run_to_frontier
from rolecall.rollout.transcript import Finished, Limits, RoleSettings, Transcript
from rolecall.tasks.base import TaskSplits

PERSON = "person"
HELP = """Type the reply of the role; an empty line ends it, and so does the end of the input.
:help   these words
:prompt shows the messages again
:empty  an empty reply
:quit   ends the play; a line that should begin with a colon begins with two"""


class Quit(Exception):
    """The person has had enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """Somebody who reads a page and types; `read_line` gives a line without its end, and raises `EOFError`."""

    page: Page
    read_line: Callable[[], str]

    def ask(self, request: Request) -> str:
        """The person's reply to a call; `Quit` on `:quit`, or when the input is over."""
        self.page.heading(f"your turn as {request.key}")
        self.page.messages(request.messages)
        self.page.line("[your reply; an empty line ends it, :help helps]", "dim")
        lines: list[str] = []
        while True:
            try:
                line = self.read_line()
            except EOFError:
                if lines:
                    return "\n".join(lines)
                raise Quit from None
            except KeyboardInterrupt:
                raise Quit from None
            command = line.strip()
            if command == ":quit":
                raise Quit
            if command == ":help":
                self.page.line(HELP)
            elif command == ":prompt":
                self.page.messages(request.messages)
            elif command == ":empty":
                return ""
            elif not command and lines:
                return "\n".join(lines)
            elif command.startswith(":") and not command.startswith("::"):
                self.page.line(f"no command {command.split()[0]!r}; :help lists them; :: begins a line with a colon")
            elif command:
                lines.append(line.replace("::", ":", 1) if command.startswith("::") else line)


@dataclass(frozen=True, kw_only=True, slots=True)
class Game:
    """What is played: the tasks, which roles the person has, and who writes and reads."""

    roles: tuple[str, ...]
    tasks: Sequence[Task]
    person: Person
    seed: int = 0
    settings: Mapping[str, RoleSettings] = field(default_factory=dict)

    @property
    def page(self) -> Page:
        return self.person.page


def play(
    config: RunConfig,
    checkpoint: Path | None,
    *,
    roles: Sequence[str],
    person: Person,
    task: str | None = None,
    split: str | None = None,
    episodes: int = 1,
) -> list[GradedEpisode]:
    """Play `episodes` episodes and show each; those that were played to their end are returned.

    `task`: the id of one task of any split; else the first tasks of `split` (validation, where there is one).
    """
    with open_stage(config, checkpoint, lambda words: person.page.line(words, "dim")) as stage:
        for role in roles:
            if role not in stage.plan.roles:
                raise UsageError(
                    f"--role {role!r}: workflow {config.workflow.name!r} has no such role"
                    f"{nearest(role, stage.plan.roles)}"
                )
        tasks = choose_tasks(make_tasks(config), task, split, episodes)
        settings = _settings(stage, roles)
        game = Game(roles=tuple(roles), tasks=tasks, person=person, seed=config.seed, settings=settings)
        return _play(game, stage)


def choose_tasks(splits: TaskSplits, task: str | None, split: str | None, number: int) -> list[Task]:
    """The tasks to be played: one of them `number` times, or the first `number` of a split."""
    by_name = {one.name: one for one in splits}
    if split is not None and split not in by_name:
        raise UsageError(f"--split is {split!r}{nearest(split, by_name)}")
    if task is not None:
        among = [one for name in ([split] if split else list(by_name)) for one in by_name[name]]
        found = next((one for one in among if one.id == task), None)
        if found is None:
            few = ", ".join(one.id for one in among[:3])
            raise UsageError(f"no task of {len(among)} has the id {task!r}; they are such as {few}")
        return [found] * number
    chosen = by_name[split] if split else splits.validation if splits.validation.tasks else splits.train
    if len(chosen) < number:
        raise UsageError(f"the {chosen.name} split has {len(chosen)} tasks; wanted {number} for --episodes {number}")
    return list(chosen.tasks[:number])


def _settings(stage: Stage, roles: Sequence[str]) -> dict[str, RoleSettings]:
    """The recipe's settings, but for the person: bytes for tokens, so that any text goes, and no limit."""
    person = RoleSettings(
        policy=PERSON, sampling=Sampling(max_tokens=10**9, max_prompt_tokens=10**9), renderer=PlainRenderer()
    )
    mine = dict.fromkeys(roles, person)
    if set(mine) == set(stage.plan.roles):
        return mine
    return stage.roles(stage.plan.sampling) | mine


def _play(game: Game, stage: Stage) -> list[GradedEpisode]:
    played: list[GradedEpisode] = []
    started: dict[str, int] = {}
    try:
        for number, task in enumerate(game.tasks, 1):
            index = started[task.id] = started.get(task.id, -1) + 1
            game.page.heading(f"episode {number} of {len(game.tasks)}: task {task.id}")
            game.page.block(task.question)
            transcript = Transcript(task=task, index=index, run_seed=game.seed)
            graded = stage.grade(_to_the_end(game, stage, transcript).episode)
            game.page.heading(f"episode {number} of {len(game.tasks)}, from its first turn")
            show_episode(game.page, graded, stage.rewards(graded), dict.fromkeys(game.roles, "you"))
            played.append(graded)
    except Quit:
        game.page.line()
        game.page.line(f"ended; {len(played)} of {len(game.tasks)} episodes were played to their end")
    if len(played) > 1:
        right = sum(one.team.right for one in played)
        game.page.line(f"team right in {right} of {len(played)} episodes")
    return played


def _to_the_end(game: Game, stage: Stage, transcript: Transcript) -> Finished:
    workflow = stage.plan.workflow
    with LoopRunner() as loop:
        while True:
            place = run_to_frontier(workflow, transcript, game.settings, limits=Limits(deadline_s=None))
            if isinstance(place, Finished):
                return place
            models = [place.request(key) for key in place.keys if key.role not in game.roles]
            replies = loop.run(stage.engine.generate(models))
            answers: dict[Key, Reply | RolecallError] = {
                request.key: reply for request, reply in zip(models, replies, strict=True)
            }
            for key in place.keys:
                if key.role in game.roles:
                    answers[key] = typed(game.person.ask(place.request(key)))
            transcript = _advance(game, place, answers)


def _advance(game: Game, place: Frontier, answers: Mapping[Key, Reply | RolecallError]) -> Transcript:
    """The transcript with the replies; says what was read out of each, and which could not be given."""
    transcript = place.advance(*((key, reply, 0) for key, reply in answers.items()))
    for key in place.keys:
        turn = transcript.call(key).turn
        reply = answers[key]
        if isinstance(reply, EngineError):
            game.page.line(f"{key} got no reply: {reply}")
        elif turn is not None and key.role in game.roles:
            game.page.line(f"read as: {claim_words(turn.claim)}")
        else:
            game.page.line(f"{key} has replied", "dim")
    return transcript


def typed(text: str) -> Completion:
    """A person's words as a completion of a policy that is not trained."""
    ids = (*text.encode(), END_ID)
    return Completion(token_ids=ids, logprobs=(0.0,) * len(ids), versions=(0,) * len(ids), stop=Stop.EOS)
