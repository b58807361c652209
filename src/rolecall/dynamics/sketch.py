"""A count-sketch: a long vector made short, with norms and inner products kept within a stated bound.

The vector is cut into chunks as long as the sketch. Each chunk is multiplied by signs of its own, turned around by a
shift of its own, and all are added up (Charikar, Chen and Farach-Colton 2002; a random shift takes the place of a hash
of every coordinate, so that no two of one chunk ever meet). Signs and shifts are drawn from a counter-based generator,
keyed by the number of the chunk alone: shards of a vector may be sketched apart, and their sketches add up.

S is linear, and for any x and y, over the draws: E <Sx, Sy> = <x, y>, and since coordinates of different chunks meet
with probability 1 / width, Var <Sx, Sy> <= (||x||^2 ||y||^2 + <x, y>^2) / width. So by Chebyshev's inequality

    |<Sx, Sy> - <x, y>| <= eps ||x|| ||y||   with probability at least 1 - 2 / (width eps^2),

the same for ||Sx||^2 with y = x. With the width used, 2^20: eps = 0.01 in at least 98 % of the draws, 0.02 in 99.5 %;
the standard deviation is at most 0.0014. A vector no longer than the sketch is kept exactly.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

WIDTH = 2**20


class CountSketch:
    """Sketches of one `width` (a power of two, 64 or more) and one seed; only these can be compared with each other.
    Holds the signs that it has drawn, a bit for each coordinate."""

    def __init__(self, width: int = WIDTH, seed: int = 0) -> None:
        if width < 64 or width & (width - 1):
            raise ValueError(f"a sketch of width {width}; wanted a power of two, 64 or more")
        self.width, self.seed = width, seed
        self._drawn: dict[int, tuple[Tensor, int]] = {}
        bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
        self._table = torch.from_numpy((1 - 2 * bits).astype(np.float32))  # a byte's eight signs

    @torch.no_grad()
    def __call__(self, vector: Tensor, offset: int = 0) -> Tensor:
        """The sketch of a flat float32 vector whose first coordinate has the number `offset`. [width]"""
        sketch = torch.zeros(self.width, dtype=torch.float32, device=vector.device)
        self._table = self._table.to(vector.device)
        first, end = offset, offset + vector.numel()
        while first < end:
            chunk, place = divmod(first, self.width)
            size = min(self.width - place, end - first)
            signs, shift = self._chunk(chunk, vector.device)
            piece = vector[first - offset : first - offset + size] * signs[place : place + size]
            start = (place + shift) % self.width
            room = min(self.width - start, size)
            sketch[start : start + room] += piece[:room]
            sketch[: size - room] += piece[room:]
            first += size
        return sketch

    def _chunk(self, chunk: int, device: torch.device) -> tuple[Tensor, int]:
        """The signs of a chunk's coordinates, and its shift."""
        if chunk not in self._drawn:
            raw = np.random.Philox(key=[self.seed, chunk]).random_raw(self.width // 64 + 1)
            self._drawn[chunk] = torch.from_numpy(raw[1:].view(np.uint8).copy()), int(raw[0]) % self.width
        packed, shift = self._drawn[chunk]
        if packed.device != device:
            self._drawn[chunk] = (packed := packed.to(device)), shift
        return self._table[packed.long()].view(-1), shift


def error_bound(width: int, failure: float) -> float:
    """The eps that <Sx, Sy> keeps in all but a share `failure` of the draws: sqrt(2 / (width failure)).

    >>> round(error_bound(2**20, 0.02), 4)
    0.0098
    """
    return math.sqrt(2.0 / (width * failure))
