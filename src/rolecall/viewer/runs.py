"""Which runs there are under a folder, and how each stands: running, finished or stopped."""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rolecall.viewer.parts import NotThere, Unreadable, step_parts

MAX_DEPTH = 3
INSIDE_A_RUN = frozenset({"metrics", "episodes", "evaluations", "checkpoints", "tensorboard"})
GONE_S, QUIET_S, ALIVE_S = 8.0, 90.0, 3600.0
"""A run without a summary that wrote nothing for so long counts as stopped: its process is gone, nothing is known of
its process, its process lives (an evaluation may take long)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """How a run stands, from its files alone. `state` is running, finished, stopped or empty (nothing measured)."""

    state: str
    step: int
    steps: int | None
    written: float
    step_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPath:
    """A run by its name, the path below the root; the only way in which a page can name a folder."""

    name: str
    path: Path
    problems: list[str] = field(default_factory=list)

    def config(self) -> dict[str, Any]:
        """The resolved configuration; empty, with a problem noted, when it cannot be read."""
        try:
            return tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            self._note(f"config.toml cannot be read: {error}")
            return {}

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the run, or nothing when it is not there (yet)."""
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            self._note(f"{name} cannot be read: {error}")
            return {}
        return found if isinstance(found, dict) else {}

    def status(self, config: Mapping[str, Any], summary: Mapping[str, Any]) -> Status:
        """Finished when a summary covers the last step; running while files keep coming; stopped otherwise."""
        parts = step_parts(self.path / "metrics")
        step = max((part.span[1] for part in parts), default=0)
        steps = config.get("steps")
        written = max(self._times(), default=0.0)
        times = sorted(part.stamp[0] / 1e9 for part in parts if part.span[0] == part.span[1])[-9:]
        step_s = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None
        if summary and int(summary.get("steps", 0)) >= step:
            state = "finished"
        elif time.time() - written <= self._patience(step_s or 0.0):
            state = "running"
        else:
            state = "stopped" if step else "empty"
        return Status(
            state=state, step=step, steps=steps if isinstance(steps, int) else None, written=written, step_s=step_s
        )

    def pulse(self) -> tuple[int, ...]:
        """Changes whenever a file of the run is written: files are renamed into place, which touches their folder."""
        return tuple(_mtime_ns(self.path / name) for name in ("", "metrics", "episodes", "evaluations"))

    def _times(self) -> Iterator[float]:
        for name in ("config.toml", "metrics", "episodes", "evaluations", "checkpoints", "evaluation_before.json"):
            yield _mtime_ns(self.path / name) / 1e9

    def _patience(self, step_s: float) -> float:
        """For how many seconds a run may be silent: long while the process that holds its lock lives, and shorter when
        it is known to be gone."""
        try:
            owner = int((self.path / ".lock").read_text(encoding="utf-8"))
            os.kill(owner, 0)
        except ProcessLookupError:
            return max(GONE_S, 2 * step_s)
        except (OSError, ValueError):  # no lock, or another user's process
            return max(QUIET_S, 8 * step_s)
        return max(ALIVE_S, 8 * step_s)

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


class Root:
    """The folder that the viewer was given. Runs are found by looking, so no text of a request becomes a path."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def runs(self) -> dict[str, RunPath]:
        """All runs below the root by name; the root itself when it is a run."""
        if (self.path / "config.toml").is_file():
            return {self.path.name: RunPath(name=self.path.name, path=self.path)}
        found = [RunPath(name=str(path.relative_to(self.path)), path=path) for path in self._walk(self.path, 0)]
        return {run.name: run for run in sorted(found, key=lambda run: run.name)}

    def run(self, name: str) -> RunPath:
        """The run of a name; `NotThere` says what there is."""
        runs = self.runs()
        if name not in runs:
            known = ", ".join(list(runs)[:8]) or "none yet"
            raise NotThere(f"there is no run {name!r} below the folder that is viewed; runs there: {known}")
        return runs[name]

    def _walk(self, folder: Path, depth: int) -> Iterator[Path]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if entry.name.startswith(".") or entry.name in INSIDE_A_RUN or not entry.is_dir():
                continue
            path = Path(entry.path)
            if not path.resolve().is_relative_to(self.path):
                continue
            if (path / "config.toml").is_file():
                yield path
            elif depth + 1 < MAX_DEPTH:
                yield from self._walk(path, depth + 1)


def read_report(run: RunPath) -> bytes:
    """The run's `report.html`; `NotThere` when there is none."""
    try:
        return (run.path / "report.html").read_bytes()
    except FileNotFoundError:
        raise NotThere(f"run {run.name!r} has no report.html; write it with rolecall report {run.name}") from None
    except OSError as error:
        raise Unreadable(f"report.html of {run.name!r} cannot be read: {error.strerror}") from None


def _mtime_ns(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
