"""Live progress of a run: a small panel on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

BAR_WIDTH = 20


class Progress(Protocol):
    """What the loop tells: a line of words, or one finished step with its metrics."""

    def note(self, text: str) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def make_progress(steps: int, roles: Sequence[str], console: Console | None = None) -> Progress:
    """The live panel when the output is a terminal, else plain lines."""
    console = console or Console(stderr=False)
    return LivePanel(steps, roles, console) if console.is_terminal else PlainLines(steps, roles)


def time_left(done: int, steps: int, elapsed_s: float) -> str:
    """`3:07` until all steps are done at the pace so far; `-:--` before there is one."""
    if done <= 0:
        return "-:--"
    return clock(elapsed_s / done * max(0, steps - done))


class Pace:
    """The pace of the steps, from the end of the first: what came before it says nothing about the next."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.done = 0

    def left(self, remaining: int) -> str:
        """Call at the end of each step; the time until `remaining` more are done."""
        now = time.monotonic()
        if self.first is None:
            self.first = now
            return time_left(0, remaining, 0.0)
        self.done += 1
        return time_left(self.done, self.done + remaining, now - self.first)


def clock(seconds: float) -> str:
    """Seconds as `h:mm:ss` or `m:ss`."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


class PlainLines:
    """One line a step, flushed, for logs and pipes."""

    def __init__(self, steps: int, roles: Sequence[str]) -> None:
        self.steps, self.roles, self.heard = steps, roles, True
        self.pace = Pace()

    def note(self, text: str) -> None:
        """Print a line; a reader who went away (`| head`) is no reason to end a run."""
        if self.heard:
            try:
                print(text, flush=True)
            except BrokenPipeError:
                self.heard = False
                sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open for whoever prints later

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        parts = [
            f"step {step}/{self.steps}",
            f"left {self.pace.left(self.steps - step)}",
            f"team {team_words(metrics)}",
        ]
        masses = masses_of(self.roles, metrics)
        for role in self.roles:
            reward = metrics.get(f"reward/{role}/total")
            text = role + (f" {reward:.3f}" if reward is not None else " -")
            parts.append(text + (f" mass {masses[role]:.2f}" if role in masses else ""))
        validation = metrics.get("validation/team")
        if validation is not None:
            parts.append(f"validation {validation:.3f}")
        self.note("  ".join(parts))

    def close(self) -> None:
        if self.heard:
            sys.stdout.flush()


def masses_of(roles: Sequence[str], metrics: Mapping[str, float]) -> dict[str, float]:
    """Each role's share of its policy's gradient mass; none where every role has all of its own policy's.

    >>> masses_of(["a", "b"], {"dynamics/a/mass_share": 1.0, "dynamics/b/mass_share": 1.0})
    {}
    """
    found = {role: metrics[key] for role in roles if (key := f"dynamics/{role}/mass_share") in metrics}
    return {} if all(mass == 1.0 for mass in found.values()) else found


class LivePanel:
    """A panel that stays in place: step, time left, accuracy, and for each role its reward and gradient mass."""

    def __init__(self, steps: int, roles: Sequence[str], console: Console) -> None:
        self.steps, self.roles, self.console = steps, roles, console
        self.begun, self.pace = time.monotonic(), Pace()
        self.validation: float | None = None
        self.live = Live(Text("starting"), console=console, refresh_per_second=4, transient=False)
        self.live.start()

    def note(self, text: str) -> None:
        self.live.console.print(text, highlight=False)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        elapsed = time.monotonic() - self.begun
        self.validation = metrics.get("validation/team", self.validation)
        head = Text(f"step {step}/{self.steps}  ")
        head.append(bar(step / max(1, self.steps)), style="green")
        head.append(f"  {clock(elapsed)} gone, {self.pace.left(self.steps - step)} left")
        team = f"team {team_words(metrics)}"
        if self.validation is not None:
            team += f"   validation {self.validation:.3f}"
        table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
        for name in ("role", "reward", "gradient mass", "", "length"):
            table.add_column(name, justify="right" if name in ("reward", "length") else "left")
        masses = masses_of(self.roles, metrics)
        for role in self.roles:
            mass = masses.get(role)
            reward = metrics.get(f"reward/{role}/total")
            length = metrics.get(f"behaviour/{role}/length")
            table.add_row(
                role,
                "-" if reward is None else f"{reward:.3f}",
                "" if mass is None else bar(mass),
                "-" if mass is None else f"{mass:.2f}",
                "-" if length is None else f"{length:.1f}",
            )
        self.live.update(Group(head, Text(team), table))

    def close(self) -> None:
        self.live.stop()


def team_words(metrics: Mapping[str, float]) -> str:
    """The team's accuracy; "-" where no path came to an end, or no answer could be graded."""
    team = metrics.get("reward/team")
    return "-" if team is None or team != team else f"{team:.3f}"


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of a share in [0, 1]."""
    filled = round(min(1.0, max(0.0, share)) * width)
    return "█" * filled + "░" * (width - filled)
