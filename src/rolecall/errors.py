"""The kinds of failure, and the one boundary that names where each happened.

An error for a user names the thing, the value seen, the value wanted and the next move. What catches everything
stands here and nowhere else: `boundary` turns whatever user code raised into a `RolecallError` that says whose code it
was.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class RolecallError(Exception):
    """Base of every failure that rolecall names; `kind` is the short name in metrics and records."""

    kind = "error"


class UsageError(RolecallError, ValueError):
    """The user's input is wrong: one clear message, exit code 2, no traceback."""

    kind = "usage"


class ConfigError(UsageError):
    """A configuration that cannot run."""

    kind = "config"


class TaskError(UsageError):
    """A task source that cannot be read, or tasks that cannot be used."""

    kind = "tasks"


class WorkflowError(RolecallError):
    """The user's workflow raised, returned nothing useful, or broke a rule of replay."""

    kind = "workflow"


class InvalidEpisode(WorkflowError):
    """The workflow declares its episode invalid."""

    kind = "invalid"


class EffectError(WorkflowError):
    """A tool, environment or other effect of a workflow raised."""

    kind = "effect"


class CallError(RolecallError):
    """One reply could not be given; a workflow may catch it, and replay raises it again at the same call."""

    kind = "call"


class CallTimeout(CallError):
    """The deadline of one call passed."""

    kind = "timeout"


class PromptTooLong(CallError):
    """The prompt is longer than the role's limit."""

    kind = "prompt_too_long"


class EpisodeTimeout(RolecallError):
    """The deadline of one episode passed."""

    kind = "timeout"


class ReplayMismatch(RolecallError):
    """A recorded call or effect does not match what the workflow asks for now."""

    kind = "replay"


class BlockedLoop(RolecallError):
    """User code blocked the event loop for longer than the watchdog allows."""

    kind = "blocked"


class EngineError(RolecallError):
    """An engine failed or does not do what its contract says."""

    kind = "engine"


class ParityError(EngineError):
    """The engine does not sample from the weights that were published."""

    kind = "parity"


class LearnerError(RolecallError):
    """Training cannot go on: not finite, out of memory, inconsistent samples."""

    kind = "learner"


class CheckpointError(UsageError):
    """A checkpoint that is incomplete, or that belongs to another configuration or task set."""

    kind = "checkpoint"


class WriteError(RolecallError):
    """A file of the run could not be written; says what is kept and how to go on."""

    kind = "write"


class GraderError(RolecallError):
    """A grader failed; never a reward of 0."""

    kind = "grader"


class SandboxError(RolecallError):
    """Untrusted programs cannot be contained here, or a sandbox itself failed; never a wrong answer."""

    kind = "sandbox"


ENDINGS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
"""What ends a program, a coroutine or a task, and passes every boundary."""


@contextmanager
def boundary(kind: type[RolecallError], where: str) -> Iterator[None]:
    """Turn anything that user code or a library raises into `kind`, naming `where`; rolecall's own pass unchanged."""
    try:
        yield
    except (RolecallError, *ENDINGS):
        raise
    except BaseException as error:  # not Exception: libraries written in Rust panic with a BaseException
        raise kind(f"{where} raised {type(error).__name__}: {error}") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name: `; did you mean 'x'?` or, when nothing is near, the list of what exists."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(known) or 'none'}"
