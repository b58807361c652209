"""The local engine: any causal language model of Transformers, in worker processes with versions of its weights.

What is where: `local_pool` starts workers, `local_worker` is their loop, `local_scheduler` says who decodes next,
`local_decode` is the batch, `local_cache` its keys and values, `local_sampling` draws tokens, `local_host` holds the
models, `local_lora` their adapters, `local_runner` and `local_fast` run one forward pass.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from rolecall.engines.base import Reply, Request
from rolecall.engines.local_host import check_tensors
from rolecall.engines.local_pool import START_S, Worker
from rolecall.engines.local_scheduler import Job
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.engines.weights_folder import WeightsFolder
from rolecall.errors import ConfigError, EngineError, nearest


def split(jobs: Sequence[Job], loads: Sequence[int]) -> list[list[Job]]:
    """Divide jobs over workers that hold `loads` already, so that all come to about the same cost.

    Jobs of one policy and prompt stay together (they share a prefill) as far as the balance allows, and so do jobs of
    one policy; the result depends on the jobs and the loads alone.
    """
    order = sorted(range(len(jobs)), key=lambda i: (jobs[i].policy, -len(jobs[i].prompt_ids), jobs[i].prompt_ids, i))
    total = sum(job.cost for job in jobs) + sum(loads)
    parts: list[list[Job]] = [[] for _ in loads]
    worker, filled = 0, float(loads[0])
    for i in order:
        while worker < len(loads) - 1 and filled + jobs[i].cost / 2 > total / len(loads):
            worker += 1
            filled = float(loads[worker])
        parts[worker].append(jobs[i])
        filled += jobs[i].cost
    return parts


class LocalEngine:
    """See `engines.base.Engine`. The constructor returns when every worker has loaded every policy; `close` ends the
    workers. A worker that dies fails its requests with an `EngineError` that names it, and is started again."""

    def __init__(self, specs: Sequence[PolicySpec], settings: LocalSettings | None = None) -> None:
        self.settings = settings or LocalSettings()
        self.specs = {spec.name: spec for spec in specs}
        if not specs or len(self.specs) != len(specs):
            raise ConfigError(f"the local engine got policies {[spec.name for spec in specs]}; wanted distinct names")
        self.versions = dict.fromkeys(self.specs, 0)
        self.current: dict[str, tuple[int, str]] = {}
        self.numbers = itertools.count(1)
        self.folder = WeightsFolder()
        self.turn: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self.workers = [
            Worker(index, specs, self.settings, lambda: self.current) for index in range(num_workers(self.settings))
        ]
        try:
            manifests = [worker.ready.result(START_S) for worker in self.workers]
        except BaseException:
            self.shut_down()
            raise
        self.manifest = manifests[0]

    def known(self, policy: str) -> PolicySpec:
        if policy not in self.specs:
            raise EngineError(f"unknown policy {policy!r}{nearest(policy, self.specs)}")
        return self.specs[policy]

    @asynccontextmanager
    async def wave(self, *, always: bool = False) -> AsyncIterator[None]:
        """When deterministic, calls run one after the other in the order in which they were made."""
        if not (self.settings.deterministic or always):
            yield
            return
        loop = asyncio.get_running_loop()
        if self.turn is None or self.turn[0] is not loop:
            self.turn = (loop, asyncio.Lock())
        async with self.turn[1]:
            yield

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        """See `Engine.generate`. A cancelled call stops its rows."""
        jobs = [
            Job(
                id=next(self.numbers),
                policy=request.policy,
                prompt_ids=tuple(request.prompt_ids),
                sampling=request.sampling,
                seed=request.seed,
                end_ids=tuple(request.end_ids),
                prefix=request.prefix,
            )
            for request in requests
        ]
        if not jobs:
            return []
        async with self.wave():
            loads = [0 if self.settings.deterministic else worker.cost for worker in self.workers]
            parts = split(jobs, loads)
            futures: dict[int, Future[Any]] = {}
            for worker, part in zip(self.workers, parts, strict=True):
                if part:
                    futures.update(zip((job.id for job in part), worker.generate(part), strict=True))
            try:
                return list(await asyncio.gather(*(asyncio.wrap_future(futures[job.id]) for job in jobs)))
            except asyncio.CancelledError:
                for worker, part in zip(self.workers, parts, strict=True):
                    worker.abort([job.id for job in part])
                raise

    async def load(self, policy: str, version: int, weights: Mapping[str, Any]) -> None:
        """See `Engine.load`. `weights` are the names of the model's state dict (a tied LM head may be left out), or
        `<module path>.lora_A` and `.lora_B` of an adapter; they must not change until this returns. Rows of the policy
        that are decoding go on under the new version, their keys and values computed again."""
        if not self.known(policy).trained:
            raise EngineError(f"policy {policy!r} is frozen and loads no weights; it was read when the engine started")
        shapes, tied = self.manifest[policy]
        tensors = {name: torch.as_tensor(tensor).detach() for name, tensor in weights.items()}
        check_tensors(f"policy {policy!r} version {version}", shapes, tensors, tied)
        async with self.wave(always=True):
            path = Path(self.folder.name) / f"{next(self.numbers)}.safetensors"
            await asyncio.to_thread(save_file, storable(tensors), path)
            before = self.current.get(policy)
            self.current[policy] = (version, str(path))
            futures = [worker.call("load", (policy, version, str(path))) for worker in self.workers]
            answers = await asyncio.gather(*map(asyncio.wrap_future, futures))
            errors = [answer for answer in answers if isinstance(answer, EngineError)]
            if errors:
                raise errors[0]
            self.versions[policy] = version
            if before is not None:
                Path(before[1]).unlink(missing_ok=True)

    async def score(
        self, policy: str, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> list[list[float]]:
        """See `Engine.score`; worker 0 answers, or all of them in turn through `score_on`."""
        return await self.score_on(0, policy, sequences, temperature)

    async def score_on(
        self,
        worker: int,
        policy: str,
        sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
        temperature: float = 1.0,
    ) -> list[list[float]]:
        """The scores of one worker's copy of the weights: a probe asks each of `num_replicas`."""
        self.known(policy)
        if any(not prompt for prompt, _ in sequences):
            raise EngineError(f"score of policy {policy!r} got an empty prompt; the first token needs one before it")
        if not sequences:
            return []
        plain = [(list(prompt), list(completion)) for prompt, completion in sequences]
        async with self.wave():
            answer = await asyncio.wrap_future(self.workers[worker].call("score", (policy, plain, temperature)))
        if isinstance(answer, EngineError):
            raise answer
        scores: list[list[float]] = answer
        return scores

    @property
    def num_replicas(self) -> int:
        """How many copies of the weights there are, each to be probed."""
        return len(self.workers)

    def version(self, policy: str) -> int:
        self.known(policy)
        return self.versions[policy]

    async def close(self) -> None:
        await asyncio.to_thread(self.shut_down)

    def shut_down(self) -> None:
        """What `close` does, for places without an event loop."""
        for worker in self.workers:
            worker.close()
        self.folder.cleanup()


def num_workers(settings: LocalSettings) -> int:
    """As many as the settings say, and no more than there are GPUs where there is one: two would share its memory."""
    gpus = torch.cuda.device_count()
    return min(settings.num_workers, gpus) if gpus else settings.num_workers


def storable(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors as safetensors saves them: in main memory, end to end; what shares memory (a tied LM head), apart.

    Not for the thread that writes the file. A copy of more than 32,768 numbers there starts OpenMP threads of its own,
    and with more OpenMP threads than cores libgomp puts every thread to sleep at each barrier, in the learner too.
    """
    seen: set[int] = set()
    plain = {}
    for name, tensor in tensors.items():
        copy = tensor.to("cpu").contiguous()
        plain[name] = copy.clone() if copy.untyped_storage().data_ptr() in seen else copy
        seen.add(copy.untyped_storage().data_ptr())
    return plain
