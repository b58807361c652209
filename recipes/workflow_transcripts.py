r"""What an imperfect team writes in each workflow of the study: the demonstrations of `make_workflow_models.py`.

Roles that answer do so from the head (`\boxed{-7}`); those that judge, choose or follow the strategy "left" may work
the sum out before. A `Scene` holds what was said before a role speaks, made up here or said by the model itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tiny_transcripts import Sum, near_miss

from rolecall.records import Message
from rolecall.workflows.base import Reply
from rolecall.workflows.parse import last_boxed
from rolecall.workflows.prompting import PromptSet
from rolecall.workflows.voting import listed

STRATEGIES = ("left", "pairs", "head")
NUM_COPIES = 3
SHARES: Mapping[str, float] = {
    "solver": 0.08,
    "voter": 0.08,
    "generator": 0.08,
    "debater": 0.05,
    "aggregator": 0.15,
    "evaluator": 0.13,
    "refine": 0.07,
    "orchestrator": 0.03,
    "worker": 0.19,
    "synthesizer": 0.06,
    "thinker": 0.03,
    "solver_with_reasoning": 0.03,
    "revise": 0.02,
}
"""Of the examples, by prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """A sum and what was said about it: answers from the head, a report on the first, workers' texts by strategy."""

    task: Sum
    answers: tuple[str, ...]
    report: str
    strategies: tuple[str, ...]
    work: tuple[str, ...]
    reasoning: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
    """How demonstrators work: shares of those who work a sum out, and of those who repeat what they were given."""

    careful: float
    stubborn: float = 0.35
    too_many: float = 0.2  # of plans, with a strategy more than is allowed


def box(value: str) -> str:
    return f"\\boxed{{{value}}}"


def left(task: Sum) -> str:
    """Term by term, each beside the running total: "7-9=-2+3=1-8=-7"."""
    steps = "".join(f"{term}={total}" for term, total in zip(task.terms[1:], task.totals, strict=True))
    return f"{task.terms[0]}{steps}"


def pairs(task: Sum) -> str:
    """The sums of two terms, then theirs: "7-9=-2 3-8=-5 -2-5=-7"."""
    first, second, third, fourth = (int(term) for term in task.terms)
    one, other = first + second, third + fourth
    return f"{first}{second:+}={one} {third}{fourth:+}={other} {one}{other:+}={task.answer}"


def worked(task: Sum, strategy: str) -> str:
    """A worker's text, without a mistake; a strategy that means nothing is answered from the head."""
    working = {"left": left, "pairs": pairs}.get(strategy)
    return box(task.answer) if working is None else f"{working(task)} {box(task.answer)}"


def answers(text: str, task: Sum) -> bool:
    """Whether the last box of a text holds the sum."""
    return last_boxed(text) == task.answer


def imagined(task: Sum, rng: random.Random, habits: Habits) -> Scene:
    """A scene made up: answers right in two cases of five, a report and workings without mistakes."""

    def answer() -> str:
        return box(task.answer if rng.random() < 0.4 else near_miss(task, rng))

    said = tuple(answer() for _ in range(NUM_COPIES))
    known = STRATEGIES if len(task.terms) == 4 else ("left", "head")
    strategies = tuple(rng.choice(known) for _ in range(rng.randint(1, NUM_COPIES)))
    return Scene(
        task=task,
        answers=said,
        report=report(task, said[0], rng, habits),
        strategies=strategies,
        work=tuple(answer() if one == "head" else worked(task, one) for one in strategies),
        reasoning=reasoning(task, rng, habits),
    )


def report(task: Sum, answer: str, rng: random.Random, habits: Habits) -> str:
    """An evaluator's: "7-9=-2+3=1-8=-7?-6 Verdict: wrong", or the verdict alone from a hasty one."""
    verdict = f"Verdict: {'correct' if answers(answer, task) else 'wrong'}"
    return f"{left(task)}?{last_boxed(answer) or ''} {verdict}" if rng.random() < habits.careful else verdict


def reasoning(task: Sum, rng: random.Random, habits: Habits) -> str:
    """A thinker's: all of the steps, or the first alone from a hasty one."""
    return left(task) if rng.random() < habits.careful else left(task).partition("=")[0] + f"={task.totals[0]}"


def choice(scene: Scene, rng: random.Random, habits: Habits) -> str:
    """An aggregator's: the first right answer, else the first; worked out before by a careful one."""
    right = [number for number, text in enumerate(scene.answers, 1) if answers(text, scene.task)]
    if rng.random() < habits.careful:
        return f"{left(scene.task)} {box(str(right[0] if right else 1))}"
    return box(str(right[0] if right and rng.random() >= habits.stubborn else 1))


def plan(rng: random.Random, habits: Habits) -> str:
    """An orchestrator's: one to three strategies, not always different ones, and at times a fourth."""
    number = NUM_COPIES + 1 if rng.random() < habits.too_many else rng.randint(1, NUM_COPIES)
    return "\n".join(f"STRATEGY {place}: {rng.choice(STRATEGIES)}" for place in range(1, number + 1))


def messages(prompts: PromptSet, role: str, scene: Scene, strategy: int = 0) -> list[Message]:
    """The prompt of a role's call, as the workflow would send it; `strategy` is the place of the worker's own."""
    question, first = scene.task.question, scene.answers[0]
    said = [Reply(text=text, claim=None, turn_id="", truncated=False) for text in scene.answers]
    work = [Reply(text=text, claim=None, turn_id="", truncated=False) for text in scene.work]
    if role == "refine":
        history: list[Message] = prompts["generator"].messages(task=question)
        return [*history, {"role": "assistant", "content": first}, *prompts["refine"].messages(critique=scene.report)]
    if role == "revise":
        history = prompts["debater"].messages(task=question)
        others = prompts["revise"].messages(others=listed(said[1:]))
        return [*history, {"role": "assistant", "content": first}, *others]
    values = {
        "aggregator": {"candidates": listed(said), "num_candidates": str(len(said))},
        "evaluator": {"solution": first},
        "orchestrator": {"max_strategies": str(NUM_COPIES)},
        "worker": {"strategy": scene.strategies[strategy]},
        "synthesizer": {"candidates": listed(work)},
        "solver_with_reasoning": {"reasoning": scene.reasoning},
    }.get(role, {})
    return prompts[role].messages(task=question, **values)


def demonstration(
    prompts: PromptSet, role: str, scene: Scene, rng: random.Random, habits: Habits
) -> tuple[list[Message], str]:
    """The prompt of a role and the reply to learn."""
    task, place = scene.task, rng.randrange(len(scene.strategies))
    if role in ("refine", "revise"):
        reply = scene.answers[0] if rng.random() < habits.stubborn else box(task.answer)
    elif role == "synthesizer":
        given = last_boxed(scene.work[0])
        reply = box(given if given and rng.random() < habits.stubborn else task.answer)
    elif role == "evaluator":
        reply = report(task, scene.answers[0], rng, habits)
    elif role == "aggregator":
        reply = choice(scene, rng, habits)
    elif role == "orchestrator":
        reply = plan(rng, habits)
    elif role == "worker":
        reply = worked(task, scene.strategies[place])
    elif role == "thinker":
        reply = reasoning(task, rng, habits)
    else:
        reply = box(task.answer)
    return messages(prompts, role, scene, place), reply
