"""Our side of the step benchmarks: a whole training step of `rolecall train`, made of the same calls.

A step is what the training loop does in it (`rolecall.train`): collect (generate and grade), credit, learn, and
publish with its parity probe. Left out is what the peers do not do here either: evaluation, checkpoints and files.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from rolecall.assemble import make_plan
from rolecall.config import make_config
from rolecall.engines.specs import resolve_model
from rolecall.records import GradedEpisode, Outcome, Reward, Task
from rolecall.run import Run
from rolecall.run_folder import RunFolder
from rolecall.workflows import Team, Workflow
from rolecall.workflows.prompting import load_prompts

T = TypeVar("T")

TINY = "builtin:tiny"
TASKS: dict[str, Any] = {
    "name": "reasoning_gym",
    "family": "chain_sum",
    "params": {"min_terms": 4, "max_terms": 4, "min_digits": 1, "max_digits": 1, "allow_negation": False},
    "question": "{expression}",
    "drop_spaces": True,
    "grader": "text",  # the peers grade nothing: rewards are drawn
    "size": 4000,
    "sizes": {"train": 2000, "test": 10},
}


@dataclass(frozen=True, kw_only=True)
class Lottery:
    """A number in [0, 1) drawn from the turn's id: of peers no two are equal, so no advantage is 0. Every episode of
    the first `even` of eight tasks gets 0.5 instead, so that their advantages are all 0."""

    even: int = 0

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        same = hashlib.blake2b(graded.episode.task.id.encode(), digest_size=1).digest()[0] % 8 < self.even
        rewards = {}
        for turn in graded.episode.turns:
            drawn = int.from_bytes(hashlib.blake2b(turn.id.encode(), digest_size=6).digest(), "little") / 2**48
            rewards[turn.id] = Reward(parts={"lottery": drawn}, total=0.5 if same else drawn)
        return rewards


@dataclass(frozen=True, kw_only=True)
class Pair(Workflow):
    """Two roles answer one prompt side by side, each with a policy of its own."""

    roles: ClassVar[tuple[str, ...]] = ("first", "second")

    async def run(self, task: Task, team: Team) -> Outcome:
        messages = solver_messages(task.question)
        replies = [await team[role].reply(messages) for role in self.roles]
        return Outcome(answer=replies[-1].text)


def solver_messages(question: str) -> list[Any]:
    """The prompt of every contender: the tiny solver's."""
    return list(load_prompts("tiny", {"solver": frozenset({"task"})})["solver"].messages(task=question))


def endless_model(folder: Path) -> str:
    """The shipped model's architecture at random weights, and an end token that is as good as never sampled: no
    completion ends before its limit, in no contender."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    source = resolve_model(TINY)
    tokenizer = AutoTokenizer.from_pretrained(source)
    end = "{{ '<|never|>' if message['role'] == 'assistant' else '<|end|>' }}"
    tokenizer.chat_template = tokenizer.chat_template.replace("<|end|>", end)
    tokenizer.add_tokens(["<|never|>"], special_tokens=True)
    tokenizer.eos_token = "<|never|>"
    config = Qwen3Config.from_pretrained(source)
    config.eos_token_id = tokenizer.eos_token_id
    config.vocab_size = tokenizer.eos_token_id + 1
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():  # a direction that every hidden state has, and that only the end token points away from
        model.model.embed_tokens.weight[:, 0] = 1.0
        model.model.embed_tokens.weight[config.eos_token_id, 0] = -1.0
    model.generation_config.eos_token_id = config.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class Silent:
    """A progress display that shows nothing; notes are kept."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        return

    def close(self) -> None:
        return


class OwnStep:
    """A run whose training steps are made one by one. `parts` are the seconds of the last step by part of it."""

    def __init__(
        self,
        folder: Path,
        *,
        model: str,
        tasks_per_step: int,
        max_tokens: int,
        n: int = 8,
        even: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        data: dict[str, Any] = {
            "name": "benchmark",
            "steps": 1_000_000,
            "sharing": "isolated",
            "workflow": {"name": "single_agent", "prompts": "tiny", "answer_format": "text"},
            "tasks": TASKS,
            "model": {"model": model},
            "algorithm": {"name": "dr_mas", "n": n, "reward": {"name": "own_step:Lottery", "even": even}},
            "sampling": {"max_tokens": max_tokens},
            "rollout": {"tasks_per_step": tasks_per_step},
            "learner": {"lr": 1e-6},
        }
        config = make_config({**data, **(settings or {})})
        self.run = Run(make_plan(config), RunFolder.create(folder, config, overwrite=True), Silent())
        self.parts: dict[str, float] = {}
        self.num_tokens = 0
        self.num_completions = 0
        self._steps = self.run.steps()
        self.run.prove()

    @property
    def questions(self) -> list[str]:
        return [task.question for task in self.run.splits.train]

    def step(self) -> float:
        """Make one training step; its seconds."""
        run, tokens = self.run, self.run.totals.tokens_generated
        self.parts = {}
        next(self._steps)
        graded = self._part("collect", run.collect)
        credit = self._part("credit", lambda: run.credit(graded))
        self._part("learn", lambda: run.learn(graded, credit))
        self._part("publish", run.publish)
        self.num_completions = sum(len(one.episode.turns) for one in graded)
        self.num_tokens = run.totals.tokens_generated - tokens
        return sum(self.parts.values())

    def _part(self, name: str, work: Callable[[], T]) -> T:
        begun = time.perf_counter()
        result = work()
        self.parts[name] = time.perf_counter() - begun
        return result

    def close(self) -> None:
        self.run.close()
        self.run.folder.close()
