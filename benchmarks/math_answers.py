"""Mathematical answers: the grader's pool against math-verify alone, on the labelled pairs of tests/grading.

`answers_per_s` counts grades of `NUM_PAIRS` labelled pairs (every kind but sums and garbage, at fixed places of the
list), without the cache: the pool with two workers, and math-verify in this process, each text between dollar signs as
its documentation asks, with its own time limits. Both are warm. `integers` are 2,000 pairs of whole numbers. Agreement
is the share of those labelled pairs that are graded as labelled; the test suite holds the grader to all of the list.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Sequence
from pathlib import Path

from figures import Figure, figure, ratio, take_turns, timed

from rolecall.grading import GraderPool
from rolecall.records import Task

LABELS = Path(__file__).resolve().parent.parent / "tests" / "grading" / "math_answers.jsonl"
NUM_PAIRS = 60
PEERS = {"math_verify": "math-verify>=0.8"}
FIGURES = {
    "pool/answers_per_s": "labelled answers a second, GraderPool with 2 workers",
    "math_verify/answers_per_s": "the same answers a second, math-verify alone",
    "speed_up": "the first over the second",
    "pool/integers_per_s": "answers that are whole numbers a second, GraderPool",
    "math_verify/integers_per_s": "the same, math-verify alone",
    "integers_speed_up": "the first over the second",
    "pool/agreement": "share of the labelled answers graded as labelled",
    "math_verify/agreement": "the same, math-verify alone",
}

Pair = tuple[str, str]


def labelled() -> tuple[list[Pair], list[bool]]:
    rows = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["kind"] not in ("sums and limits", "garbage", "integers")]
    rows = rows[:: len(rows) // NUM_PAIRS][:NUM_PAIRS]
    return [(row["answer"], row["reference"]) for row in rows], [row["right"] for row in rows]


def whole_numbers() -> list[Pair]:
    rng = random.Random(0)
    return [(str(rng.randrange(1000)), str(rng.randrange(1000))) for _ in range(2000)]


def dollars(text: str) -> str:
    return text if "$" in text or "\\(" in text or "\\[" in text or "boxed" in text else f"${text}$"


def by_math_verify(pairs: Sequence[Pair]) -> list[bool]:
    from math_verify import parse, verify

    return [bool(verify(parse(dollars(reference)), parse(dollars(answer)))) for answer, reference in pairs]


def by_pool(pool: GraderPool, pairs: Sequence[Pair]) -> list[bool]:
    tasks = [(answer, Task(id=f"t{n}", question="?", answer=ref)) for n, (answer, ref) in enumerate(pairs)]
    return [grade.right for grade in pool.grade(tasks)]


def run(repeats: int) -> dict[str, Figure]:
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    pairs, labels = labelled()
    integers = whole_numbers()
    with GraderPool(workers=2, cache_size=0) as pool:
        pool.start(["math"])
        found = {
            name: take_turns(
                {
                    "pool": lambda p=some: timed(lambda: by_pool(pool, p)),
                    "peer": lambda p=fewer: timed(lambda: by_math_verify(p)),
                },
                repeats,
            )
            for name, some, fewer in (("labelled", pairs, pairs), ("integers", integers, integers[:200]))
        }
        ours = by_pool(pool, pairs)
    theirs = by_math_verify(pairs)
    rates = {
        (name, who): [count / seconds for seconds in times[who]]
        for name, times in found.items()
        for who, count in (
            ("pool", len(pairs) if name == "labelled" else len(integers)),
            ("peer", len(pairs) if name == "labelled" else 200),
        )
    }
    agreement = {
        who: sum(got is label for got, label in zip(grades, labels, strict=True)) / len(labels)
        for who, grades in (("pool", ours), ("math_verify", theirs))
    }
    return {
        "pool/answers_per_s": figure(rates["labelled", "pool"], "1/s"),
        "math_verify/answers_per_s": figure(rates["labelled", "peer"], "1/s"),
        "speed_up": ratio(rates["labelled", "pool"], rates["labelled", "peer"]),
        "pool/integers_per_s": figure(rates["integers", "pool"], "1/s"),
        "math_verify/integers_per_s": figure(rates["integers", "peer"], "1/s"),
        "integers_speed_up": ratio(rates["integers", "pool"], rates["integers", "peer"]),
        "pool/agreement": figure([agreement["pool"]], "share"),
        "math_verify/agreement": figure([agreement["math_verify"]], "share"),
    }
