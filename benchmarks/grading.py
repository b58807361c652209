"""Answers graded per second: `python benchmarks/grading.py`. Plain numbers need no worker; LaTeX goes through one."""

from __future__ import annotations

import random
import time

from rolecall.grading import GraderPool
from rolecall.records import Task
from rolecall.tasks import ReasoningGym

Pair = tuple[str | None, Task]


def main() -> None:
    rng = random.Random(0)
    batches: dict[str, list[Pair]] = {
        "plain integers": [(str(rng.randrange(1000)), task(str(rng.randrange(1000)))) for _ in range(20_000)],
        "plain LaTeX fractions": [(rf"$\frac{{{n}}}{{7}}$", task(f"{2 * n}/14")) for n in range(5_000)],
        "LaTeX surds": [(surd(n, 1), task(surd(n, 2))) for n in range(400)],
        "polynomials": [
            (f"(x+{n})^2-{m}", task(f"x^2+{2 * n}x+{n * n - m}")) for n in range(2, 22) for m in range(2, 12)
        ],
        "reasoning-gym scorer": [(t.answer, t) for t in ReasoningGym(family="chain_sum", size=3_000).tasks()],
    }
    for workers in (1, 2):
        with GraderPool(workers=workers) as pool:
            started = time.perf_counter()
            pool.start(["math", "reasoning_gym"])
            print(f"{workers} worker(s), ready after {time.perf_counter() - started:.1f} s")
            for name, pairs in batches.items():
                started = time.perf_counter()
                grades = pool.grade(pairs)
                rate = len(pairs) / (time.perf_counter() - started)
                failed = sum(grade.score is None for grade in grades)
                print(f"  {name:<22} {rate:>9,.0f} answers/s  {sum(g.right for g in grades)} right, {failed} failed")


def task(answer: str) -> Task:
    return Task(id=f"t:{answer}", question="?", answer=answer)


def surd(n: int, factor: int) -> str:
    return rf"\frac{{{factor * (n + 2)}\sqrt{{{n % 97 + 2}}}}}{{{factor * (n % 89 + 2)}}}"


if __name__ == "__main__":
    main()
