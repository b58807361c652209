"""The examples run as they stand, and what they print is what their readers were promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"

PRINTED = {
    "01_own_workflow.py": ["proposer:0: 5", "proposer.1:0: 6", "chooser:0: 2", "ok: 6"],
    "02_own_reward.py": ["solver:0: total 1.1", "verifier:0: total 1.1"],
    "03_own_algorithm.py": ["(solver): reward 1.00", "(verifier): reward"],
}


def test_every_example_is_checked():
    assert {path.name for path in FOLDER.glob("[0-9]*.py")} == set(PRINTED)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_an_example_runs_and_prints_what_it_promises(name):
    done = subprocess.run([sys.executable, FOLDER / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in PRINTED[name]:
        assert line in done.stdout
