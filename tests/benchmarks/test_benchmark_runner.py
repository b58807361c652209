"""Names and shapes of the benchmarks' output; no time is asserted anywhere."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """benchmarks/run.py as a module, its folder on the path as when it is run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("run")
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


def call(runner: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    return int(runner.main())


def test_the_list_names_every_benchmark_and_every_figure_with_a_line_each(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(runner, monkeypatch, "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split(":")[0] for line in lines if not line.startswith(" ")]
    assert heads == list(runner.BENCHMARKS)
    assert heads[:4] == ["step_trl", "step_comlrl", "engine_generate", "scripted_10000"]
    figures = [line.split("  ", 2)[1:] for line in lines if line.startswith("  ")]
    assert all(name.split("/")[0] in heads and what for name, what in figures)
    assert len({name for name, _ in figures}) == len(figures) > 20


def test_json_is_one_flat_object_of_the_listed_figures_with_their_spread(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = importlib.import_module("scripted_10000")
    monkeypatch.setattr(small, "EPISODES", 16)
    monkeypatch.setattr(runner, "run_apart", runner.run_here)
    assert call(runner, monkeypatch, "scripted_10000", "--json", "--repeats", "2") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert set(found) == {f"scripted_10000/{name}" for name in small.FIGURES}
    for one in found.values():
        assert set(one) == {"value", "low", "high", "unit"}
        assert one["low"] <= one["value"] <= one["high"]
    assert 16 <= found["scripted_10000/turns"]["value"] <= 16 * 5
    for said in ("command: ", "machine: ", "versions: ", "repeats: 2"):
        assert said in err


def test_the_viewers_pages_are_measured_on_a_run_as_training_writes_it(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = importlib.import_module("viewer_first_page")
    monkeypatch.setattr(viewer, "STEPS", 3)
    found = viewer.run(1)
    here = set(viewer.FIGURES) - {name for name in viewer.FIGURES if "/" in name}
    assert here <= set(found) <= set(viewer.FIGURES)
    assert 3 * 64 < found["turns"]["value"] < 3 * 64 * 5
    assert all(found[page]["value"] > 0 for page in viewer.PAGES)


def test_a_peer_that_is_not_installed_gives_one_line_and_the_others_go_on(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = importlib.import_module("step_trl")
    monkeypatch.setattr(peer, "PEERS", {"no_such_peer": "no-such-peer==1.0"})
    monkeypatch.setattr(runner, "run_apart", lambda name, repeats: {f"{name}/x": runner_figure(1.0)})
    assert call(runner, monkeypatch, "step_trl", "engine_generate", "--json") == 0
    out, err = capsys.readouterr()
    assert set(json.loads(out)) == {"engine_generate/x"}
    lines = [line for line in err.splitlines() if "no-such-peer" in line]
    assert lines == ["step_trl: left out, its peer is not installed; pip install no-such-peer==1.0"]


def runner_figure(value: float) -> dict[str, object]:
    return {"value": value, "low": value, "high": value, "unit": "x"}


def test_a_figure_is_the_median_of_its_repeats_and_ratios_pair_them(runner: ModuleType) -> None:
    figures = importlib.import_module("figures")
    assert figures.figure([5.0, 1.0, 2.0], "s") == {"value": 2.0, "low": 1.0, "high": 5.0, "unit": "s"}
    assert figures.ratio([8.0, 9.0, 8.0], [4.0, 3.0, 1.0]) == {"value": 3.0, "low": 2.0, "high": 8.0, "unit": "times"}


def test_contenders_take_turns_in_an_order_that_is_turned_around(runner: ModuleType) -> None:
    figures = importlib.import_module("figures")
    called: list[str] = []

    def contender(name: str, value: float) -> object:
        return lambda: called.append(name) or value

    found = figures.take_turns({"a": contender("a", 1.0), "b": contender("b", 2.0)}, repeats=3)
    assert found == {"a": [1.0] * 3, "b": [2.0] * 3}
    rounds = ["".join(called[i : i + 2]) for i in range(0, len(called), 2)]
    assert rounds == ["ab", "ba", "ab", "ba"]


def test_a_benchmark_that_does_not_exist_is_refused_with_the_names_that_do() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), "step_trll"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'step_trll'" in done.stderr
    assert "step_trl," in done.stderr
