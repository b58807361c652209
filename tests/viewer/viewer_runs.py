"""Run folders for the viewer's tests, written file by file in the layout of a run."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EPISODES = pa.schema(
    [
        ("step", pa.int64()),
        ("episode", pa.string()),
        ("task", pa.string()),
        ("outcome", pa.string()),
        ("answer", pa.string()),
        ("team_score", pa.float64()),
        ("num_turns", pa.int32()),
        ("record", pa.string()),
    ]
)
METRICS = pa.schema([("step", pa.int64()), ("key", pa.string()), ("value", pa.float64())])
CONFIG = """name = "{name}"
seed = {seed}
steps = {steps}
sharing = "shared"
[workflow]
name = "solve_verify_correct"
[algorithm]
name = "agent_grpo"
[model]
model = "builtin:tiny"
[roles.solver]
[roles.verifier]
[roles.corrector]
"""
ROLES = ("solver", "verifier", "corrector")


def make_run(folder: Path, *, steps: int = 3, tasks: int = 2, peers: int = 4, seed: int = 0, of: int = 0) -> Path:
    """A run of `steps` steps (of `of` planned) with `tasks * peers` episodes in each; unfinished, as while it runs."""
    for name in ("metrics", "episodes", "checkpoints"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CONFIG.format(name=folder.name, seed=seed, steps=of or steps))
    (folder / "environment.json").write_text(json.dumps({"python": "3.11.7", "cpus": 2}))
    for step in range(1, steps + 1):
        add_step(folder, step, tasks=tasks, peers=peers, seed=seed)
    return folder


def add_step(folder: Path, step: int, *, tasks: int = 2, peers: int = 4, seed: int = 0) -> None:
    """One more step, its files renamed into place."""
    rows = [row for task in range(tasks) for row in task_rows(step, task, peers, seed)]
    write(folder / "episodes" / f"{step:08d}-{step:08d}.parquet", rows, EPISODES)
    values = step_metrics(step, rows, seed)
    table = [{"step": step, "key": key, "value": value} for key, value in values.items()]
    write(folder / "metrics" / f"{step:08d}-{step:08d}.parquet", table, METRICS)


def finish(folder: Path, steps: int) -> None:
    """The summary that ends a run, and its evaluations."""
    estimate = {"mean": 0.9, "low": 0.85, "high": 0.94, "n": 100, "num_tasks": 100}
    accuracy = {"before": estimate | {"mean": 0.5}, "after": estimate}
    summary = {
        "name": folder.name,
        "steps": steps,
        "wall_s": 12.5,
        "roles_to_policies": dict.fromkeys(ROLES, "shared"),
        "accuracy": accuracy,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "evaluations").mkdir(exist_ok=True)
    rows = [row | {"record": evaluated(row["record"])} for row in task_rows(0, 0, 3, 5)]
    write(folder / "evaluations" / "after.parquet", rows, EPISODES)


def evaluated(record: str) -> str:
    return json.dumps(json.loads(record) | {"rewards": {}, "advantages": {}})


def write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema, **options: Any) -> None:
    aside = path.with_name(f".{path.name}.tmp")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), aside, compression="zstd", **options)
    aside.replace(path)


def task_rows(step: int, task: int, peers: int, seed: int) -> Iterator[dict[str, Any]]:
    """The episodes of one task: the first peer's solution is wrong, found wrong and repaired; the others are right."""
    for index in range(peers):
        wrong = index == 0
        yield episode_row(step=step, task=f"sum:{step}:{task}", index=index, wrong=wrong, seed=seed)


