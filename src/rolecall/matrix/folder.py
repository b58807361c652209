"""The folder of a matrix: a run folder and a log a cell, and `matrix.json`, which says what belongs and what failed.

What is done is read from the run folders alone; `matrix.json` may be lost and is written anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import tomli_w

from rolecall.assemble import config_fingerprint
from rolecall.config import RunConfig, make_config, read_recipe
from rolecall.errors import ConfigError, UsageError
from rolecall.files import hold, write_aside
from rolecall.matrix.spec import Cell, Matrix
from rolecall.report.map_data import INDEX
from rolecall.report.read import mapping
from rolecall.run_folder import LOCK, holds_steps, nothing_left, plain

State = Literal["done", "unfinished", "new"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixFolder:
    """Where the cells of a matrix lie."""

    path: Path

    def run(self, name: str) -> Path:
        return self.path / name

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def claim(self) -> IO[str]:
        """Hold the folder for this process until the file is closed; `UsageError` when another one does."""
        try:
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
            lock = (self.path / LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"the matrix's folder {str(self.path)!r} cannot be made ({error.strerror}); choose another with --out"
            ) from None
        if hold(lock) is False:
            lock.close()
            raise UsageError(
                f"another process runs the matrix in {str(self.path)!r}; wait until it has ended, or end it"
            )
        return lock

    def in_use(self, name: str) -> bool:
        """Whether a process, one that an earlier matrix has left, still writes to the cell's folder."""
        try:
            with (self.run(name) / LOCK).open("a+", encoding="utf-8") as lock:
                return hold(lock) is False
        except OSError:  # no such folder
            return False

    def state(self, cell: Cell, *, token_budget: int | None = None) -> State:
        """What the cell's run folder says under the wanted configuration. `UsageError` when the folder holds a run of
        other settings."""
        wanted = with_budget(cell.config, token_budget)
        file = self.run(cell.name) / "config.toml"
        if not file.is_file():
            return "new"
        try:
            there = make_config(read_recipe(file), source=str(file))
        except ConfigError as error:
            if not holds_steps(self.run(cell.name)):
                return "new"
            raise UsageError(
                f"cell {cell.name}: {str(self.run(cell.name))!r} holds a run of another version, or of a broken "
                f"configuration ({error}); remove that folder, or choose another with --out"
            ) from None
        if config_fingerprint(there) != config_fingerprint(wanted):
            raise UsageError(
                f"cell {cell.name}: {str(self.run(cell.name))!r} holds a run of other settings than the matrix has "
                "now; remove that folder, or choose another with --out"
            )
        summary = read_json(self.run(cell.name) / "summary.json")
        if summary is None or not nothing_left(wanted, summary):
            return "unfinished"
        return "done" if (self.run(cell.name) / "report.html").is_file() else "unfinished"  # killed between the two

    def prepare(self, cell: Cell, *, token_budget: int | None) -> None:
        """Write the cell's configuration into its run folder, so that `rolecall train --resume` begins it or goes on
        with it. Raises `OSError`."""
        folder = self.run(cell.name)
        folder.mkdir(parents=True, exist_ok=True)
        text = tomli_w.dumps(plain(with_budget(cell.config, token_budget).model_dump()))
        file = folder / "config.toml"
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            write_aside(file, "config", lambda path: path.write_text(text, encoding="utf-8"))

    def summary(self, name: str) -> Mapping[str, Any]:
        return read_json(self.run(name) / "summary.json") or {}

    def failures(self) -> dict[str, Any]:
        """The failures that `matrix.json` holds, by cell."""
        found = mapping((read_json(self.path / INDEX) or {}).get("failures"))
        return {name: one for name, one in found.items() if isinstance(one, dict)}

    def check_index(self, matrix: Matrix) -> None:
        """`UsageError` when the folder is that of a matrix with another name, whose cells would be lost to its map."""
        there = (read_json(self.path / INDEX) or {}).get("name")
        if isinstance(there, str) and there != matrix.name:
            raise UsageError(
                f"{str(self.path)!r} holds the matrix {there!r}, and this one is {matrix.name!r}; choose another "
                f"folder with --out, or remove its {INDEX}"
            )

    def write_index(self, matrix: Matrix, failures: Mapping[str, Any]) -> bool:
        """Write `matrix.json`; False on a disk that is full, for nothing depends on it but the words of the report."""
        cells = [
            {
                "name": cell.name,
                "axes": dict(cell.axes),
                "seed": cell.seed,
                "tokens_of": cell.tokens_of,
                "teams": list(cell.teams),
            }
            for cell in matrix.every
        ]
        data = {
            "name": matrix.name,
            "axes": {axis: list(values) for axis, values in matrix.axes.items()},
            "seeds": list(matrix.seeds),
            "cells": cells,
            "failures": dict(failures),
        }
        text = json.dumps(data, indent=1) + "\n"
        try:
            write_aside(self.path / INDEX, "matrix", lambda path: path.write_text(text, encoding="utf-8"))
        except OSError:
            return False
        return True


def failure(exit_code: int, log: Path, earlier: Mapping[str, Any] | None, begins: int = 0) -> dict[str, Any]:
    """What `matrix.json` says of a cell that failed. `begins`: how long the log was when the process started."""
    times = (earlier or {}).get("times")
    return {
        "exit_code": exit_code,
        "reason": reason(exit_code, log, begins),
        "log": f"logs/{log.name}",
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "times": (times if isinstance(times, int) else 0) + 1,
    }


def reason(exit_code: int, log: Path, begins: int = 0) -> str:
    """The last line of a log that says something, past its first `begins` bytes, which earlier processes wrote; and
    how the process ended where a signal ended it."""
    lines: list[str] = []
    try:
        with log.open("rb") as file:
            file.seek(max(begins, log.stat().st_size - 8192))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        pass
    last = lines[-1][:500] if lines else "no word in the log"
    if exit_code < 0 or exit_code == 137:
        number = -exit_code if exit_code < 0 else exit_code - 128
        return f"ended by signal {number}{' (out of memory, or killed)' if number == 9 else ''}; last line: {last}"
    return last


def with_budget(config: RunConfig, token_budget: int | None) -> RunConfig:
    return config if token_budget is None else config.model_copy(update={"token_budget": token_budget})


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None when it is not there or broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
