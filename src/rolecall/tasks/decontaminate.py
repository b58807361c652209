"""Decontamination: training tasks that share a run of words with an evaluation set are found, reported, left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rolecall.errors import TaskError
from rolecall.records import Task

NGRAM = 13  # as in GPT-3's evaluation (arXiv 2005.14165, appendix C)
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """One training task that meets an evaluation task: the first words that they share, and the share of the training
    task's n-grams that the evaluation set holds."""

    train_id: str
    evaluation_id: str
    evaluation_set: str
    words: str
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Decontaminated:
    """What is left, and why the rest went: counts by evaluation set, every overlap, and how many texts were too short
    for an n-gram and were compared whole."""

    kept: tuple[Task, ...]
    overlaps: tuple[Overlap, ...]
    num_read: int
    num_short: int
    n: int

    def report(self) -> dict[str, object]:
        """Plain data for a file."""
        by_set: dict[str, int] = {}
        for one in self.overlaps:
            by_set[one.evaluation_set] = by_set.get(one.evaluation_set, 0) + 1
        return {
            "n": self.n,
            "read": self.num_read,
            "kept": len(self.kept),
            "removed": len(self.overlaps),
            "removed_by_set": by_set,
            "compared_whole": self.num_short,
            "overlaps": [
                {"train": o.train_id, "evaluation": o.evaluation_id, "set": o.evaluation_set, "share": o.share}
                | {"words": o.words}
                for o in self.overlaps
            ],
        }


def words_of(text: str) -> list[str]:
    """Letters and digits, case folded: spacing, punctuation and LaTeX's signs do not hide a copy."""
    return _WORD.findall(text.casefold())


def ngrams(text: str, n: int) -> list[tuple[str, ...]]:
    """The runs of `n` words of a text, the whole of one that is shorter."""
    words = words_of(text)
    if not words:
        return []
    return [tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))]


def decontaminate(
    train: Iterable[Task], evaluation: Mapping[str, Sequence[Task]], *, n: int = NGRAM, min_share: float = 0.0
) -> Decontaminated:
    """Leave out training tasks whose question shares `n` words in a row with a question of an evaluation set.

    A text of fewer than `n` words meets another only as a whole. `min_share`: only tasks of which more than this share
    of n-grams is in the evaluation sets are left out (0: one n-gram is enough).
    """
    if n < 1:
        raise TaskError(f"decontamination n is {n}; wanted at least 1 word")
    if not 0 <= min_share < 1:
        raise TaskError(f"decontamination min_share is {min_share}; wanted 0 or more and less than 1")
    known: dict[tuple[str, ...], tuple[str, str]] = {}
    for name, tasks in evaluation.items():
        for task in tasks:
            for gram in ngrams(task.question, n):
                known.setdefault(gram, (name, task.id))
    kept: list[Task] = []
    overlaps: list[Overlap] = []
    num_read = num_short = 0
    for task in train:
        num_read += 1
        grams = ngrams(task.question, n)
        num_short += bool(grams) and len(grams[0]) < n
        met = [gram for gram in grams if gram in known]
        if not met or len(met) <= min_share * len(grams):
            kept.append(task)
            continue
        name, other = known[met[0]]
        overlaps.append(
            Overlap(
                train_id=task.id,
                evaluation_id=other,
                evaluation_set=name,
                words=" ".join(met[0]),
                share=len(met) / len(grams),
            )
        )
    return Decontaminated(kept=tuple(kept), overlaps=tuple(overlaps), num_read=num_read, num_short=num_short, n=n)
