"""Decoding: rows of many episodes in one batch over one base model, joining and leaving between two tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from rolecall.engines.local_cache import COLUMN_BLOCK, ColumnCache
from rolecall.engines.local_host import FORWARD_COLUMNS, Base
from rolecall.engines.local_sampling import SamplingRows, sample, uniforms
from rolecall.records import Completion, Sampling, Stop

NO_TOKEN = -1


@dataclass(kw_only=True, slots=True)
class Row:
    """One request on its way: what was asked, and the tokens so far (a prefix given with the request among them)."""

    id: int
    policy: str
    adapter: int
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int
    max_tokens: int
    end_ids: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] in self.end_ids

    @property
    def done(self) -> bool:
        return self.ended or len(self.tokens) >= self.max_tokens

    def completion(self, stop: Stop | None = None) -> Completion:
        return Completion(
            token_ids=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            stop=stop or (Stop.EOS if self.ended else Stop.LENGTH),
        )


class Batch:
    """The rows that decode together. The last token of each was sampled and not yet fed; `step` feeds it at the write
    column and samples the next. Tokens wait in arrays until a row leaves."""

    def __init__(
        self, base: Base, version: Callable[[str], int], *, max_rows: int, max_tokens: int, prefill: int
    ) -> None:
        self.base, self.version = base, version
        self.max_rows, self.max_tokens, self.prefill_tokens = max_rows, max_tokens, prefill
        self.rows: list[Row] = []
        self.clear()

    def clear(self) -> None:
        self.rows = []
        self.cache = ColumnCache(rows=0, columns=0)
        self.last = torch.zeros(0, dtype=torch.long, device=self.base.device)
        self.start = torch.zeros(0, dtype=torch.long, device=self.base.device)
        self.tokens = np.zeros((0, 0), dtype=np.int64)
        self.logprobs = np.zeros((0, 0), dtype=np.float32)
        self.drawn = np.zeros(0, dtype=np.int64)
        self.refresh()

    def refresh(self) -> None:
        """Derive what is per row from the list of rows, after it changed."""
        device = self.base.device
        self.sampling = SamplingRows.of([row.sampling for row in self.rows], device) if self.rows else None
        self.seeds = np.array([row.seed % (1 << 64) for row in self.rows], dtype=np.uint64)
        self.given = np.array([len(row.tokens) for row in self.rows], dtype=np.int64)
        self.limit = np.array([row.max_tokens for row in self.rows], dtype=np.int64)
        width = max((len(row.end_ids) for row in self.rows), default=0)
        padded = [row.end_ids + (NO_TOKEN,) * (width - len(row.end_ids)) for row in self.rows]
        self.ends = np.array(padded, dtype=np.int64).reshape(len(self.rows), width)
        adapters = [row.adapter for row in self.rows]
        self.adapters = torch.tensor(adapters, device=device) if any(adapters) else None

    def room(self, row: Row, extra: int = 0) -> bool:
        """Whether one more row fits beside these and `extra` more."""
        num = len(self.rows) + extra + 1
        columns = max(self.cache.write - self.cache.low, len(row.prompt_ids) + len(row.tokens)) + COLUMN_BLOCK
        return num == 1 or (num <= self.max_rows and num * columns <= self.max_tokens)

    def add(self, rows: Sequence[Row]) -> list[Row]:
        """Let rows join; returns those that their first token finished. Rows with one policy and the same tokens so
        far are run through the model once."""
        groups: dict[tuple[int, tuple[int, ...]], list[Row]] = {}
        for row in sorted(rows, key=lambda row: len(row.prompt_ids) + len(row.tokens)):
            groups.setdefault((row.adapter, (*row.prompt_ids, *row.tokens)), []).append(row)
        keys = list(groups)
        while keys:
            num = max(1, self.prefill_tokens // len(keys[-1][1]))
            keys, chunk = keys[:-num], keys[-num:]
            self.prefill(chunk, [groups[key] for key in chunk])
        return self.collect()

    def prefill(self, keys: Sequence[tuple[int, tuple[int, ...]]], groups: Sequence[list[Row]]) -> None:
        """Run distinct sequences through the model, copy their columns to all rows that share them, sample a token."""
        device = self.base.device
        width = max(len(ids) for _, ids in keys)
        ids = torch.zeros(len(keys), width, dtype=torch.long)
        for i, (_, sequence) in enumerate(keys):
            ids[i, width - len(sequence) :] = torch.tensor(sequence, dtype=torch.long)
        ids = ids.to(device)
        start = torch.tensor([width - len(sequence) for _, sequence in keys], device=device)
        adapters = [adapter for adapter, _ in keys]
        self.base.bank.activate(torch.tensor(adapters, device=device) if any(adapters) else None)
        cache = ColumnCache(rows=len(keys), columns=width)
        for column in range(0, width, FORWARD_COLUMNS):
            logits = self.base.runner.forward(ids[:, column : column + FORWARD_COLUMNS], start, cache, 1)
        source = torch.tensor([i for i, group in enumerate(groups) for _ in group], device=device)
        old = len(self.rows)
        self.make_room(old + len(source), width)
        self.cache.adopt(cache, source, old)
        self.rows += [row for group in groups for row in group]
        self.start = torch.cat((self.start, start[source] + (self.cache.write - width)))
        self.cache.low = int(self.start.min())
        self.refresh()
        self.grow_outputs()
        drawn = sample(
            logits[source, -1],
            SamplingRows.of([row.sampling for row in self.rows[old:]], device),
            torch.from_numpy(uniforms(self.seeds[old:], self.given[old:])).to(device),
        )
        self.last = torch.cat((self.last, drawn[0]))
        self.tokens[old : len(self.rows), 0] = drawn[0].cpu().numpy()
        self.logprobs[old : len(self.rows), 0] = drawn[1].cpu().numpy()
        self.drawn[old : len(self.rows)] = 1

    def make_room(self, rows: int, width: int) -> None:
        """Room in the cache for `rows` rows, a block of further columns, and sequences of `width` before them."""
        cache = self.cache
        if not self.rows:
            cache.low = cache.write = width
        shift = max(0, width - cache.write)
        if rows > cache.rows or cache.write + shift + 1 > cache.columns or shift:
            capacity = rows if not self.rows else max(rows, min(self.max_rows, 2 * cache.rows))
            cache.reserve(
                rows=capacity, columns=cache.write + shift + COLUMN_BLOCK, used_rows=len(self.rows), shift=shift
            )
            self.start = self.start + shift

    def grow_outputs(self) -> None:
        """Room in the arrays of drawn tokens for the rows that there are, and one more token."""
        num, old = len(self.rows), len(self.tokens)
        width = int(self.drawn.max(initial=0)) + 1
        if num > old or width > self.tokens.shape[1]:
            shape = (max(num, old), max(self.tokens.shape[1], width + COLUMN_BLOCK))
            for name in ("tokens", "logprobs"):
                before = getattr(self, name)
                after = np.zeros(shape, dtype=before.dtype)
                after[: before.shape[0], : before.shape[1]] = before
                setattr(self, name, after)
            self.drawn = np.concatenate((self.drawn, np.zeros(shape[0] - len(self.drawn), dtype=np.int64)))

    def step(self) -> list[Row]:
        """One token for every row; returns the rows that it finished."""
        assert self.sampling is not None
        num, cache = len(self.rows), self.cache
        if cache.write + 1 > cache.columns:
            back = -cache.low if cache.low >= cache.columns // 2 else 0
            cache.reserve(
                rows=num,
                columns=max(cache.columns, (cache.write + back) * 5 // 4 + COLUMN_BLOCK),
                used_rows=num,
                shift=back,
            )
            self.start = self.start + back
        self.base.bank.activate(self.adapters)
        logits = self.base.runner.forward(self.last[:, None], self.start, cache, 1)[:, -1]
        noise = torch.from_numpy(uniforms(self.seeds, self.given + self.drawn[:num])).to(self.base.device)
        self.last, logprobs = sample(logits, self.sampling, noise)
        if int(self.drawn[:num].max()) >= self.tokens.shape[1]:
            self.grow_outputs()
        where = (np.arange(num), self.drawn[:num])
        self.tokens[where] = self.last.cpu().numpy()
        self.logprobs[where] = logprobs.cpu().numpy()
        self.drawn[:num] += 1
        return self.collect()

    def collect(self) -> list[Row]:
        """Take out the rows whose newest token is an end token or the last one allowed."""
        num = len(self.rows)
        newest = self.tokens[np.arange(num), self.drawn[:num] - 1]
        finished = (newest[:, None] == self.ends).any(axis=1) | (self.given + self.drawn[:num] >= self.limit)
        return self.remove(np.flatnonzero(finished).tolist()) if finished.any() else []

    def remove(self, slots: Sequence[int]) -> list[Row]:
        """Take rows out, with their tokens written into them; the last rows move into the holes."""
        out = [self.rows[slot] for slot in slots]
        for slot, row in zip(slots, out, strict=True):
            drawn = int(self.drawn[slot])
            row.tokens += self.tokens[slot, :drawn].tolist()
            row.logprobs += self.logprobs[slot, :drawn].tolist()
            row.versions += [self.version(row.policy)] * drawn
        left = len(self.rows) - len(out)
        if left == 0:
            self.clear()
            return out
        gone = set(slots)
        target = [slot for slot in range(left) if slot in gone]
        source = [slot for slot in range(left, len(self.rows)) if slot not in gone]
        if source:
            to, of = (torch.tensor(part, device=self.base.device) for part in (target, source))
            self.cache.move(of, to)
            self.last[to], self.start[to] = self.last[of], self.start[of]
            for array in (self.tokens, self.logprobs, self.drawn):
                array[target] = array[source]
        for to_slot, from_slot in zip(target, source, strict=True):
            self.rows[to_slot] = self.rows[from_slot]
        self.rows = self.rows[:left]
        self.last, self.start = self.last[:left].clone(), self.start[:left].clone()
        self.drawn[left:] = 0
        self.cache.low = int(self.start.min())
        self.refresh()
        return out

    def overflow(self) -> list[Row]:
        """Take out rows while the batch outgrows its tokens: those with the fewest tokens, cheapest to run again."""
        out: list[Row] = []
        while len(self.rows) > 1 and len(self.rows) * (self.cache.write - self.cache.low + 1) > self.max_tokens:
            num = len(self.rows)
            lengths = self.given + self.drawn[:num]
            out += self.remove(sorted(np.argsort(lengths, kind="stable")[: max(1, num // 8)].tolist()))
        return out

    def evict(self, leaves: Callable[[Row], bool]) -> list[Row]:
        """Take out the rows for which `leaves` is true, finished or not."""
        return self.remove([slot for slot, row in enumerate(self.rows) if leaves(row)])
