"""The schedules of agentic groups on this machine: barrier, pipeline, pipeline in segments, overlapped; equal tokens.

Every contender trains recipes/marsrl_tiny.toml (the default model, 16 tasks a step) under its own schedule until
`TOKENS` are generated, without evaluation; they take turns in each repeat. `first_update_s`: from the start of the
first step to the first published update. `updates_per_minute`: optimizer steps over the time of all steps; they differ
in size, so `tokens_trained_per_s` stands beside. Idle shares: of the time of all steps, what the engine did not
generate in, and what the learner did not learn in. Overlapped, generation goes on while the learner works, so that the
engine's idle share is not to be had from the clock of the loop, and none is given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from figures import Figure, figure, ratio, take_turns

from rolecall.run_folder import RunFolder

PEERS: dict[str, str] = {}
RECIPES = Path(__file__).resolve().parent.parent / "recipes"
TOKENS = 80_000
SEGMENT_TOKENS = 16
SCHEDULES = ("barrier", "pipeline", "pipeline_segments", "overlapped")
MEASURES = {
    "first_update_s": "s",
    "updates_per_minute": "1/min",
    "tokens_per_s": "tokens/s",
    "tokens_trained_per_s": "tokens/s",
    "engine_idle_share": "share",
    "learner_idle_share": "share",
}
FIGURES = {
    f"{schedule}/{measure}": f"{measure.replace('_', ' ')}, {schedule}"
    for schedule in SCHEDULES
    for measure in MEASURES
    if (schedule, measure) != ("overlapped", "engine_idle_share")
} | {
    f"{schedule}/speed_up": f"tokens a second of {schedule} over those of the barrier"
    for schedule in SCHEDULES
    if schedule != "barrier"
}


def recipe(schedule: str, folder: str) -> str:
    """The recipe of one contender, to lie in `folder`: the demo's, with the algorithm and the schedule."""
    table = [f'mode = "{schedule}"']
    if schedule == "pipeline_segments":
        table.append(f"segment_tokens = {SEGMENT_TOKENS}")
    if schedule == "overlapped":
        table += ["update_rows = 1152", "max_staleness = 2"]
    loss = ', loss = { ratio = "token", clipped = true, correction = "decoupled" }' if schedule == "overlapped" else ""
    return "\n".join(
        [
            f'extends = "{os.path.relpath(RECIPES / "demo.toml", folder)}"',
            "steps = 1000000",
            f"token_budget = {TOKENS}",
            f"deterministic = {'false' if schedule == 'overlapped' else 'true'}",
            f'algorithm = {{ name = "marsrl", n = 8, k = 2, stages = 5{loss} }}',
            "schedule = { " + ", ".join(table) + " }",
            "rollout = { tasks_per_step = 16, max_concurrent = 1152 }",
            "evaluation = { every_steps = 0, greedy = false }",
            "tasks.sizes = { test = 0, validation = 0 }",
            "checkpoint = { every_steps = 1000000 }",
            "engine = { workers = 1 }",
        ]
    )


def measure(schedule: str, found: dict[str, dict[str, list[float]]]) -> float:
    """Train one contender; its figures go to `found`. Returns tokens a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{schedule}.toml"
        path.write_text(recipe(schedule, folder))
        command = [sys.executable, "-m", "rolecall.cli", "train", str(path), "--run", f"{folder}/run"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        rows = RunFolder.open(Path(folder) / "run").read_metrics()
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for step, key, value in rows:
        steps[step][key] = value
    spans = {step: sum(v for k, v in row.items() if k.startswith("time/")) for step, row in steps.items()}
    total = sum(spans.values())
    updates = {step: row.get("learner/shared/optimizer_steps", 0.0) for step, row in steps.items()}
    first = min(step for step, count in updates.items() if count)

    def over(key: str) -> float:
        return sum(row.get(key, 0.0) for row in steps.values())

    figures = {
        "first_update_s": sum(seconds for step, seconds in spans.items() if step <= first),
        "updates_per_minute": 60 * sum(updates.values()) / total,
        "tokens_per_s": over("engine/tokens") / total,
        "tokens_trained_per_s": over("learner/shared/tokens") / total,
        "engine_idle_share": 1 - over("time/generate_s") / total,
        "learner_idle_share": 1 - over("time/learn_s") / total,
    }
    for name, value in figures.items():
        found[schedule][name].append(value)
    return figures["tokens_per_s"]


def run(repeats: int) -> dict[str, Figure]:
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    contenders: dict[str, Callable[[], float]] = {name: partial(measure, name, found) for name in SCHEDULES}
    speeds = take_turns(contenders, repeats, warm_up=0)
    figures = {
        f"{schedule}/{name}": figure(values, MEASURES[name])
        for schedule, measures in found.items()
        for name, values in measures.items()
        if (schedule, name) != ("overlapped", "engine_idle_share")
    }
    return figures | {
        f"{name}/speed_up": ratio(values, speeds["barrier"]) for name, values in speeds.items() if name != "barrier"
    }


if __name__ == "__main__":
    print(json.dumps(run(1), indent=1))
