"""A run of six steps and about ten seconds, killed by SIGKILL at random moments and resumed, equals one never stopped.

`make kills` does it fifty times (ROLECALL_KILLS=50); ROLECALL_KILL_SEED chooses other moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from run_compare import differences

KILLS = int(os.environ.get("ROLECALL_KILLS", "5"))
SEED = os.environ.get("ROLECALL_KILL_SEED", "1")
HERE = Path(__file__).resolve().parent
SVC = {"name": "solve_verify_correct", "prompts": "tiny", "answer_format": "text"}
VARIANTS: dict[str, Mapping[str, Any]] = {
    "inline": {"workflow": SVC, "sharing": "shared"},
    "processes": {
        "workflow": SVC,
        "sharing": "isolated",
        "model": {"kind": "adapter", "lora": {"rank": 4}},
        "engine": {"mode": "processes", "workers": 2},
        "checkpoint": {"every_steps": 2, "keep_last": 1},
    },
}


def hear_interrupts() -> None:
    """Tests that run as a background job ignore Ctrl-C, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(path: Path, recipe: Path) -> subprocess.Popen[str]:
    """`rolecall train`, anew or from where the folder stands, in a process group of its own."""
    begun = (path / "config.toml").is_file()
    command = [sys.executable, "-m", "rolecall.cli", "train", *(["--resume"] if begun else [str(recipe)])]
    paths = os.pathsep.join([str(HERE), str(HERE.parent)])
    return subprocess.Popen(
        [*command, "--run", str(path)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=hear_interrupts,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module", params=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole(variant: str, base: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, float]:
    """Recipe, folder and seconds of the run that nothing happened to."""
    import tomli_w

    from rolecall.config import overlay

    folder = tmp_path_factory.mktemp(variant)
    recipe = folder / "recipe.toml"
    recipe.write_text(tomli_w.dumps(overlay(base, {"steps": 6, **VARIANTS[variant]})))
    begun = time.monotonic()
    finish(start(folder / "whole", recipe))
    return recipe, folder / "whole", time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(KILLS))
def test_a_run_killed_at_random_moments_equals_one_never_stopped(
    number: int, variant: str, whole: tuple[Path, Path, float], tmp_path: Path
) -> None:
    recipe, folder, seconds = whole
    draw = random.Random(f"{SEED} {variant} {number}")
    stratum = (number + draw.random()) / KILLS  # so that few kills, too, are spread over the whole run
    moments = [stratum * seconds, draw.random() * seconds][: 1 + number % 2]  # every other run is killed twice
    for moment in moments:
        process = start(tmp_path / "r", recipe)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    finish(start(tmp_path / "r", recipe))
    assert differences(folder, tmp_path / "r") == [], f"killed after {moments} of {seconds:.1f} s"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["evaluation/episodes:1", "checkpoint/rename:1", "evaluation/episodes:2"])
def test_a_run_killed_twice_in_one_place_equals_one_never_stopped(
    fault: str, small: Callable[..., Any], killed: Callable[..., int], tmp_path: Path
) -> None:
    """In the evaluation before training, before the first checkpoint, and in the evaluation after."""
    from rolecall.files import KILLED
    from rolecall.progress import PlainLines
    from rolecall.train import train

    config = small(workflow=SVC)
    train(config, tmp_path / "whole", PlainLines(3, ()))
    path = tmp_path / "r"
    assert killed(config, path, f"kill:{fault}") == KILLED
    again = fault if fault != "evaluation/episodes:2" else "evaluation/episodes:1"
    assert killed(config, path, f"kill:{again}", resume=True) == KILLED
    train(config, path, PlainLines(3, ()), resume=True)
    assert differences(tmp_path / "whole", path) == []
