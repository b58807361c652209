"""Between Arrow, NumPy and Python by way of buffers: Arrow's own ways import pandas, a quarter of a second."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Column: TypeAlias = Any  # pa.ChunkedArray or pa.Array, which have no types of their own


def integers(column: Column) -> NDArray[np.int64]:
    """A column of whole numbers; what is missing is -1."""
    return _buffer(pc.cast(_filled(column, -1), pa.int64()), np.int64)


def floats(column: Column) -> NDArray[np.float64]:
    """A column of numbers; what is missing is NaN."""
    return _buffer(_filled(pc.cast(column, pa.float64()), math.nan), np.float64)


def truths(column: Column) -> NDArray[np.bool_]:
    """A column of truth values; what is missing is not true."""
    return _buffer(pc.cast(_filled(column, False), pa.uint8()), np.uint8).astype(bool)


def scalar(value: str | int) -> pa.Scalar:
    """A text, or a whole number, to compare a column with."""
    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(np.array([value], np.int64))])[0]
    data = value.encode("utf-8", "replace")
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data))[0]


def _filled(column: Column, value: Any) -> Column:
    """Without what is missing; a scalar made for nothing would import pandas as well."""
    return pc.fill_null(column, value) if column.null_count else column


def _buffer(column: Column, kind: type[Any]) -> NDArray[Any]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = array.buffers()[1]
    if values is None:
        return np.empty(0, kind)
    return np.frombuffer(values, kind)[array.offset : array.offset + len(array)]
