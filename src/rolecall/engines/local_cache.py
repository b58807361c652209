"""The key-value cache of the local engine: rows side by side, right-aligned to one write column.

A row of length n occupies columns [write - n, write), so that one slice assignment appends a token to every row, rows
of any length can join at any time, and the distance of two columns is the distance of two positions in every row.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

COLUMN_BLOCK = 64


class ColumnLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer: [row capacity, heads, column capacity, head size], made at the first write."""

    is_sliding = False

    def __init__(self, owner: ColumnCache) -> None:
        super().__init__()
        self.reference = weakref.ref(owner)  # a cycle would keep a dropped cache until the collector comes

    @property
    def owner(self) -> ColumnCache:
        owner = self.reference()
        assert owner is not None
        return owner

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self.owner.allocate(key_states)
        self.values = self.owner.allocate(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, low, write = key_states.shape[0], self.owner.low, self.owner.write
        end = write + key_states.shape[2]
        self.keys[:rows, :, write:end] = key_states
        self.values[:rows, :, write:end] = value_states
        return self.keys[:rows, :, low:end], self.values[:rows, :, low:end]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        num = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.owner.write - self.owner.low + num, 0

    def get_seq_length(self) -> int:
        return self.owner.write - self.owner.low

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.20


class ColumnCache(Cache):  # type: ignore[misc]
    """All layers of one batch. `low` is the first column that any row uses, `write` the column written next."""

    def __init__(self, *, rows: int, columns: int, write: int = 0) -> None:
        super().__init__(layers=[])
        self.rows = rows
        self.columns = -(-columns // COLUMN_BLOCK) * COLUMN_BLOCK
        self.low = 0
        self.write = write

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        """Zeros, not garbage: a masked column has weight 0, and 0 times NaN is NaN."""
        return like.new_zeros(self.rows, like.shape[1], self.columns, like.shape[3])

    def layer(self, index: int) -> ColumnLayer:
        while len(self.layers) <= index:
            self.layers.append(ColumnLayer(self))
        layer: ColumnLayer = self.layers[index]
        return layer

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(layer_idx).update(key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.write - self.low

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self.write - self.low

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        num = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.write - self.low + num, 0

    def reserve(self, *, rows: int, columns: int, used_rows: int, shift: int = 0) -> None:
        """Room for `rows` and `columns`, with the columns in use moved by `shift` (negative: to the left)."""
        low, write = self.low, self.write
        if rows <= self.rows and columns <= self.columns and shift == 0:
            return
        self.rows = max(self.rows, rows)
        if columns > self.columns:
            self.columns = -(-columns // COLUMN_BLOCK) * COLUMN_BLOCK
        for layer in self.layers:
            for name in ("keys", "values"):
                old = getattr(layer, name)
                new = self.allocate(old)
                new[:used_rows, :, low + shift : write + shift] = old[:used_rows, :, low:write]
                setattr(layer, name, new)
        self.low, self.write = low + shift, write + shift

    def move(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy whole rows `source` over rows `target` (compaction)."""
        for layer in self.layers:
            for rows in (layer.keys, layer.values):
                rows[target, :, self.low : self.write] = rows[source, :, self.low : self.write]

    def adopt(self, other: ColumnCache, source: torch.Tensor, first: int) -> None:
        """Rows `source` of `other`, right-aligned to its own write column, become rows [first, first + n) of this."""
        stop = first + len(source)
        for index, theirs in enumerate(other.layers):
            ours = self.layer(index)
            if not ours.is_initialized:
                ours.lazy_initialization(theirs.keys, theirs.values)
            for name in ("keys", "values"):
                rows = getattr(theirs, name)[source, :, other.low : other.write]
                getattr(ours, name)[first:stop, :, self.write - rows.shape[2] : self.write] = rows
