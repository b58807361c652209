"""Turns and episodes in words, for a terminal of any width or a pipe."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rolecall.records import Claim, Grade, GradedEpisode, Message, Reward, Turn

SIDE_BY_SIDE = 90
"""Columns of terminal from which two texts stand side by side; below, one stands under the other."""


def clean(text: str) -> str:
    """`text` with control characters written out, so that nothing a model said steers the terminal.

    >>> clean("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")
        else char.encode("unicode_escape").decode()
        for char in text
    )


class Page:
    """Writes to a console: headings, plain lines that wrap, and blocks of somebody's words."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)

    def line(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(clean(text), style=style))

    def heading(self, text: str) -> None:
        self.line()
        self.line(f"== {text}", "bold")

    def block(self, text: str) -> None:
        self.console.print(Padding(Text(clean(text)), (0, 0, 0, 2), expand=False))

    def messages(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.line(f"[{message['role']}]", "dim")
            self.block(message["content"])

    def pair(self, left: str, right: str, names: tuple[str, str] = ("before", "after")) -> None:
        """Two texts, side by side where there is room."""
        if self.console.width >= SIDE_BY_SIDE:
            table = Table.grid(padding=(0, 2), expand=True)
            table.add_column(ratio=1)
            table.add_column(ratio=1)
            table.add_row(*(Text(name, style="dim") for name in names))
            table.add_row(Text(clean(left)), Text(clean(right)))
            self.console.print(Padding(table, (0, 0, 0, 2)))
            return
        for name, text in zip(names, (left, right), strict=True):
            self.line(f"{name}:", "dim")
            self.block(text)


def claim_words(claim: Claim | None) -> str:
    if claim is None:
        return "no claim"
    return f"{claim.kind} {claim.value!r}" if claim.value is not None else f"{claim.kind}: could not be parsed"


def grade_words(grade: Grade) -> str:
    return f"{grade.status}" + (f" ({grade.detail})" if grade.detail else "")


def reward_words(reward: Reward | None) -> str:
    if reward is None:
        return "no reward"
    if reward.total is None:
        return "no reward (a grader failed)"
    parts = ", ".join(f"{name} {value:g}" for name, value in reward.parts.items())
    return f"reward {reward.total:g}" + (f" ({parts})" if parts else "") + (", the team's" if reward.team else "")


def turn_words(turn: Turn, grade: Grade | None, reward: Reward | None, advantage: float | None = None) -> str:
    """What a turn claimed, and what it got for that, in one line."""
    words = [claim_words(turn.claim)]
    if grade is not None:
        words.append(grade_words(grade))
    words.append(reward_words(reward))
    if advantage is not None:
        words.append(f"advantage {advantage:+.3g}")
    return "; ".join(words)


def text_of(turn: Turn) -> str:
    text = turn.text if turn.text is not None else "(nothing visible: its reasoning did not end)"
    return text + (" [cut off]" if turn.truncated else "")


def who(turn: Turn, person: str = "") -> str:
    """Which call, and who made it: `verifier:1 by shared, version 40`."""
    return f"{turn.key} by {person or made_by(turn)}"


def made_by(turn: Turn) -> str:
    return f"{turn.policy}, version {turn.completion.version}"


def outcome_words(graded: GradedEpisode) -> str:
    """How an episode ended, and the team's grade."""
    episode = graded.episode
    words = [f"outcome {episode.outcome_class}", f"answer {episode.answer!r}", f"team {grade_words(graded.team)}"]
    if episode.task.answer is not None:
        words.append(f"reference {episode.task.answer!r}")
    if episode.failure is not None:
        words.append(f"{episode.failure.kind} at {episode.failure.where}: {episode.failure.detail}")
    return "; ".join(words)


def show_episode(
    page: Page, graded: GradedEpisode, rewards: Mapping[str, Reward], persons: Mapping[str, str] | None = None
) -> None:
    """A whole episode: each turn with its prompt, reply, claim, grade and reward, then the outcome."""
    for turn in graded.episode.turns:
        page.heading(who(turn, (persons or {}).get(turn.role, "")))
        page.messages(turn.messages)
        page.line("[reply]", "dim")
        page.block(text_of(turn))
        page.line(turn_words(turn, graded.answers.get(turn.id), rewards.get(turn.id)))
    page.heading(outcome_words(graded))
    outcome = graded.episode.outcome
    if outcome is not None and outcome.figures:
        page.line(", ".join(f"{name} {value:g}" for name, value in outcome.figures.items()))
