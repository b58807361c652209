"""The arms of MarsRL's ablations on the default model, at equal generated tokens, over several seeds.

    python benchmarks/marsrl_arms.py --out runs/marsrl-arms --seeds 0 1 2 3 4 --jobs 2

Arms are the recipes of recipes/marsrl_arms. Each run is a folder under --out: one that is finished is not run again,
one that was killed goes on from its checkpoint. Writes results.json and comparison.html (all runs, by arm), and
prints a Markdown table: means over seeds with 95 % intervals of Student's t, and each arm's difference from `full`,
paired by seed (the same test tasks, the same weights at the start).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rolecall.intervals import student_half_width
from rolecall.report import write_comparison

RECIPES = Path(__file__).resolve().parent.parent / "recipes" / "marsrl_arms"
ARMS = (
    "full",
    "solver_only",
    "verifier_corrector_only",
    "broadcast",
    "balanced",
    "random",
    "pipeline",
    "pipeline_segments",
)
FIGURES = {
    "team": ("team",),
    "solver alone": ("first_answer",),
    "team minus solver": ("margin",),
    "error recall": ("roles", "verifier", "recall"),
    "false alarms": ("roles", "verifier", "false_alarm"),
    "repaired": ("roles", "corrector", "repaired"),
    "kept right": ("roles", "corrector", "kept_right"),
}


def run_arm(arm: str, seed: int, out: Path, extra: Sequence[str]) -> dict[str, Any]:
    """Run or go on with one arm unless its summary is there; return the summary."""
    folder = out / f"{arm}-{seed}"
    if not (folder / "summary.json").is_file():
        begun = any((folder / "checkpoints").glob("step-*"))
        where = ["--resume", "--run", str(folder)] if begun else ["--run", str(folder), "--overwrite"]
        sets = [f"seed={seed}", *extra]
        command = ["train", str(RECIPES / f"{arm}.toml"), *where, *[part for one in sets for part in ("--set", one)]]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        with (out / f"{arm}-{seed}.log").open("a") as log:
            subprocess.run(
                [sys.executable, "-m", "rolecall.cli", *command], stdout=log, stderr=log, check=True, env=environment
            )
    return dict(json.loads((folder / "summary.json").read_text()))


def value(summary: dict[str, Any], when: str, path: Sequence[str]) -> float:
    at: Any = summary["evaluation"][when]["sampled"]
    for key in path:
        at = at.get(key, {})
    return float(at.get("mean", math.nan))


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean over seeds with the 95 % interval of Student's t; no interval from a single seed."""
    kept = [one for one in values if math.isfinite(one)]
    if not kept:
        return {"mean": math.nan, "low": math.nan, "high": math.nan, "n": 0}
    mean = statistics.fmean(kept)
    half = math.nan
    if len(kept) > 1:
        half = student_half_width(kept)
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": len(kept)}


def results(runs: dict[str, dict[int, dict[str, Any]]]) -> dict[str, Any]:
    """By arm: each figure before and after over seeds, the difference of the team from `full`, steps and tokens."""
    found: dict[str, Any] = {}
    for arm, by_seed in runs.items():
        row: dict[str, Any] = {
            name: {when: spread([value(s, when, path) for s in by_seed.values()]) for when in ("before", "after")}
            for name, path in FIGURES.items()
        }
        shared = [seed for seed in by_seed if seed in runs.get("full", {})]
        pairs = [value(by_seed[s], "after", ("team",)) - value(runs["full"][s], "after", ("team",)) for s in shared]
        row["minus full"] = spread(pairs)
        row["tokens"] = spread([s["tokens"]["generated"] for s in by_seed.values()])
        row["steps"] = spread([s["steps"] for s in by_seed.values()])
        row["wall_s"] = spread([s["wall_s"] for s in by_seed.values()])
        row["seeds"] = sorted(by_seed)
        found[arm] = row
    return found


def cell(estimate: dict[str, float], digits: int = 3) -> str:
    if not math.isfinite(estimate["mean"]):
        return "-"
    text = f"{estimate['mean']:.{digits}f}"
    if math.isfinite(estimate["low"]):
        text += f" [{estimate['low']:.{digits}f}, {estimate['high']:.{digits}f}]"
    return text


def table(found: dict[str, Any]) -> str:
    names = list(FIGURES)
    head = ["arm", "seeds", "team before", *[f"{name} after" for name in names], "team minus full", "steps", "tokens"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for arm, row in found.items():
        cells = [arm, str(len(row["seeds"])), cell(row["team"]["before"])]
        cells += [cell(row[name]["after"]) for name in names]
        cells += ["" if arm == "full" else cell(row["minus full"])]
        cells += [f"{row['steps']['mean']:.0f}", f"{row['tokens']['mean']:,.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("runs/marsrl-arms"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side, each with about one core")
    parser.add_argument("--set", dest="extra", action="append", default=[], help="key=value for every run")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, dict[int, dict[str, Any]]] = {arm: {} for arm in args.arms}
    jobs = [(arm, seed) for seed in args.seeds for arm in args.arms]  # by seed, so that a partial table compares
    with ThreadPoolExecutor(args.jobs) as pool:
        for (arm, seed), summary in zip(
            jobs, pool.map(lambda job: run_arm(*job, args.out, args.extra), jobs), strict=True
        ):
            runs[arm][seed] = summary
            print(f"{arm} seed {seed}: team {value(summary, 'after', ('team',)):.3f}", file=sys.stderr, flush=True)
    found = results(runs)
    (args.out / "results.json").write_text(json.dumps(found, indent=1))
    write_comparison(
        [args.out / f"{arm}-{seed}" for arm in args.arms for seed in args.seeds], args.out / "comparison.html"
    )
    print(table(found))


if __name__ == "__main__":
    main()
