"""How far a policy has moved in what it says: KL between next-token distributions on a fixed probe set. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rolecall.records import GradedEpisode, Turn

Array = npt.NDArray[np.float32]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRow:
    """A token sequence, and the positions before which the next-token distribution is compared, in ascending order.

    >>> ProbeRow(token_ids=(5, 6, 7, 8), positions=(2, 3)).positions
    (2, 3)
    """

    token_ids: tuple[int, ...]
    positions: tuple[int, ...]
    temperature: float = 1.0


def kl_rows(left_NV: Array, right_NV: Array, chunk: int = 256) -> npt.NDArray[np.float64]:
    """KL(left || right) = sum_v p_v (log p_v - log q_v) in nats, of each row of log-probabilities. [N]

    Exact over the vocabulary, at the contexts given: nothing is sampled, so nothing is left to chance, and equal rows
    give exactly 0. A token with p_v = 0 adds 0; one with q_v = 0 < p_v makes it infinite.
    """
    values = np.empty(len(left_NV))
    for start in range(0, len(left_NV), chunk):
        left = left_NV[start : start + chunk].astype(np.float64)
        right = right_NV[start : start + chunk].astype(np.float64)
        there = np.isfinite(left)
        gap = np.zeros_like(left)
        np.subtract(left, right, out=gap, where=there)
        values[start : start + chunk] = (np.exp(left) * gap).sum(-1)
    return np.maximum(values, 0.0)


def mean_kl(left_NV: Array, right_NV: Array) -> float:
    """Mean over positions of `kl_rows`, in nats a token."""
    return float(kl_rows(left_NV, right_NV).mean())


def probe_rows(turns: Sequence[Turn], num_turns: int, num_positions: int, temperature: float = 1.0) -> list[ProbeRow]:
    """At most `num_turns` of the turns, spread evenly, and at most `num_positions` positions of their completions in
    all, spread evenly over each."""
    usable = [turn for turn in turns if turn.prompt_ids and turn.completion.token_ids]
    chosen = spread(usable, min(num_turns, num_positions))
    left, rows = num_positions, []
    for number, turn in enumerate(chosen):
        start, size = len(turn.prompt_ids), len(turn.completion.token_ids)
        places = spread(range(start, start + size), min(size, left // (len(chosen) - number)))
        left -= len(places)
        rows.append(
            ProbeRow(
                token_ids=(*turn.prompt_ids, *turn.completion.token_ids)[: places[-1] + 1],
                positions=tuple(places),
                temperature=temperature,
            )
        )
    return rows


def turns_by_role(graded: Iterable[GradedEpisode]) -> dict[str, list[Turn]]:
    """All turns of the episodes, by role, in their order."""
    found: dict[str, list[Turn]] = {}
    for one in graded:
        for turn in one.episode.turns:
            found.setdefault(turn.role, []).append(turn)
    return found


def spread(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items at even distances, the first among them.

    >>> spread([0, 1, 2, 3, 4, 5], 3)
    [0, 2, 4]
    """
    count = min(count, len(items))
    return [items[index * len(items) // count] for index in range(count)]
