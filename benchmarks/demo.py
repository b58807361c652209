"""The demo over several seeds: shared and isolated policies, and a single agent trained at equal generated tokens.

    python benchmarks/demo.py --out runs/demo-table --seeds 0 1 2

Each run is a folder under --out; one that is finished is not run again, so the table can be drawn from what is there.
Prints a Markdown table: accuracy on held-out tasks before and after, sampled and greedy, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
ARMS = ("shared", "isolated", "single")


def run_arm(arm: str, seed: int, out: Path, extra: list[str]) -> dict[str, Any]:
    """Run one arm unless its summary is there; return the summary."""
    folder = out / f"{arm}-{seed}"
    if not (folder / "summary.json").is_file():
        recipe = RECIPES / ("demo_single.toml" if arm == "single" else "demo.toml")
        command = ["train", str(recipe), "--run", str(folder), "--overwrite", "--set", f"seed={seed}"]
        if arm == "single":
            team = json.loads((out / f"shared-{seed}" / "summary.json").read_text())
            command += ["--set", f"token_budget={team['tokens']['generated']}"]
        else:
            command += ["--set", f"sharing={arm}"]
        for item in extra:
            command += ["--set", item]
        with (out / f"{arm}-{seed}.log").open("w") as log:
            subprocess.run([sys.executable, "-m", "rolecall.cli", *command], stdout=log, stderr=log, check=True)
    return dict(json.loads((folder / "summary.json").read_text()))


def interval(estimate: dict[str, float] | None) -> str:
    if not estimate or math.isnan(estimate["mean"]):
        return "-"
    return f"{estimate['mean']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def row(arm: str, seed: int, summary: dict[str, Any]) -> str:
    before, after = summary["evaluation"]["before"], summary["evaluation"]["after"]
    verifier = [side["sampled"]["roles"].get("verifier", {}) for side in (before, after)]
    corrector = [side["sampled"]["roles"].get("corrector", {}) for side in (before, after)]

    def pair(sides: list[dict[str, Any]], name: str) -> str:
        return " -> ".join(f"{side[name]['mean']:.2f}" if name in side else "-" for side in sides)

    apart = summary["accuracy"]["after"]["low"] > summary["accuracy"]["before"]["high"]
    cells = [
        arm,
        str(seed),
        interval(summary["accuracy"]["before"]),
        interval(summary["accuracy"]["after"]),
        "yes" if apart else "no",
        f"{before['greedy']['team']['mean']:.3f} -> {after['greedy']['team']['mean']:.3f}",
        interval(after["sampled"]["first_answer"]),
        interval(after["sampled"]["margin"]),
        pair(verifier, "recall"),
        pair(verifier, "false_alarm"),
        pair(verifier, "unparsed"),
        pair(corrector, "repaired"),
        f"{summary['tokens']['generated']:,}",
        f"{summary['wall_s']:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| arm | seed | team before | team after | apart | greedy team | solver after | team minus solver | error recall "
    "| false alarms | unparsed verdicts | repaired | tokens generated | wall s |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo-table"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--set", dest="extra", action="append", default=[], help="key=value for every run")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    print("|" + "---|" * (HEAD.count("|") - 1))
    for arm in args.arms:
        for seed in args.seeds:
            print(row(arm, seed, run_arm(arm, seed, args.out, args.extra)), flush=True)


if __name__ == "__main__":
    main()
