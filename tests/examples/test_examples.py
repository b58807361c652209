"""The examples run as they stand, and what they print is what their readers were promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"

PRINTED = {
    "01_play_a_workflow.py": [
        r"solver:0: 'It is \\boxed{5}.' claims '5', reward 0.0",
        "verifier:1: 'Verdict: correct' claims 'correct', reward 1.0",
        "ok: answer 6, team right",
        "with another verdict: answer 5, 0 calls made",
    ],
    "02_own_reward.py": ["solver:0: total 1.1", "verifier:0: total 1.1"],
    "03_own_workflow.py": ["proposer:0: 5", "proposer.1:0: 6", "chooser:0: 2", "ok: 6"],
    "04_two_policies.py": [
        "who plays whom: {'solver': 'writer', 'verifier': 'judge', 'corrector': 'writer'}",
        "the writer is at version 2",
        "the judge has a version: False",
    ],
    "05_own_algorithm.py": ["(solver): reward 1.00", "(verifier): reward"],
    "06_read_a_run.py": ["step 1: team accuracy 0.", "step 2: team accuracy 0.", "  ok: ", "  verifier: '"],
}
MAX_LINES = 80
ON_A_RUN = ("04_two_policies.py", "06_read_a_run.py")


def test_every_example_is_checked_and_they_are_numbered_without_a_gap():
    names = sorted(path.name for path in FOLDER.glob("[0-9]*.py"))
    assert set(names) == set(PRINTED)
    assert [int(name[:2]) for name in names] == list(range(1, len(names) + 1))


def run_example(name: str, *arguments: object) -> str:
    command = [sys.executable, str(FOLDER / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run folder of the example with two policies, and what that example printed."""
    folder = tmp_path_factory.mktemp("two_policies") / "run"
    return folder, run_example("04_two_policies.py", folder)


@pytest.mark.parametrize("name", [name for name in sorted(PRINTED) if name not in ON_A_RUN])
def test_an_example_runs_and_prints_what_it_promises(name):
    said = run_example(name)
    for line in PRINTED[name]:
        assert line in said, said


@pytest.mark.slow
def test_the_example_with_two_policies_trains_one_and_leaves_the_other(small_run):
    for line in PRINTED["04_two_policies.py"]:
        assert line in small_run[1], small_run[1]


@pytest.mark.slow
def test_the_example_of_duckdb_reads_that_run(small_run):
    pytest.importorskip("duckdb")
    said = run_example("06_read_a_run.py", small_run[0])
    for line in PRINTED["06_read_a_run.py"]:
        assert line in said, said


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_fits_on_two_screens(name):
    assert len((FOLDER / name).read_text().splitlines()) <= MAX_LINES