def episode_row(
    *,
    step: int,
    task: str,
    index: int,
    wrong: bool,
    seed: int = 0,
    question: str = "7+5",
    texts: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One row; a wrong solution is followed by a verifier that says so and a corrector that repairs it."""
    name = f"{task}/s{step}/{index}"
    said = {"solver": "7+5=11" if wrong else "7+5=12", "corrector": "7+5=12"}
    said["verifier"] = f"check. Verdict: {'wrong' if wrong else 'correct'}"
    said |= texts or {}
    turns = [turn(name, "solver", "Solve 7+5", said["solver"], step, ("answer", "11" if wrong else "12"))]
    claim = ("verdict", "wrong" if wrong else "correct")
    turns.append(turn(name, "verifier", "Check 7+5", said["verifier"], step, claim, about=turns[-1]["id"]))
    if wrong:
        claim = ("answer", "12")
        turns.append(turn(name, "corrector", "Fix 7+5", said["corrector"], step, claim, about=turns[-1]["id"]))
    rng = random.Random(f"{name}{seed}")
    rewards = {t["id"]: 0.0 if wrong and t["key"][0] == "solver" else 1.0 for t in turns}
    record = {
        "graded": {
            "episode": {
                "id": name,
                "task": {"id": task, "question": question, "answer": "12", "source": "sums", "grader": "math"},
                "index": index,
                "turns": turns,
                "outcome": {"answer": "12", "figures": {"rounds": 1.0}, "valid": True, "reason": ""},
                "outcome_class": "ok",
                "failure": None,
                "attempt": 0,
                "step": step,
            },
            "team": {"status": "right", "score": 1.0, "detail": ""},
            "answers": {t["id"]: grade(rewards[t["id"]]) for t in turns if t["claim"]["kind"] == "answer"},
        },
        "rewards": {i: {"parts": {"correct": r}, "total": r, "team": False} for i, r in rewards.items()},
        "advantages": {i: 0.0 if i.endswith("verifier:0") else rng.uniform(-1, 1) for i in rewards},
    }
    return {
        "step": step,
        "episode": name,
        "task": task,
        "outcome": "ok",
        "answer": "12",
        "team_score": 1.0,
        "num_turns": len(turns),
        "record": json.dumps(record),
    }


def grade(score: float) -> dict[str, Any]:
    return {"status": "right" if score else "wrong", "score": score, "detail": ""}


def turn(
    episode: str, role: str, prompt: str, text: str, step: int, claim: tuple[str, str], about: str | None = None
) -> dict[str, Any]:
    length = 1 + len(text) % 30
    return {
        "id": f"{episode}/{role}:0",
        "key": [role, 0, 0],
        "policy": "shared",
        "messages": [{"role": "user", "content": prompt}],
        "prompt_ids": list(range(20, 32)),
        "completion": {
            "token_ids": [20 + i % 9 for i in range(length)],
            "logprobs": [-0.01 * (i * i % 300) for i in range(length)],
            "versions": [step - 1] * length,
            "stop": "eos",
        },
        "text": text,
        "claim": {"kind": claim[0], "value": claim[1]},
        "about": about,
        "parent": about,
        "candidate": 0,
        "peers": f"{episode}/{role}",
    }


def step_metrics(step: int, rows: list[dict[str, Any]], seed: int) -> dict[str, float]:
    rng = random.Random(f"{step} {seed}")
    grown = 1 - math.exp(-step / 40)
    values = {"episodes/started": float(len(rows)), "reward/team": 0.5 + 0.45 * grown + rng.gauss(0, 0.01)}
    values |= {"engine/tokens": 7000.0 + step, "engine/tokens_per_s": 9000.0, "policy/shared/version": float(step)}
    for number, role in enumerate(ROLES):
        base = 0.4 + 0.1 * number
        values[f"behaviour/{role}/truncated"] = 0.0
        values[f"behaviour/{role}/accuracy"] = base + 0.4 * grown + rng.gauss(0, 0.02)
        values[f"behaviour/{role}/length"] = 5.0 * (number + 1)
        values[f"reward/{role}/total"] = base + 0.4 * grown + rng.gauss(0, 0.02)
        values[f"dynamics/{role}/grad_norm"] = abs(rng.gauss(0.2, 0.05))
        values[f"dynamics/{role}/mass_share"] = 1 / 3
    if step % 10 == 0:
        values |= {"validation/team": 0.5 + 0.4 * grown, "validation/team_low": 0.45, "validation/team_high": 0.95}
    return values | {"time/generate_s": 0.5, "time/learn_s": 0.4}
