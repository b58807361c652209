"""What the dynamics cost: an update with gradients by role watched and not, side by side in one run.

    python benchmarks/dynamics.py [--repeats 7] [--turns 384] [--json]

A random Qwen3 of 0.8 million parameters, float32, one thread; three roles of unequal lengths in one policy, as in the
demo. `on`, `off` (`dynamics.gradients = false`) and `sketch` take turns in each repeat and do the same updates on the
same samples, and end with the same weights bit for bit, which is checked. Times are processor seconds of this process,
which other jobs on the machine disturb less than the clock. Each figure is the median over the repeats with the lowest
and the highest.

- `update_on_s`, `update_off_s`: one update of all turns.
- `pair_share`: (on - off) / on, pair by pair: gradients by role, cosines, the update applied, persistence. It is the
  difference of two large numbers, so it needs a quiet machine.
- `gradients_share`: the same, with only those sections timed that the two do differently. It is a share of the update
  alone; of a whole step, with generation, it is less.
- `sketch_share`: the same with role gradients as count-sketches, as above `max_parameters` (of 2^16 numbers here, for
  2^20 are more than this model has).
- `copies_share`: (on - off) / on with the pass over copies of three voters in each update, timed alone; an aggregator
  has a quarter of the turns. In a run it is due every `copies_every_steps` steps.
- `probe_s`: the KL to base and last version on a full probe set of three roles, in a step in which it is due.
- `probe_share`: the same over the updates between two such steps, at the default cadence.
- `adapter_...`: the same for a LoRA adapter of rank 16 on the same model.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from rolecall.dynamics.drift import ProbeRow
from rolecall.dynamics.monitor import DynamicsMonitor
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.dynamics.sketch import CountSketch
from rolecall.engines.specs import LoraSpec, PolicySpec
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.policies.build import build_policies
from rolecall.records import Sample, Span

VOCAB = 64
ROLES = {"solver": (10, 3), "verifier": (14, 15), "corrector": (14, 3)}
"""Tokens of a prompt and of a completion, about as in the demo."""

Figure = dict[str, Any]


def make_model(folder: str) -> str:
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def make_learner(folder: str, kind: str) -> Learner:
    lora = LoraSpec(rank=16, alpha=32.0) if kind == "adapter" else None
    spec = PolicySpec(name="team", kind="adapter" if lora else "model", model=folder, lora=lora)
    learner = build_policies([spec], LearnerConfig(lr=1e-4), device="cpu")["team"].learner
    assert learner is not None
    return learner


def make_samples(turns: int, seed: int) -> list[Sample]:
    draw = random.Random(seed)
    samples = []
    for number in range(turns):
        role = list(ROLES)[number % len(ROLES)]
        prompt, completion = ROLES[role]
        size = prompt + completion
        span = Span(turn_id=str(number), start=prompt, stop=size, advantage=draw.choice((-1.0, 1.0)), version=0)
        samples.append(
            Sample(
                policy="team",
                role=role,
                copy=0,
                token_ids=tuple(draw.randrange(1, VOCAB) for _ in range(size)),
                logprobs=(0.0,) * prompt + (-4.0,) * completion,
                spans=(span,),
                episode_id=str(number),
            )
        )
    return samples


def probe_set(monitor: DynamicsMonitor) -> None:
    """A full probe set of every role."""
    draw = random.Random(0)
    settings = monitor.settings
    for role, (prompt, _) in ROLES.items():
        size = settings.probe_positions // settings.probe_turns
        monitor.rows[role] = [
            ProbeRow(
                token_ids=tuple(draw.randrange(1, VOCAB) for _ in range(prompt + size)),
                positions=tuple(range(prompt, prompt + size)),
            )
            for _ in range(settings.probe_turns)
        ]


def seconds(call: Callable[[], Any]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def measure(folder: str, kind: str, turns: int, repeats: int) -> dict[str, list[float]]:
    """Every figure, once a repeat."""
    on, off, sketched = (make_learner(folder, kind) for _ in range(3))
    monitor = DynamicsMonitor({"team": on}, dict.fromkeys(ROLES, "team"))
    off.watch_with(DynamicsSettings(gradients=False))
    sketched.watch_with(DynamicsSettings(max_parameters=0))
    sketched.watch.sketch = CountSketch(2**16)
    learners = [on, off, sketched]
    for learner in learners:
        learner.watch.clock = time.process_time
    probe_set(monitor)
    every = monitor.settings.probe_every_steps
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for repeat in range(repeats + 1):
        samples = make_samples(turns, repeat)
        for learner in learners:
            learner.watch.seconds = 0.0
        spent = {id(one): seconds(partial(one.update, samples, 0)) for one in learners[:: 1 if repeat % 2 else -1]}
        clocked, shortened = (one.watch.seconds - off.watch.seconds for one in (on, sketched))
        probe = seconds(lambda: (monitor.before_update(every, []), monitor.after_update(every)))
        if repeat == 0:  # warm-up
            continue
        note("update_on_s", spent[id(on)])
        note("update_off_s", spent[id(off)])
        note("pair_share", (spent[id(on)] - spent[id(off)]) / spent[id(on)])
        note("gradients_share", clocked / spent[id(on)])
        note("sketch_share", shortened / spent[id(sketched)])
        note("copies_share", copies_share(off, voting(samples)))
        note("probe_s", probe)
        note("probe_share", probe / (every * spent[id(on)]))
    same_weights(on, off)
    same_weights(on, sketched)
    return found


def same_weights(one: Learner, other: Learner) -> None:
    for name, parameter in one.parameters.items():
        assert torch.equal(parameter, other.parameters[name]), f"dynamics changed {name}"


def voting(samples: Sequence[Sample]) -> list[Sample]:
    """The same samples as those of three voters and an aggregator."""
    return [
        replace(s, role="voter" if i % 4 else "aggregator", copy=max(i % 4 - 1, 0), episode_id=str(i // 4))
        for i, s in enumerate(samples)
    ]


def copies_share(learner: Learner, samples: Sequence[Sample]) -> float:
    """What the pass over the copies takes of an update in which it is due; the weights are as they were afterwards."""
    kept = {name: parameter.detach().clone() for name, parameter in learner.parameters.items()}
    state, watch = copy.deepcopy(learner.state_dict()), learner.watch
    learner.watch_with(DynamicsSettings(copies_every_steps=1))
    learner.watch.clock = time.process_time
    spent = seconds(lambda: learner.update(samples, 1))
    share = learner.watch.copies_seconds / spent
    learner.watch = watch
    learner.load_state_dict(state)
    with torch.no_grad():
        for name, parameter in learner.parameters.items():
            parameter.copy_(kept[name])
    return share


def summary(values: Sequence[float], unit: str) -> Figure:
    return {"value": statistics.median(values), "low": min(values), "high": max(values), "unit": unit}


def figures(repeats: int = 7, turns: int = 384) -> dict[str, Figure]:
    """All figures by name."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    result: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_model(folder)
        for kind, prefix in (("model", ""), ("adapter", "adapter_")):
            for name, values in measure(folder, kind, turns, repeats).items():
                unit = "s" if name.endswith("_s") else "share"
                result[f"{prefix}{name}"] = summary(values, unit)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--turns", type=int, default=384)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = figures(arguments.repeats, arguments.turns)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, figure in found.items():
        print(f"{name:32} {figure['value']:9.4f} [{figure['low']:.4f}, {figure['high']:.4f}] {figure['unit']}")


if __name__ == "__main__":
    main()
