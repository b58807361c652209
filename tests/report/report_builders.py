"""Small run folders in the file layout of rolecall, with whatever text and figures a test asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

ROLES = ("solver", "verifier", "corrector")
METRICS = pa.schema([("step", pa.int64()), ("key", pa.string()), ("value", pa.float64())])


def estimate(mean: float, half: float = 0.04, n: int = 500) -> dict[str, float]:
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": n, "num_tasks": n}


def evaluation(team: float, *, first: float = 0.4, roles: tuple[str, ...] = ROLES, step: int = 0) -> dict[str, Any]:
    sampled = {
        "team": estimate(team),
        "first_answer": estimate(first),
        "margin": estimate(team - first),
        "k": 1,
        "roles": {role: {"accuracy": estimate(team), "unparsed": estimate(0.0, 0.0)} for role in roles},
        "outcomes": {"ok": 499, "truncated": 0, "invalid": 0, "error": 1, "timeout": 0},
    }
    return {"step": step, "sampled": sampled, "greedy": {"team": estimate(team)}}


def turn(name: str, role: str, text: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "key": [role, 0, 0],
        "policy": "shared",
        "messages": [{"role": "user", "content": f"prompt of {name}"}],
        "prompt_ids": [1, 2, 3],
        "completion": {"token_ids": [4, 5], "logprobs": [-0.1, -0.2], "versions": [0, 0], "stop": "eos"},
        "text": text,
        "claim": None,
        "about": None,
        **changes,
    }


def row(
    name: str, *, task: str = "t1", step: int = 1, won: bool = True, turns: list[Any] | None = None, **record: Any
) -> dict[str, Any]:
    """One row of an episodes file."""
    turns = turns if turns is not None else [turn(f"{name}/s", "solver", "42")]
    status = "right" if won else "wrong"
    graded = {
        "episode": {
            "id": name,
            "task": {"id": task, "question": "6*7", "answer": "42"},
            "turns": turns,
            "outcome": {"answer": "42" if won else "41"},
            "outcome_class": "ok",
            "failure": None,
        },
        "team": {"status": status, "score": float(won), "detail": ""},
        "answers": {t["id"]: {"status": status} for t in turns if t["key"][0] == "solver"},
    }
    return {
        "step": step,
        "episode": name,
        "task": task,
        "outcome": "ok",
        "answer": "42",
        "team_score": float(won),
        "num_turns": len(turns),
        "record": json.dumps({"graded": graded, **record}),
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_metrics(folder: Path, values: Mapping[str, Mapping[int, float]]) -> None:
    rows = [(step, key, value) for key, by_step in values.items() for step, value in by_step.items()]
    (folder / "metrics").mkdir(exist_ok=True)
    for step in sorted({step for step, _, _ in rows}):
        own = [(s, k, v) for s, k, v in rows if s == step]
        table = pa.table(dict(zip(("step", "key", "value"), zip(*own, strict=True), strict=True)), schema=METRICS)
        pq.write_table(table, folder / "metrics" / f"{step:08d}-{step:08d}.parquet")


def usual_metrics(steps: int = 8, roles: tuple[str, ...] = ROLES) -> dict[str, dict[int, float]]:
    """Figures of a run in which nothing is wrong."""
    span = range(1, steps + 1)
    found: dict[str, dict[int, float]] = {
        "reward/team": {s: 0.5 + 0.4 * s / steps for s in span},
        "validation/team": {s: 0.5 + 0.4 * s / steps for s in span if s % 2 == 0},
        "validation/team_low": {s: 0.45 + 0.4 * s / steps for s in span if s % 2 == 0},
        "validation/team_high": {s: 0.55 + 0.4 * s / steps for s in span if s % 2 == 0},
        "episodes/started": dict.fromkeys(span, 64.0),
        "episodes/ok": dict.fromkeys(span, 64.0),
        "learner/shared/entropy": {s: 0.5 - 0.02 * s for s in span},
        "learner/shared/skipped_nonfinite": dict.fromkeys(span, 0.0),
        "parity/shared/max_abs_diff": dict.fromkeys(span, 1e-5),
        "time/learn_s": dict.fromkeys(span, 1.5),
    }
    for i, role in enumerate(roles):
        found |= {
            f"reward/{role}/total": {s: 0.4 + 0.05 * s + 0.01 * i for s in span},
            f"behaviour/{role}/truncated": dict.fromkeys(span, 0.0),
            f"behaviour/{role}/unparsed": dict.fromkeys(span, 0.01),
            f"behaviour/{role}/length": dict.fromkeys(span, 3.0 + i),
            f"behaviour/{role}/num_turns": dict.fromkeys(span, 64.0),
            f"credit/{role}/advantage_mass": dict.fromkeys(span, 20.0),
            f"credit/{role}/advantage_mass_share": dict.fromkeys(span, 1 / len(roles)),
            f"credit/{role}/zero_spread_share": dict.fromkeys(span, 0.2),
            f"dynamics/{role}/mass_share": dict.fromkeys(span, 1 / len(roles)),
            f"dynamics/{role}/grad_norm": dict.fromkeys(span, 0.3),
            **{f"dynamics/{role}/cosine/{other}": dict.fromkeys(span, 0.1) for other in roles if other != role},
        }
    return found


def make_run(
    path: Path,
    *,
    metrics: Mapping[str, Mapping[int, float]] | None = None,
    before: float | None = 0.5,
    after: float | None = 0.9,
    roles: tuple[str, ...] = ROLES,
    policies: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    episodes: list[dict[str, Any]] | None = None,
    evaluations: Mapping[str, list[dict[str, Any]]] | None = None,
    alarms: list[Any] | None = None,
) -> Path:
    """A run folder; `after=None` leaves it unfinished."""
    path.mkdir(parents=True)
    settings = {"name": path.name, "seed": 0, "steps": 8, "workflow": {"name": "solve_verify_correct"}}
    (path / "config.toml").write_text(tomli_w.dumps({**settings, **(config or {})}))
    (path / "environment.json").write_text(json.dumps({"python": "3.11", "packages": {"torch": "2.13"}}))
    write_metrics(path, usual_metrics(roles=roles) if metrics is None else metrics)
    if alarms is not None:
        (path / "alarms.json").write_text(json.dumps({"alarms": alarms}))
    if before is not None:
        (path / "evaluation_before.json").write_text(json.dumps(evaluation(before, roles=roles)))
    if after is not None:
        (path / "evaluation_after.json").write_text(json.dumps(evaluation(after, roles=roles, step=8)))
        summary = {
            "name": path.name,
            "roles_to_policies": policies or dict.fromkeys(roles, "shared"),
            "steps": 8,
            "wall_s": 61.0,
            "tokens": {"generated": 10, "trained": 9},
            "parity": {"max_abs_diff": 1e-5},
        }
        (path / "summary.json").write_text(json.dumps(summary))
    if episodes:
        write_rows(path / "episodes" / "00000001-00000001.parquet", episodes)
    for name, rows in (evaluations or {}).items():
        write_rows(path / "evaluations" / f"{name}.parquet", rows)
    return path
