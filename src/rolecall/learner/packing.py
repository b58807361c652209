"""Layout: which samples share a forward pass. Nothing here may change the gradient by more than rounding."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rolecall.errors import LearnerError
from rolecall.records import Sample, Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighted:
    """A sample with the weight of one token of each of its spans, and its number in the step."""

    sample: Sample
    weights: tuple[float, ...]
    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Microbatch:
    """Right-padded rows of one role, and one entry for every trained token, sample by sample in order of position.

    `columns_N` holds the position after the one that predicts the token: its own, but for the first token of a
    completion that shares its prompt with another, which is predicted by the prompt's last. What is trained is known
    from the spans alone, so the padding id may equal the end token, or any other. `positions_BT` and `mask`
    ([B, 1, T, T], 0 where a query sees a key and -inf elsewhere) are None for rows of one plain sequence each.
    """

    role: str
    numbers: tuple[int, ...]  # of the samples
    counts: tuple[int, ...]  # trained tokens of each sample
    input_ids_BT: Tensor
    positions_BT: Tensor | None
    mask: Tensor | None
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


Trajectory = tuple[str, str, int]
"""An episode (or, without one, a turn), a role and a copy."""


def trajectory(sample: Sample) -> Trajectory:
    """What stays together whatever is dealt out: the samples of one role and copy in one episode."""
    return sample.episode_id or sample.spans[0].turn_id, sample.role, sample.copy


def num_minibatches(samples: Sequence[Sample], size: int) -> int:
    """How many minibatches of about `size` trajectories the samples fill: the nearest whole number, at least 1, so
    that no optimizer step is made on a small remainder."""
    return max(1, math.floor(len({trajectory(sample) for sample in samples}) / size + 0.5))


def split_minibatches(samples: Sequence[Sample], parts: int, seed: int, step: int) -> list[list[Sample]]:
    """Deal the samples of a step to `parts` optimizer steps of about equal trained tokens, in an order drawn from
    `seed` and `step`. Turns of one trajectory stay together, so that merging them changes nothing here; a part
    without samples is left out.
    """
    if parts == 1:
        return [list(samples)] if samples else []
    trajectories: dict[Trajectory, list[Sample]] = defaultdict(list)
    for sample in samples:
        trajectories[trajectory(sample)].append(sample)
    total = sum(sample.num_trained for sample in samples)
    dealt: list[list[Sample]] = [[] for _ in range(parts)]
    before = 0
    for key in sorted(trajectories, key=lambda key: draw(seed, step, *key)):
        tokens = sum(sample.num_trained for sample in trajectories[key])
        middle = before + tokens / 2
        dealt[min(int(middle * parts / max(total, 1)), parts - 1)] += trajectories[key]
        before += tokens
    return [part for part in dealt if part]


def pack(
    rows: Sequence[Weighted], budget: int, *, device: torch.device, share: bool = False
) -> dict[str, list[Microbatch]]:
    """Microbatches by role: rows of one role, sorted by length, at most `budget` tokens with padding.

    With `share`, completions of one prompt lie behind it in one row where that saves tokens (`bundle`). What is longer
    than the budget makes a microbatch of its own. Roles come in sorted order.
    """
    groups: dict[str, list[Weighted]] = defaultdict(list)
    for row in rows:
        groups[row.sample.role].append(row)
    batches: dict[str, list[Microbatch]] = {}
    for role in sorted(groups):
        fitting: list[Bundle] = []
        packed = batches[role] = []
        for one in sorted(bundle(groups[role], share), key=lambda one: (-one.length, one.rows[0].number)):
            if fitting and (len(fitting) + 1) * fitting[0].length > budget:
                packed.append(collate(fitting, device))
                fitting = []
            fitting.append(one)
        packed.append(collate(fitting, device))
    return batches


MAX_SHARED = 1024
"""Tokens of a row in which completions share a prompt: its attention mask grows with their square."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """What lies in one row: one sample, or a prompt and the completions of several. `prompt`: tokens shared, else 0."""

    rows: tuple[Weighted, ...]
    prompt: int = 0

    @property
    def length(self) -> int:
        return self.prompt + sum(len(row.sample.token_ids) - self.prompt for row in self.rows)


def bundle(rows: Sequence[Weighted], share: bool) -> list[Bundle]:
    """Samples that are a prompt and one completion go together by prompt, while the completions together are at most
    twice as long as the prompt (beyond that the attention of one to the place of another costs more than the prompt's
    pass saves); all others are alone."""
    if not share:
        return [Bundle(rows=(row,)) for row in rows]
    by_prompt: dict[tuple[int, ...], list[Weighted]] = defaultdict(list)
    found: list[Bundle] = []
    for row in sorted(rows, key=lambda row: row.number):
        ids, spans = row.sample.token_ids, row.sample.spans
        if len(spans) == 1 and spans[0].stop == len(ids):
            by_prompt[ids[: spans[0].start]].append(row)
        else:
            found.append(Bundle(rows=(row,)))
    for prompt, peers in by_prompt.items():
        size, room = len(prompt), min(2 * len(prompt), MAX_SHARED - len(prompt))
        together: list[Weighted] = []
        used = 0
        for row in peers:
            extra = len(row.sample.token_ids) - size
            if together and used + extra > room:
                found.append(Bundle(rows=tuple(together), prompt=size if len(together) > 1 else 0))
                together, used = [], 0
            together.append(row)
            used += extra
        found.append(Bundle(rows=tuple(together), prompt=size if len(together) > 1 else 0))
    return found


def collate(bundles: Sequence[Bundle], device: torch.device) -> Microbatch:
    """Lay bundles of one role side by side, padded on the right with token 0."""
    width = max(one.length for one in bundles)
    input_ids = torch.zeros(len(bundles), width, dtype=torch.long)
    positions, owners = torch.zeros_like(input_ids), torch.full_like(input_ids, -1)  # owner 0: seen by all after it
    integers: list[tuple[int, int, int, int, int]] = []  # row, column, target, version, turn
    floats: list[tuple[float, float, float, float]] = []  # temperature, advantage, weight, sampled
    rows: list[Weighted] = []
    turn = 0
    for index, one in enumerate(bundles):
        shift = 0
        for place, row in enumerate(one.rows):
            ids, first = row.sample.token_ids, one.prompt if place else 0
            input_ids[index, first + shift : len(ids) + shift] = torch.tensor(ids[first:])
            if one.prompt:
                positions[index, first + shift : len(ids) + shift] = torch.arange(first, len(ids))
                owners[index, first + shift : len(ids) + shift] = place + 1
            for span, weight in zip(row.sample.spans, row.weights, strict=True):
                check_span(span, len(ids))
                for column in range(span.start, span.stop):
                    behind = column if column == one.prompt else column + shift
                    version = span.versions[column - span.start] if span.versions else span.version
                    integers.append((index, behind, ids[column], version, turn))
                    floats.append((row.sample.temperature, span.advantage, weight, row.sample.logprobs[column]))
                turn += 1
            shift += len(ids) - one.prompt
        rows += one.rows
        owners[index, : one.prompt] = 0
        if not one.prompt:
            positions[index], owners[index] = torch.arange(width), 0
    rows_N, columns_N, targets_N, versions_N, turns_N = torch.tensor(integers, dtype=torch.long).to(device).unbind(1)
    temperatures_N, advantages_N, weights_N, sampled_N = torch.tensor(floats, dtype=torch.float32).to(device).unbind(1)
    shared = any(one.prompt for one in bundles)
    return Microbatch(
        role=rows[0].sample.role,
        numbers=tuple(row.number for row in rows),
        counts=tuple(row.sample.num_trained for row in rows),
        input_ids_BT=input_ids.to(device),
        positions_BT=positions.to(device) if shared else None,
        mask=sight(owners).to(device) if shared else None,
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


def sight(owners_BT: Tensor) -> Tensor:
    """[B, 1, T, T], 0 where a query sees a key and -inf elsewhere: what is not after it, and either everyone's (owner
    0) or its own. Every position sees itself."""
    queries, keys = owners_BT[:, :, None], owners_BT[:, None, :]
    seen = ((keys == 0) | (keys == queries)).tril()
    return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)[:, None]


def check_span(span: Span, length: int) -> None:
    if not 1 <= span.start < span.stop <= length:
        raise LearnerError(
            f"turn {span.turn_id!r}: span [{span.start}, {span.stop}) does not lie in its sample of "
            f"{length} tokens with at least one token before it"
        )


def draw(*path: object) -> bytes:
    """A reproducible random key from a path, e.g. to shuffle by, without any state to keep."""
    return hashlib.blake2b("\x1f".join(map(repr, path)).encode(), digest_size=8).digest()
