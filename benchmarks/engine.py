"""How fast tokens come: Transformers' `generate` against the local engine, side by side in one run.

    python benchmarks/engine.py [--rows 64 256] [--new 64] [--repeats 5] [--json]

A random Qwen3 of 0.8 million parameters, float32, prompts of 16 tokens, no end token, sampling at temperature 1 with
log-probabilities. Contenders take turns in each repeat, so that a busy machine slows all of them; read the ratios. Each
figure is the median over the repeats with the lowest and the highest. `cpu_ratio` compares the processor time of those
that run in this process, which other jobs on the machine disturb less than the clock.

- `generate`: Transformers' own loop with a dynamic cache, one process of two threads, and of one.
- `generic`: the engine in this process, one thread, the model's own forward pass.
- `fast`: the same with the engine's forward pass of the Llama family.
- `workers`: the engine as it is by default, two processes of one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from rolecall.engines.base import Request
from rolecall.engines.local import LocalEngine
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.records import Key, Sampling, Task

PROMPT_TOKENS = 16
VOCAB = 64
NEVER = 1 << 30  # an end token that no model has
TASK = Task(id="bench", question="", answer=None)

Contender = Callable[[int, int], None]  # (rows, new tokens)


def make_model(folder: str) -> str:
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def prompts(rows: int) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(rows)
    ids = torch.randint(1, VOCAB, (rows, PROMPT_TOKENS), generator=generator)
    return [tuple(row) for row in ids.tolist()]


def transformers_generate(folder: str, threads: int) -> Contender:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def run(rows: int, new: int) -> None:
        torch.set_num_threads(threads)
        ids = torch.tensor(prompts(rows))
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=new, min_new_tokens=new,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        logits = torch.stack(out.logits, dim=1)
        torch.log_softmax(logits, dim=-1).gather(-1, out.sequences[:, PROMPT_TOKENS:, None])
        torch.set_num_threads(1)

    return run


def engine_generate(engine: LocalEngine) -> Contender:
    def run(rows: int, new: int) -> None:
        requests = [
            Request(
                policy="p",
                prompt_ids=prompt,
                sampling=Sampling(max_tokens=new),
                seed=i,
                key=Key("solver", 0, 0),
                task=TASK,
                messages=(),
                end_ids=(NEVER,),
            )
            for i, prompt in enumerate(prompts(rows))
        ]
        replies: list[Any] = asyncio.run(engine.generate(requests))
        assert all(len(reply.token_ids) == new for reply in replies)

    return run


def measure(
    contenders: dict[str, Contender], rows: int, new: int, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Tokens a second by the clock and by processor time, one figure a repeat of each contender, after a warm-up."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    by_cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats + 1):
        for name, run in contenders.items():
            begin, begin_cpu = time.perf_counter(), time.process_time()
            run(rows, new)
            if repeat:
                speeds[name].append(rows * new / (time.perf_counter() - begin))
                by_cpu[name].append(rows * new / (time.process_time() - begin_cpu))
    return speeds, by_cpu


def summary(values: list[float], unit: str) -> dict[str, Any]:
    return {"value": statistics.median(values), "low": min(values), "high": max(values), "unit": unit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        spec = [PolicySpec(name="p", kind="model", model=make_model(folder))]
        engines = {
            "generic": LocalEngine(spec, LocalSettings(mode="inline", fast=False, max_batch_rows=512)),
            "fast": LocalEngine(spec, LocalSettings(mode="inline", max_batch_rows=512)),
            "workers": LocalEngine(spec, LocalSettings(workers=2, max_batch_rows=512)),
        }
        contenders = {
            "generate_2_threads": transformers_generate(folder, 2),
            "generate": transformers_generate(folder, 1),
            **{name: engine_generate(engine) for name, engine in engines.items()},
        }
        for rows in options.rows:
            speeds, by_cpu = measure(contenders, rows, options.new, options.repeats)
            for name, values in speeds.items():
                found[f"tokens_per_s/{name}/{rows}"] = summary(values, "tokens/s")
            for top, bottom in (
                ("generic", "generate"), ("fast", "generate"), ("fast", "generic"), ("workers", "fast"),
                ("workers", "generate_2_threads"),
            ):  # fmt: skip
                ratios = [a / b for a, b in zip(speeds[top], speeds[bottom], strict=True)]
                found[f"ratio/{top}_over_{bottom}/{rows}"] = summary(ratios, "ratio")
                if top != "workers":
                    ratios = [a / b for a, b in zip(by_cpu[top], by_cpu[bottom], strict=True)]
                    found[f"cpu_ratio/{top}_over_{bottom}/{rows}"] = summary(ratios, "ratio")
        for engine in engines.values():
            engine.shut_down()
    if options.json:
        print(json.dumps(found))
        return
    for name, figure in found.items():
        print(f"{name:44s} {figure['value']:10.2f}  [{figure['low']:.2f}, {figure['high']:.2f}] {figure['unit']}")


if __name__ == "__main__":
    main()
