"""Requests, and a plain full forward pass to hold the local engine to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import torch
from transformers import AutoModelForCausalLM

from rolecall.engines.base import Request
from rolecall.records import Completion, Key, Sampling, Task

TASK = Task(id="t", question="q", answer=None)
NEVER = 1 << 30  # an end token that no model has: completions run to the limit
T = TypeVar("T")


def request(
    policy: str, prompt: Sequence[int], seed: int, *, end_ids=(NEVER,), prefix=None, **sampling: Any
) -> Request:
    return Request(
        policy=policy,
        prompt_ids=tuple(prompt),
        sampling=Sampling(**({"max_tokens": 16} | sampling)),
        seed=seed,
        key=Key("solver", 0, 0),
        task=TASK,
        messages=(),
        prefix=prefix,
        end_ids=tuple(end_ids),
    )


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def generate(engine, requests: Sequence[Request]) -> list[Completion]:
    replies = run(engine.generate(requests))
    for reply in replies:
        assert isinstance(reply, Completion), reply
    return replies


def read_model(folder: str):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.no_grad()
def plain_logprobs(model, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Log-probabilities by one full forward pass over one sequence: no cache, no padding, no batch."""
    logits = model(torch.tensor([[*prompt, *completion]])).logits[0].double() / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    return [logprobs[len(prompt) - 1 + i, token].item() for i, token in enumerate(completion)]


def max_difference(a: Sequence[float], b: Sequence[float]) -> float:
    assert len(a) == len(b)
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)


def ragged_prompts(num: int, longest: int = 14) -> list[list[int]]:
    generator = torch.Generator().manual_seed(num)
    lengths = torch.randint(1, longest + 1, (num,), generator=generator).tolist()
    return [torch.randint(0, 256, (length,), generator=generator).tolist() for length in lengths]
