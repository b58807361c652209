"""`rolecall simulate`: the JSON by schedule, the table, the picture, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from simulation_builders import SCHEDULES, costs, simulate, team
from typer.testing import CliRunner

from rolecall.assemble import make_plan
from rolecall.cli import app
from rolecall.config import load_config
from rolecall.errors import ConfigError, UsageError
from rolecall.simulation.bounds import all_work
from rolecall.simulation.compare import compare
from rolecall.simulation.costs import load_costs, make_costs
from rolecall.simulation.figures import figures
from rolecall.simulation.picture import draw
from rolecall.simulation.timeline import BINS, Timeline

ROOT = Path(__file__).resolve().parents[2]
RECIPE, COSTS = ROOT / "recipes" / "marsrl_tiny.toml", ROOT / "recipes" / "costs" / "tiny.toml"
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["simulate", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_json_has_the_figures_by_schedule():
    found = json.loads(run(RECIPE, "--costs", COSTS, "--json"))
    assert list(found) == ["barrier", "pipeline", "pipeline_segments", "overlapped"]
    for one in found.values():
        assert one["makespan_s"] >= one["lower_bound_s"] > 0
        assert 0 < one["first_update_s"] <= one["makespan_s"]
        assert set(one["idle_share"]) == {"engines", "learners", "graders"}
        assert all(0 <= share < 1 for share in one["idle_share"].values())
        assert one["completions"] == found["barrier"]["completions"]
        assert one["tokens"] == found["barrier"]["tokens"]
        assert one["lower_bound_s"] == found["barrier"]["lower_bound_s"]
        assert one["over_bound"] == pytest.approx(one["makespan_s"] / one["lower_bound_s"])
    assert found["barrier"]["staleness_max"] == found["pipeline"]["staleness_max"] == 0
    assert 0 < found["overlapped"]["staleness_max"] <= 2
    assert found["overlapped"]["makespan_s"] < found["barrier"]["makespan_s"]
    assert found["pipeline"]["first_update_s"] < found["barrier"]["first_update_s"]


def test_the_table_and_the_picture_are_for_people(tmp_path: Path):
    path = tmp_path / "timeline.svg"
    text = run(RECIPE, "--costs", COSTS, "--schedule", "overlapped", "--schedule", "barrier", "--timeline", path)
    assert "makespan" in text
    assert "pipeline" not in text
    root = ElementTree.parse(path).getroot()
    words = ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]
    lanes = ("engine 0", "engine 1", "learner 0")
    assert [word for word in words if word in lanes] == [*lanes, *lanes]
    assert {"solver", "verifier", "corrector", "idle"} <= set(words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((RECIPE, "--costs", COSTS, "--schedule", "overlaped"), "did you mean 'overlapped'"),
        ((RECIPE, "--costs", "none.toml"), "cannot be read"),
        ((RECIPE, "--costs", COSTS, "--set", "rollout.task_per_step=3"), "did you mean 'tasks_per_step'"),
        ((RECIPE, "--costs", COSTS, "--timeline", "none/there.svg"), "cannot be written"),
    ],
)
def test_a_mistake_is_one_message(arguments, words):
    with pytest.raises(UsageError, match=words):
        CliRunner().invoke(app, ["simulate", *map(str, arguments)], catch_exceptions=False)


def test_schedules_are_those_of_recipe_and_costs():
    plan = make_plan(
        load_config(RECIPE, ["schedule.order=oldest_first", "schedule.segment_tokens=8", "schedule.max_rows=400"])
    )
    data = load_costs(COSTS).model_dump(exclude_none=True)
    said = make_costs(
        {**data, "schedules": {"overlapped": {"max_staleness": 1}, "barrier": {"order": "deepest_first"}}}
    )
    made = compare(plan, said).schedules
    assert [schedule.order for schedule in made.values()] == ["deepest_first", *["oldest_first"] * 3]
    assert made["pipeline_segments"].segment_tokens == 8
    assert [schedule.max_rows for schedule in made.values()] == [None, None, 400, None]
    assert made["overlapped"].max_staleness == 1
    assert made["overlapped"].update_rows == 72 * plan.config.rollout.tasks_per_step  # all paths go on
    with pytest.raises(ConfigError, match=r"update_rows: .* \(got 0\)"):
        make_costs({**data, "schedules": {"overlapped": {"update_rows": 0}}})


@pytest.mark.parametrize("engines", [2, 40])
def test_the_picture_holds_all_rows_and_no_more_than_sixteen_lanes(engines: int):
    made, priced = team(), costs(engines={"count": engines, "slots": 4, "load_s": 0.2}, learners={"count": 7})
    timeline = Timeline("overlapped", made.roles, priced, 0.01)
    done = simulate(made, priced, SCHEDULES["overlapped"], num_tasks=12, tasks_per_step=4, recorder=timeline)
    rows_s = sum(engine.times.rows_s for engine in done.fleet.engines)
    shares = timeline.shares(BINS)
    engines_in = sum(timeline.engines_in)
    assert engines_in == engines
    drawn = sum(
        shares[lane].sum() * timeline.width_s * priced.engines.slots * number
        for lane, number in enumerate(timeline.engines_in)
    )
    assert drawn == pytest.approx(rows_s)
    assert timeline.end_s == pytest.approx(done.now)
    found = {"overlapped": figures(done, all_work(made, priced, 12).bounds(priced))}
    root = ElementTree.fromstring(draw([timeline], found, "a < b & c"))
    lanes = [text for one in root.iter(f"{SVG}text") if (text := one.text or "").startswith(("engine", "learner"))]
    assert len([lane for lane in lanes if lane.startswith("engine")]) == min(engines, 12)
    assert "7 learners" in {one.text for one in root.iter(f"{SVG}text")}
