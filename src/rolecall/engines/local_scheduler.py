"""Who decodes next in one process: a batch and a waiting line for each base model, one token a turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rolecall.engines.base import Reply
from rolecall.engines.local_decode import Batch, Row
from rolecall.engines.local_host import Host
from rolecall.engines.specs import LocalSettings
from rolecall.errors import EngineError, boundary, nearest
from rolecall.records import Completion, Sampling, Stop


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What of a `Request` travels to a worker, under a number of the engine's own."""

    id: int
    policy: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    end_ids: tuple[int, ...]
    prefix: Completion | None

    @property
    def cost(self) -> int:
        """Columns that the job may fill: what work is divided by."""
        return len(self.prompt_ids) + self.sampling.max_tokens


class Scheduler:
    """Rows of a base wait until there is room, then join its batch; the batches take turns, a token each."""

    def __init__(self, host: Host, settings: LocalSettings) -> None:
        self.host = host
        self.waiting: dict[tuple[str, ...], deque[Row]] = {key: deque() for key in host.bases}
        self.batches = {
            key: Batch(
                base,
                host.versions.__getitem__,
                max_rows=settings.max_batch_rows,
                max_tokens=settings.max_batch_tokens,
                prefill=settings.prefill_tokens,
            )
            for key, base in host.bases.items()
        }

    @property
    def busy(self) -> bool:
        return any(self.waiting.values()) or any(batch.rows for batch in self.batches.values())

    def row(self, job: Job) -> Row:
        """The row of a job; `EngineError` when this engine cannot run it."""
        if job.policy not in self.host.specs:
            raise EngineError(f"request for unknown policy {job.policy!r}{nearest(job.policy, self.host.specs)}")
        base = self.host.base(job.policy)
        ids = (*job.prompt_ids, *(job.prefix.token_ids if job.prefix else ()))
        if not job.prompt_ids:
            raise EngineError(f"request to policy {job.policy!r} has an empty prompt; send at least one token")
        if min(ids) < 0 or max(ids) >= base.runner.vocab_size:
            raise EngineError(
                f"request to policy {job.policy!r} has token ids from {min(ids)} to {max(ids)}; its model knows 0 to "
                f"{base.runner.vocab_size - 1}: was it rendered with another tokenizer?"
            )
        if len(job.prompt_ids) >= base.max_positions:
            raise EngineError(
                f"request to policy {job.policy!r} has a prompt of {len(job.prompt_ids)} tokens; its model has "
                f"{base.max_positions} positions: lower max_prompt_tokens"
            )
        row = Row(
            id=job.id,
            policy=job.policy,
            adapter=self.host.adapter_number(job.policy),
            prompt_ids=job.prompt_ids,
            sampling=job.sampling,
            seed=job.seed,
            max_tokens=min(job.sampling.max_tokens, base.max_positions - len(job.prompt_ids)),
            end_ids=job.end_ids or base.end_ids,
        )
        if job.prefix is not None:
            row.tokens += job.prefix.token_ids
            row.logprobs += job.prefix.logprobs
            row.versions += job.prefix.versions
        return row

    def submit(self, jobs: Sequence[Job]) -> list[tuple[int, Reply]]:
        """Put jobs in line; returns the replies of those that need no token, or cannot be run."""
        replies: list[tuple[int, Reply]] = []
        for job in jobs:
            try:
                row = self.row(job)
            except EngineError as error:
                replies.append((job.id, error))
                continue
            if row.done:
                replies.append((row.id, row.completion()))
            else:
                self.waiting[self.host.routes[row.policy]].append(row)
        return replies

    def abort(self, ids: Collection[int]) -> list[tuple[int, Reply]]:
        """Stop rows where they are; their replies hold the tokens so far."""
        rows = [row for batch in self.batches.values() for row in batch.evict(lambda row: row.id in ids)]
        for key, line in self.waiting.items():
            rows += [row for row in line if row.id in ids]
            self.waiting[key] = deque(row for row in line if row.id not in ids)
        return [(row.id, row.completion(Stop.ABORT)) for row in rows]

    @torch.no_grad()
    def step(self) -> list[tuple[int, Reply]]:
        """One token for every batch with rows; what a model raises goes to the rows of its batch alone."""
        replies: list[tuple[int, Reply]] = []
        for key, batch in self.batches.items():
            joining: list[Row] = []
            try:
                with boundary(EngineError, f"decoding with model {key[0]!r}"):
                    line = self.waiting[key]
                    while line and batch.room(line[0], extra=len(joining)):
                        joining.append(line.popleft())
                    done = batch.add(joining) if joining else []
                    line.extendleft(reversed(batch.overflow()))
                    if batch.rows:
                        done += batch.step()
                    replies += [(row.id, row.completion()) for row in done]
            except EngineError as error:
                waiting = {row.id for row in line}
                lost = {row.id for row in (*batch.rows, *joining)} - waiting
                batch.clear()
                replies += [(row_id, error) for row_id in sorted(lost)]
        return replies

    def load(self, policy: str, version: int, tensors: Mapping[str, Any]) -> None:
        """Load a version; rows of the policy go back in line, so that their prompt and tokens so far are run again
        under the new weights: no key or value of an older version stays."""
        key = self.host.routes[policy]
        batch = self.batches[key]
        back = batch.evict(lambda row: row.policy == policy)
        self.waiting[key].extendleft(reversed(back))
        self.host.load(policy, version, tensors)
