"""Values that cross the wall of a sandbox: built-in types as JSON, and nothing that could run code on the way in.

What JSON has not is an object with one key: `{"tuple": [...]}`, `{"int": "0x..."}`. A dict is `{"dict": [[key, value],
...]}`, so that no dict is taken for one of these. NumPy's scalars cross as Python's, its arrays as `{"array": [dtype,
lists]}`: arrays again inside a sandbox, lists outside, where nothing is imported for them.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from typing import Any

SMALL_INT = 1 << 63
MAX_ITEMS = 1_000_000  # of an iterator, which may have no end
_PLAIN = re.compile(r"[<>|=]?(?:b1|[iufcU][0-9]{1,6})")  # dtypes of booleans, numbers and texts


def dumps(value: object) -> bytes:
    """`value` as bytes; `TypeError` names the type that cannot cross."""
    return json.dumps(_encode(value), separators=(",", ":")).encode()


def loads(data: bytes | str, arrays: bool = False) -> Any:
    """The value that `dumps` wrote; `ValueError` (or `RecursionError`) when the bytes are none of its. With `arrays`,
    NumPy's arrays come back as such."""
    return _decode(json.loads(data), arrays)


def _encode(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -SMALL_INT < value < SMALL_INT else {"int": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[_encode(key), _encode(item)] for key, item in value.items()]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [_encode(item) for item in value]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [_encode(value.real), _encode(value.imag)]}
    if isinstance(value, Iterator | range):
        return {"iter": [_encode(item) for _, item in zip(range(MAX_ITEMS), value, strict=False)]}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray) and _PLAIN.fullmatch(value.dtype.str):
        if isinstance(value, numpy.generic):
            return _encode(value.item())
        return {"array": [value.dtype.str, _encode(value.tolist())]}
    raise TypeError(f"a value of type {type(value).__name__} cannot leave the sandbox")


def _decode(value: Any, arrays: bool) -> Any:
    if isinstance(value, list):
        return [_decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"{len(value)} keys where one names a type")
    ((kind, inner),) = value.items()
    if kind == "dict":
        return {_decode(key, arrays): _decode(item, arrays) for key, item in inner}
    if kind == "int":
        return int(inner, 16)
    if kind == "float":
        return float(inner)
    if kind == "bytes":
        return bytes.fromhex(inner)
    if kind == "complex":
        return complex(*(_decode(part, arrays) for part in inner))
    if kind == "array":
        return _array(inner, arrays)
    makers: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "iter": iter}
    if kind not in makers:
        raise ValueError(f"no type is called {kind!r:.40}")
    return makers[kind](_decode(inner, arrays))


def _array(inner: Any, arrays: bool) -> Any:
    dtype, items = inner
    if not _PLAIN.fullmatch(dtype):
        raise ValueError(f"no array of {dtype!r:.40} crosses")
    found = _decode(items, arrays)
    if not arrays:
        return found
    import numpy

    return numpy.array(found, dtype=dtype)
