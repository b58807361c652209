"""Benchmarks side by side with spread: `python benchmarks/run.py NAME... [--json] [--repeats N]`; `--list` names them.

Each benchmark runs in a process of its own, its contenders in turns. A figure is the median over the repeats, with the
lowest and the highest: `{value, low, high, unit}`. With `--json` the standard output is one flat object from figure
name to figure; command, machine, versions and what is missing go to the standard error. Read ratios rather than
seconds: they were measured together, and a busy machine slows both sides.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figure, machine, missing

REPEATS = 7
BENCHMARKS = {  # name: its module and a line
    "step_trl": ("step_trl", "a training step of one agent against TRL's GRPOTrainer"),
    "step_comlrl": ("step_comlrl", "a two-role training step against CoMLRL's MAGRPO"),
    "engine_generate": ("engine_generate", "the local engine against Transformers' generate"),
    "scripted_10000": ("scripted_10000", "10,000 concurrent scripted episodes: time and memory a turn"),
    "dynamics": ("dynamics_share", "what the dynamics take of a training step"),
    "interventions": ("interventions", "what interventions by role take of an update"),
    "schedules": ("schedules", "agentic groups under barrier, pipeline, segments and overlapped, at equal tokens"),
    "code_tests": ("code_tests", "tests of programs: warm sandboxes and the order of work against a fresh interpreter"),
    "math_answers": ("math_answers", "mathematical answers graded by the pool, against math-verify alone"),
    "viewer": ("viewer_first_page", "how long a page of the viewer takes to open: 500 steps, 100,000 turns"),
    "simulator_ulorl": ("simulator_ulorl", "UloRL's step times by segments, fitted and predicted on a simulated clock"),
    "simulator_bound": (
        "simulator_bound",
        "the four schedules against the lower bound, simulated, up to 1,024 engines",
    ),
    "simulator_events": ("simulator_events", "what the scheduler costs an event, at 1,024 engines"),
}


def module(name: str) -> Any:
    return importlib.import_module(BENCHMARKS[name][0])


def listing() -> str:
    """Every benchmark with a line, and under it every figure with one."""
    lines = []
    for name, (_, line) in BENCHMARKS.items():
        lines.append(f"{name}: {line}")
        lines += [f"  {name}/{figure}  {what}" for figure, what in module(name).FIGURES.items()]
    return "\n".join(lines)


def run_here(name: str, repeats: int) -> dict[str, Figure]:
    """The figures of one benchmark, under names that begin with its own."""
    found = module(name).run(repeats)
    return {f"{name}/{figure}": value for figure, value in found.items()}


def run_apart(name: str, repeats: int) -> dict[str, Figure] | None:
    """The same in a process of its own; None when it failed, which its own words on the standard error explain."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, __file__, name, "--repeats", str(repeats), "--into", str(out)]
        environment = os.environ | {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=environment, stdout=sys.stderr, check=False)
        return json.loads(out.read_text()) if done.returncode == 0 else None


def table(found: dict[str, Figure]) -> str:
    width = max(map(len, found), default=0)
    return "\n".join(
        f"{name:{width}}  {one['value']:>12,.3f}  [{one['low']:,.3f}, {one['high']:,.3f}] {one['unit']}"
        for name, one in found.items()
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (none: all of them)")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and their figures, a line each")
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output, and nothing else")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"how often each side is measured ({REPEATS})")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown or options.repeats < 1:
        wrong = f"no benchmark is called {unknown[0]!r}" if unknown else f"--repeats is {options.repeats}"
        parser.error(f"{wrong}; wanted some of {', '.join(BENCHMARKS)}, and 1 or more repeats")
    if options.list:
        print(listing())
        return 0
    names = options.names or list(BENCHMARKS)
    if options.into is not None:
        options.into.write_text(json.dumps(run_here(names[0], options.repeats)))
        return 0
    say("\n".join([f"command: python {shlex.join(sys.argv)}", *machine(), f"repeats: {options.repeats}"]))
    found: dict[str, Figure] = {}
    failed = []
    for name in names:
        absent = missing(module(name).PEERS)
        if absent is not None:
            say(f"{name}: left out, its peer is not installed; {absent}")
            continue
        begun = time.perf_counter()
        figures = run_apart(name, options.repeats)
        failed += [name] if figures is None else []
        found |= figures or {}
        say(f"{name}: {'failed' if figures is None else 'done'} after {time.perf_counter() - begun:.0f} s")
    print(json.dumps(found) if options.json else table(found))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
