"""A grader that hangs or dies in a run: the run goes on, what it could not grade is no 0, and the metrics say so."""

from __future__ import annotations

import os
import random
import re
import signal
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rolecall.config import RunConfig
from rolecall.grading import GraderPool
from rolecall.progress import PlainLines
from rolecall.records import GradeStatus
from rolecall.run_folder import RunFolder
from rolecall.tasks import HumanEval
from rolecall.train import train

FAULTY = """
import os, time
def grade(answer, task):
    kind = sum(map(ord, task.question)) % 4
    if kind == 0:
        time.sleep(600)
    if kind == 1:
        os._exit(9)
    return True
"""


def test_a_run_whose_grader_hangs_and_dies_goes_on_and_scores_nothing_of_it_zero(
    small: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "faulty_graders.py").write_text(textwrap.dedent(FAULTY))
    monkeypatch.syspath_prepend(str(tmp_path))
    config = small(
        steps=2,
        tasks={"grader": "faulty_graders:grade"},
        rollout={"tasks_per_step": 6},
        grading={"workers": 2, "timeout_s": 0.5},
        evaluation={"every_steps": 2},
    )
    started = time.monotonic()
    train(config, tmp_path / "run", PlainLines(config.steps, ()))
    said = capsys.readouterr().out
    assert re.search(r"step 1: graders: .*past their deadline.*no grade, which is no 0", said.replace("\n", " ")), said
    assert time.monotonic() - started < 120
    rows = [row for file in (tmp_path / "run/episodes").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(rows) == 24
    scores = Counter(row["team_score"] for row in rows)
    assert set(scores) == {None, 1.0}, "what could be graded was right; nothing else has a score"
    metrics = {(step, key): value for step, key, value in RunFolder.open(tmp_path / "run").read_metrics()}

    def of(key: str) -> list[float]:
        return [metrics[step, key] for step in (1, 2)]

    assert sum(of("grading/failed")) == scores[None] > 0
    assert sum(of("graders/timeouts")) > 0
    assert sum(of("graders/died")) > 0
    assert sum(of("graders/replaced")) >= sum(of("graders/timeouts")) + sum(of("graders/died")) - 2
    assert min(of("graders/memory_mib")) > 5


@pytest.mark.slow
def test_programs_are_graded_right_or_not_at_all_while_sandboxes_are_killed() -> None:
    """Sandboxes are killed over and over while correct programs are graded: none of them is ever wrong."""
    tasks = list(HumanEval().tasks())[:40]
    over = threading.Event()
    rng = random.Random(0)
    with GraderPool(workers=2, cache_size=0) as pool:
        pool.start(["code"])

        def kill() -> None:
            while not over.wait(0.15):
                victims = pool._code.inner_pids
                if victims:
                    try:
                        os.kill(rng.choice(victims), signal.SIGKILL)
                    except ProcessLookupError:
                        continue

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            grades = pool.grade([(task.metadata["code"]["solution"], task) for task in tasks])
        finally:
            over.set()
            killer.join()
        assert pool.stats.lost > 0, "nothing was hit, and the test shows nothing"
        assert {grade.status for grade in grades} <= {GradeStatus.RIGHT, GradeStatus.FAILED}
        assert all(grade.score is None for grade in grades if grade.status is GradeStatus.FAILED)
        again = pool.grade([(task.metadata["code"]["solution"], task) for task in tasks[:5]])
        assert all(grade.right for grade in again), "the pool is whole again"
