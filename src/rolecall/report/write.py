"""Run folders in, a page out."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rolecall.errors import UsageError
from rolecall.report.episodes import examples
from rolecall.report.page import page
from rolecall.report.read import RunData, read_run

NAME = "report.html"


def write_report(folder: Path) -> Path:
    """Make the page of one run as `report.html` in its folder, and return where it is. The run may be unfinished."""
    return _write(make_page([folder]), folder / NAME)


def write_comparison(folders: Sequence[Path], out: Path) -> Path:
    """Make one page of several runs (or of one) in the file `out`, and return it."""
    if out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a folder; give the name of a file, e.g. {str(out / NAME)!r}")
    return _write(make_page(folders), out)


def make_page(folders: Sequence[Path]) -> str:
    """The HTML of one or several runs."""
    unique = list(dict.fromkeys(folder.resolve() for folder in folders))
    if not unique:
        raise UsageError("no run folder given; name one, e.g. rolecall report runs/demo")
    runs = _distinct([read_run(folder) for folder in unique])
    shown, groups = [], []
    for run in runs:
        problems = list(run.problems)
        groups.append(examples(run, problems))
        shown.append(dataclasses.replace(run, problems=tuple(dict.fromkeys(problems))))
    return page(shown, groups)


def _distinct(runs: Sequence[RunData]) -> list[RunData]:
    """Runs whose folders have one name are told apart by the folder above."""
    counts = Counter(run.label for run in runs)
    return [
        dataclasses.replace(run, label=f"{run.path.parent.name}/{run.label}") if counts[run.label] > 1 else run
        for run in runs
    ]


def _write(text: str, target: Path) -> Path:
    """Aside and renamed: whoever opens the page meanwhile sees the old one or the new one."""
    aside = target.with_name(f".{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8", errors="replace")
        os.replace(aside, target)
    except OSError as error:
        where = f"the page {str(target)!r} cannot be written"
        raise UsageError(f"{where} ({error.strerror}); choose another file with --out") from None
    return target
