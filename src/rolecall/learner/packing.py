"""Layout: which samples share a forward pass. Nothing here may change the gradient by more than rounding."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rolecall.errors import LearnerError
from rolecall.records import Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighted:
    """A sample with the weight of one token of each of its spans, and its number in the step."""

    sample: Sample
    weights: tuple[float, ...]
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Microbatch:
    """Right-padded rows of one role, and one entry for every trained token, row by row in order of position.

    `columns_N` holds the position of the trained token itself; the position before it predicts it. What is trained is
    known from the spans alone, so the padding id may equal the end token, or any other.
    """

    role: str
    numbers: tuple[int, ...]  # of the samples, row by row
    counts: tuple[int, ...]  # trained tokens of each row
    input_ids_BT: Tensor
    rows_N: Tensor
    columns_N: Tensor
    targets_N: Tensor
    temperatures_N: Tensor
    advantages_N: Tensor
    weights_N: Tensor
    sampled_N: Tensor  # log-probabilities under the sampling policy
    versions_N: Tensor
    turns_N: Tensor  # the number of each token's turn in this microbatch
    num_turns: int


def split_minibatches(samples: Sequence[Sample], parts: int, seed: int, step: int) -> list[list[Sample]]:
    """Deal the samples of a step to `parts` optimizer steps of about equal trained tokens, in an order drawn from
    `seed` and `step`. Turns of one trajectory stay together, so that merging them changes nothing here; a part
    without samples is left out.
    """
    if parts == 1:
        return [list(samples)] if samples else []
    trajectories: dict[tuple[str, str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        place = sample.episode_id or sample.spans[0].turn_id
        trajectories[(place, sample.role, sample.copy)].append(sample)
    total = sum(sample.num_trained for sample in samples)
    dealt: list[list[Sample]] = [[] for _ in range(parts)]
    before = 0
    for key in sorted(trajectories, key=lambda key: draw(seed, step, *key)):
        tokens = sum(sample.num_trained for sample in trajectories[key])
        middle = before + tokens / 2
        dealt[min(int(middle * parts / max(total, 1)), parts - 1)] += trajectories[key]
        before += tokens
    return [part for part in dealt if part]


def pack(rows: Sequence[Weighted], budget: int, *, by_copy: bool, device: torch.device) -> dict[str, list[Microbatch]]:
    """Microbatches by role: rows of one role (and copy), sorted by length, at most `budget` tokens with padding.

    A sample longer than the budget makes a microbatch of its own. Roles come in sorted order.
    """
    groups: dict[tuple[str, int], list[Weighted]] = defaultdict(list)
    for row in rows:
        groups[(row.sample.role, row.sample.copy if by_copy else 0)].append(row)
    batches: dict[str, list[Microbatch]] = {}
    for role, copy in sorted(groups):
        fitting: list[Weighted] = []
        packed = batches.setdefault(role, [])
        for row in sorted(groups[(role, copy)], key=lambda row: (-len(row.sample.token_ids), row.number)):
            if fitting and (len(fitting) + 1) * len(fitting[0].sample.token_ids) > budget:
                packed.append(collate(fitting, device))
                fitting = []
            fitting.append(row)
        packed.append(collate(fitting, device))
    return batches


def collate(rows: Sequence[Weighted], device: torch.device) -> Microbatch:
    """Lay rows of one role side by side, padded on the right with token 0."""
    width = max(len(row.sample.token_ids) for row in rows)
    input_ids = torch.zeros(len(rows), width, dtype=torch.long)
    integers: list[tuple[int, int, int, int, int]] = []  # row, column, target, version, turn
    floats: list[tuple[float, float, float, float]] = []  # temperature, advantage, weight, sampled
    counts: list[int] = []
    turn = 0
    for index, row in enumerate(rows):
        sample = row.sample
        input_ids[index, : len(sample.token_ids)] = torch.tensor(sample.token_ids)
        for span, weight in zip(sample.spans, row.weights, strict=True):
            if not 1 <= span.start < span.stop <= len(sample.token_ids):
                raise LearnerError(
                    f"turn {span.turn_id!r}: span [{span.start}, {span.stop}) does not lie in its sample of "
                    f"{len(sample.token_ids)} tokens with at least one token before it"
                )
            for column in range(span.start, span.stop):
                integers.append((index, column, sample.token_ids[column], span.version, turn))
                floats.append((sample.temperature, span.advantage, weight, sample.logprobs[column]))
            turn += 1
        counts.append(sample.num_trained)
    rows_N, columns_N, targets_N, versions_N, turns_N = torch.tensor(integers, dtype=torch.long).to(device).unbind(1)
    temperatures_N, advantages_N, weights_N, sampled_N = torch.tensor(floats, dtype=torch.float32).to(device).unbind(1)
    return Microbatch(
        role=rows[0].sample.role,
        numbers=tuple(row.number for row in rows),
        counts=tuple(counts),
        input_ids_BT=input_ids.to(device),
        rows_N=rows_N,
        columns_N=columns_N,
        targets_N=targets_N,
        temperatures_N=temperatures_N,
        advantages_N=advantages_N,
        weights_N=weights_N,
        sampled_N=sampled_N,
        versions_N=versions_N,
        turns_N=turns_N,
        num_turns=turn,
    )


def draw(*path: object) -> bytes:
    """A reproducible random key from a path, e.g. to shuffle by, without any state to keep."""
    return hashlib.blake2b("\x1f".join(map(repr, path)).encode(), digest_size=8).digest()
