"""A training step of two agents: ours against CoMLRL's MAGRPO, on the CPU, in turns.

Two agents with weights of their own answer one prompt, 8 times each; one reward for both, under which no advantage is
0; 16 prompts and one optimizer step an agent in every step of both (CoMLRL's rollout buffer holds as many). CoMLRL
works through the prompts one by one: that is how it is made. It runs with two threads and with one, and is compared at
the better of the two. Ours is as configured by default.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from figures import Figure, figure, ratio, take_turns, timed

PEERS = {"comlrl": "comlrl==1.4.3", "wandb": "wandb", "accelerate": "accelerate", "datasets": "datasets"}
PROMPTS, GROUP, AGENTS, MAX_TOKENS = 16, 8, 2, 8
FIGURES = {
    "ratio": "our agent completions a second over CoMLRL's at its better number of threads (aim: 5)",
    "ours": "agent completions a second of our two-role step",
    "comlrl_1_thread": "agent completions a second of MAGRPO, PyTorch with one thread",
    "comlrl_2_threads": "agent completions a second of MAGRPO, PyTorch with two threads",
    "tokens/ours": "sampled tokens a completion, ours",
    "tokens/comlrl": "sampled tokens a completion, CoMLRL's, without the end token",
}


class Magrpo:
    """CoMLRL's trainer, a step of `PROMPTS` prompts at a time."""

    def __init__(self, model: str, questions: list[str]) -> None:
        from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer
        from own_step import solver_messages
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(model)
        self.tokenizer, self.questions, self.at = tokenizer, questions, 0
        self.lengths: list[int] = []

        def lottery(first: list[str], second: list[str], *, batch_items: Any = None) -> list[float]:
            self.lengths += [len(tokenizer(text).input_ids) for text in (*first, *second)]
            return [random.random() for _ in first]

        def prompt(item: dict[str, Any]) -> str:
            messages = solver_messages(item["prompt"])
            return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

        self.trainer = MAGRPOTrainer(
            agents=[AutoModelForCausalLM.from_pretrained(model) for _ in range(AGENTS)],
            num_agents=AGENTS,
            tokenizer=[tokenizer] * AGENTS,
            reward_func=lottery,
            formatters=[prompt] * AGENTS,
            train_dataset=None,
            args=MAGRPOConfig(
                num_train_epochs=1, agent_learning_rate=1e-6, num_agents=AGENTS, agent_devices="cpu",
                num_generations=GROUP, max_new_tokens=MAX_TOKENS, temperature=1.0, top_p=1.0, top_k=None, num_turns=1,
                eval_interval=0, rollout_buffer_size=PROMPTS,
            ),
        )  # fmt: skip
        self.trainer.verbose = False

    def step(self, threads: int) -> float:
        import torch
        from datasets import Dataset

        questions = [self.questions[(self.at + i) % len(self.questions)] for i in range(PROMPTS)]
        self.at += PROMPTS
        self.trainer.train_dataset = Dataset.from_dict({"prompt": questions})
        torch.set_num_threads(threads)
        spent = timed(self.trainer.train)
        torch.set_num_threads(2)
        return spent


def run(repeats: int) -> dict[str, Figure]:
    os.environ.setdefault("WANDB_MODE", "disabled")
    from own_step import TINY, OwnStep

    from rolecall.engines.specs import resolve_model

    with tempfile.TemporaryDirectory() as folder:
        settings = {"workflow": {"name": "own_step:Pair"}}
        ours = OwnStep(
            Path(folder) / "ours", model=TINY, tasks_per_step=PROMPTS, max_tokens=MAX_TOKENS, settings=settings
        )
        try:
            magrpo = Magrpo(resolve_model(TINY), ours.questions)
            tokens: list[float] = []

            def step() -> float:
                spent = ours.step()
                assert ours.num_completions == PROMPTS * GROUP * AGENTS, ours.run.progress.notes
                tokens.append(ours.num_tokens / ours.num_completions)
                return spent

            seconds = take_turns({"ours": step, "2": lambda: magrpo.step(2), "1": lambda: magrpo.step(1)}, repeats)
        finally:
            ours.close()
    completions = PROMPTS * GROUP * AGENTS
    rates = {name: [completions / spent for spent in values] for name, values in seconds.items()}
    best = min((seconds["1"], seconds["2"]), key=statistics.median)
    return {
        "ratio": ratio(best, seconds["ours"]),
        "ours": figure(rates["ours"], "completions/s"),
        "comlrl_1_thread": figure(rates["1"], "completions/s"),
        "comlrl_2_threads": figure(rates["2"], "completions/s"),
        "tokens/ours": figure(tokens, "tokens"),
        "tokens/comlrl": figure([statistics.mean(magrpo.lengths)], "tokens"),
    }
