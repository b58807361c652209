"""What benchmarks share: figures with their spread, contenders that take turns, and what a run says of its machine."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata, util
from typing import TypedDict

PACKAGES = ("rolecall", "torch", "transformers", "tokenizers", "numpy", "trl", "comlrl", "accelerate")


class Figure(TypedDict):
    """The median over the repeats of one run, with the lowest and the highest."""

    value: float
    low: float
    high: float
    unit: str


def figure(values: Iterable[float], unit: str) -> Figure:
    """
    >>> figure([3.0, 1.0, 2.0], "s")
    {'value': 2.0, 'low': 1.0, 'high': 3.0, 'unit': 's'}
    """
    seen = list(values)
    return {"value": statistics.median(seen), "low": min(seen), "high": max(seen), "unit": unit}


def ratio(top: Sequence[float], bottom: Sequence[float], unit: str = "times") -> Figure:
    """top / bottom repeat by repeat: what was measured side by side is divided side by side.

    >>> ratio([4.0, 9.0], [2.0, 3.0])["value"]
    2.5
    """
    return figure((a / b for a, b in zip(top, bottom, strict=True)), unit)


def take_turns(contenders: Mapping[str, Callable[[], float]], repeats: int, warm_up: int = 1) -> dict[str, list[float]]:
    """What each contender returns, once a repeat, after `warm_up` repeats that do not count. The order is turned
    around from one repeat to the next, so that a machine that slows down or speeds up favours none of them."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(-warm_up, repeats):
        for name in list(contenders)[:: 1 if repeat % 2 else -1]:
            value = contenders[name]()
            if repeat >= 0:
                found[name].append(value)
    return found


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def missing(peers: Mapping[str, str]) -> str | None:
    """What to install, when a peer (module name to requirement) is not there."""
    absent = [requirement for module, requirement in peers.items() if util.find_spec(module) is None]
    return f"pip install {' '.join(absent)}" if absent else None


def machine() -> list[str]:
    """Lines that say where and with what a run was made."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} -")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return [
        f"machine: {processor()}, {os.cpu_count()} cores, load {load:.1f} at the start; {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}",
        f"versions: {', '.join(versions)}",
    ]


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
