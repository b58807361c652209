"""Whole next-token distributions at a few positions: what the KL between two versions of a policy is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rolecall.dynamics.drift import ProbeRow
from rolecall.learner.logprobs import MAX_CHUNK_LOGITS, Split

Array = npt.NDArray[np.float32]


@torch.no_grad()
def next_token_logprobs(
    model: Any, split: Split | None, rows: Sequence[ProbeRow], budget: int, device: torch.device
) -> Array:
    """log softmax(logits / temperature) before each of the rows' positions, [positions of all rows in order][V].

    At most `budget` tokens with padding go through the body at once; rows are padded on the right with token 0. The
    layout depends on the rows alone, so that equal weights give equal numbers bit for bit.
    """
    found: dict[int, Array] = {}
    chunk = max(1, MAX_CHUNK_LOGITS // int(model.config.get_text_config().vocab_size))
    for numbers in _batches(rows, budget):
        width = max(len(rows[number].token_ids) for number in numbers)
        ids_BT = torch.zeros(len(numbers), width, dtype=torch.long)
        for place, number in enumerate(numbers):
            ids_BT[place, : len(rows[number].token_ids)] = torch.tensor(rows[number].token_ids)
        states_BTX = _states(model, split, ids_BT.to(device))
        for place, number in enumerate(numbers):
            columns = torch.tensor(rows[number].positions, device=device) - 1
            found[number] = _logprobs(split, states_BTX[place, columns], rows[number].temperature, chunk)
    return np.concatenate([found[number] for number in range(len(rows))])


def _batches(rows: Sequence[ProbeRow], budget: int) -> Iterator[list[int]]:
    """Numbers of rows that go together: the longest first, at most `budget` tokens with padding."""
    open_: list[int] = []
    for number in sorted(range(len(rows)), key=lambda n: (-len(rows[n].token_ids), n)):
        if open_ and (len(open_) + 1) * len(rows[open_[0]].token_ids) > budget:
            yield open_
            open_ = []
        open_.append(number)
    if open_:
        yield open_


def _states(model: Any, split: Split | None, ids_BT: Tensor) -> Tensor:
    """Hidden states before the head, or the logits of a model that does not come apart."""
    if split is None:
        logits: Tensor = model(input_ids=ids_BT, use_cache=False).logits
        return logits
    hidden: Tensor = split.body(input_ids=ids_BT, use_cache=False).last_hidden_state
    return hidden


def _logprobs(split: Split | None, states_NX: Tensor, temperature: float, chunk: int) -> Array:
    chunks = []
    for part in torch.split(states_NX, chunk):
        logits = part if split is None else split.finish(split.head(part))
        chunks.append((logits.float() / temperature).log_softmax(-1).cpu().numpy())
    return np.concatenate(chunks)
