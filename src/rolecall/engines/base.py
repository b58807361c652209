"""What an engine is: prompt tokens in, a completion under a policy version out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rolecall.errors import EngineError
from rolecall.records import Completion, Key, Message, Sampling, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One call to an engine.

    `seed` is a 64-bit number made from the run, the step of admission, the task, the episode, the key and the
    candidate (`request_seed`); the engine adds the token position, and never the slot or the batch. `key`, `task` and
    `messages` are for engines that answer by function (scripted, a person); a model's engine reads only `prompt_ids`.
    `prefix_ids`/`prefix_logprobs`/`prefix_versions` of a completion begun earlier are continued, not sampled again.
    """

    policy: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    key: Key
    task: Task
    messages: tuple[Message, ...]
    candidate: int = 0
    prefix: Completion | None = None
    end_ids: tuple[int, ...] = ()  # token ids that end a completion; () means the model's own


Reply = Completion | EngineError


class Engine(Protocol):
    """Engines generate, load published weights, and score given tokens (for the parity probe).

    `generate` takes any number of requests and answers them in order; a request that cannot be answered gets an
    `EngineError` in its place, and the others go on. It may be called again while earlier calls are running; an
    engine then batches them together where it can. The returned log-probabilities are those of the sampling
    distribution and each token carries the version it was sampled under.
    """

    async def generate(self, requests: Sequence[Request]) -> list[Reply]: ...

    async def load(self, policy: str, version: int, weights: Mapping[str, Any]) -> None:
        """Make `weights` (name to tensor: all of a `model`, the LoRA tensors of an `adapter`) version `version` of
        `policy`; prefix caches of older versions are dropped. Unknown policy: `EngineError`."""
        ...

    async def score(
        self, policy: str, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> list[list[float]]:
        """Log-probabilities of given completions after given prompts, [sequence][token], under the loaded weights."""
        ...

    def version(self, policy: str) -> int:
        """The version of `policy` that new tokens are sampled under."""
        ...

    async def close(self) -> None: ...


def request_seed(run_seed: int, *path: object) -> int:
    """A 64-bit counter-based seed from a path such as (step, task id, episode index, key, candidate)."""
    text = "\x1f".join([str(run_seed), *[repr(part) for part in path]])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
