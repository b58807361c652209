"""The local engine against Transformers' `generate`: see `engine.py`, which has more contenders.

Here the engine as it is by default (two processes of one thread) against `generate` at its better number of threads.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack

from figures import Figure, figure, ratio, take_turns, timed

PEERS: dict[str, str] = {}
ROWS, NEW = (64, 256), 64
LINES = {
    "ratio": "tokens a second, the engine over `generate` at its better number of threads (aim: 2)",
    "engine": "tokens a second of the engine, two processes of one thread",
    "generate_1_thread": "tokens a second of `generate`, one thread",
    "generate_2_threads": "tokens a second of `generate`, two threads",
}
FIGURES = {f"{name}/{rows}": line for rows in ROWS for name, line in LINES.items()}


def run(repeats: int) -> dict[str, Figure]:
    import torch
    from engine import engine_generate, make_model, transformers_generate

    from rolecall.engines.local import LocalEngine
    from rolecall.engines.specs import LocalSettings, PolicySpec

    torch.set_num_threads(1)
    found: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        spec = [PolicySpec(name="p", kind="model", model=make_model(folder))]
        engine = LocalEngine(spec, LocalSettings(max_batch_rows=512))
        opened.callback(engine.shut_down)
        ours = engine_generate(engine)
        theirs = {threads: transformers_generate(folder, threads) for threads in (1, 2)}
        for rows in ROWS:
            seconds = take_turns(
                {
                    "engine": lambda rows=rows: timed(lambda: ours(rows, NEW)),
                    "generate_1_thread": lambda rows=rows: timed(lambda: theirs[1](rows, NEW)),
                    "generate_2_threads": lambda rows=rows: timed(lambda: theirs[2](rows, NEW)),
                },
                repeats,
            )
            best = min((seconds["generate_1_thread"], seconds["generate_2_threads"]), key=statistics.median)
            found[f"ratio/{rows}"] = ratio(best, seconds["engine"])
            for name, values in seconds.items():
                found[f"{name}/{rows}"] = figure((rows * NEW / spent for spent in values), "tokens/s")
    return found
