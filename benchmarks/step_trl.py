"""A training step of one agent: ours against TRL's GRPOTrainer, on the CPU, one after the other.

Same model, same prompts, groups of 8, temperature 1, whole-model AdamW, one optimizer step on fresh samples, a reward
under which no advantage is 0. TRL's own steps go on in its training loop; from its callback at the end of every second
step one of ours is made, so that both see the machine as it is in that minute. TRL runs with two threads and with one,
step about, and is compared at the better of the two; no gradient checkpointing, no logging, no checkpoints. Ours is as
configured by default: two engine processes of one thread, a learner with PyTorch's own number of threads.

A step goes from the prompts to weights that the next step samples from; ours includes its parity probe.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Figure, figure, ratio

PEERS = {"trl": "trl==1.16.0", "accelerate": "accelerate", "datasets": "datasets"}
SHAPES = {"64x64": (8, 64), "256x3": (32, 8)}  # prompts a step, most tokens; the shipped model answers in about 3
GROUP = 8
LINES = {
    "ratio": "our completions a second over TRL's at its better number of threads (aim: 2.5)",
    "ours": "completions a second of our step; no advantage is 0",
    "trl_1_thread": "completions a second of TRL's step, PyTorch with one thread",
    "trl_2_threads": "completions a second of TRL's step, PyTorch with two threads",
    "tokens/ours": "sampled tokens a completion, ours",
    "tokens/trl": "sampled tokens a completion, TRL's",
    "without_passes": "times our step is faster for leaving out units of advantage 0, where about 3 in 8 are",
    "part/collect": "share of our step that generating and grading take",
    "part/learn": "share of our step that the update takes",
    "part/publish": "share of our step that publishing and its parity probe take",
}
FIGURES = {f"{name}/{shape}": line for shape in SHAPES for name, line in LINES.items()}


class Trl:
    """TRL's trainer. `seconds` by number of threads; `between` is called after every second step."""

    def __init__(self, model: str, questions: list[str], prompts: int, max_tokens: int, folder: Path) -> None:
        self.model, self.questions, self.prompts, self.max_tokens = model, questions, prompts, max_tokens
        self.folder = folder
        self.num_tokens = self.num_completions = 0
        self.seconds: dict[int, list[float]] = {1: [], 2: []}

    def lottery(self, completion_ids: list[list[int]], **_: Any) -> list[float]:
        self.num_tokens += sum(map(len, completion_ids))
        self.num_completions += len(completion_ids)
        return [random.random() for _ in completion_ids]

    def train(self, repeats: int, between: Callable[[bool], None]) -> None:
        """`repeats` steps with each number of threads, after one each that warms up."""
        import torch
        from datasets import Dataset
        from own_step import solver_messages
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer

        def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
            return self.lottery(completion_ids)

        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32),
            reward_funcs=reward,
            processing_class=AutoTokenizer.from_pretrained(self.model),
            train_dataset=Dataset.from_dict({"prompt": [solver_messages(question) for question in self.questions]}),
            callbacks=[self.turns(between)],
            args=GRPOConfig(
                output_dir=str(self.folder), use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False,
                per_device_train_batch_size=self.prompts * GROUP, num_generations=GROUP,
                max_completion_length=self.max_tokens, temperature=1.0, learning_rate=1e-6, max_steps=2 * repeats + 2,
                logging_steps=10_000, save_strategy="no", report_to=[], disable_tqdm=True, seed=0,
            ),
        )  # fmt: skip
        torch.set_num_threads(2)
        trainer.train()
        torch.set_num_threads(2)

    def turns(self, between: Callable[[bool], None]) -> Any:
        import torch
        from transformers import TrainerCallback

        trl = self

        class Turns(TrainerCallback):  # type: ignore[misc]
            begun = 0.0

            def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                self.begun = time.perf_counter()

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                spent, threads, warm_up = (
                    time.perf_counter() - self.begun,
                    torch.get_num_threads(),
                    state.global_step <= 2,
                )
                if not warm_up:
                    trl.seconds[threads].append(spent)
                torch.set_num_threads(2)
                if threads == 1:
                    between(warm_up)
                else:
                    torch.set_num_threads(1)
                self.begun = time.perf_counter()

        return Turns()


def one_shape(model: str, shape: str, repeats: int, folder: Path) -> dict[str, Figure]:
    from own_step import OwnStep

    from rolecall.engines.specs import resolve_model

    prompts, max_tokens = SHAPES[shape]
    sizes: dict[str, Any] = {"model": model, "tasks_per_step": prompts, "max_tokens": max_tokens}
    ours = OwnStep(folder / "ours", **sizes)
    skips = {
        skip: OwnStep(
            folder / f"{skip}", even=3, settings={"learner": {"lr": 1e-6, "skip_zero_advantage": skip}}, **sizes
        )
        for skip in (True, False)
    }
    seconds: list[float] = []
    parts: dict[str, list[float]] = {"collect": [], "learn": [], "publish": []}
    skipping: dict[bool, list[float]] = {True: [], False: []}
    tokens: list[float] = []

    def between(warm_up: bool) -> None:
        spent = ours.step()
        assert ours.num_completions == prompts * GROUP, ours.run.progress.notes
        with_skips = {skip: one.step() for skip, one in skips.items()}
        if warm_up:
            return
        seconds.append(spent)
        tokens.append(ours.num_tokens / ours.num_completions)
        for name, values in parts.items():
            values.append(ours.parts[name] / spent)
        for skip, value in with_skips.items():
            skipping[skip].append(value)

    trl = Trl(resolve_model(model), ours.questions, prompts, max_tokens, folder / "trl")
    try:
        trl.train(repeats, between)
    finally:
        for one in (ours, *skips.values()):
            one.close()
    best = min(trl.seconds.values(), key=statistics.median)
    return {
        "ratio": ratio(best, seconds),
        "ours": figure((prompts * GROUP / spent for spent in seconds), "completions/s"),
        "trl_1_thread": figure((prompts * GROUP / spent for spent in trl.seconds[1]), "completions/s"),
        "trl_2_threads": figure((prompts * GROUP / spent for spent in trl.seconds[2]), "completions/s"),
        "tokens/ours": figure(tokens, "tokens"),
        "tokens/trl": figure([trl.num_tokens / trl.num_completions], "tokens"),
        "without_passes": ratio(skipping[False], skipping[True]),
        **{f"part/{name}": figure(values, "share") for name, values in parts.items()},
    }


def run(repeats: int) -> dict[str, Figure]:
    from own_step import TINY, endless_model

    found: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {"64x64": endless_model(folder / "endless"), "256x3": TINY}
        for shape in SHAPES:
            figures = one_shape(models[shape], shape, repeats, folder / shape)
            found |= {f"{name}/{shape}": value for name, value in figures.items()}
    return found
