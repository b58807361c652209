"""Puts the helpers beside this file on the import path, keeps torch to one thread, and shares tiny models."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """`tiny_model(**arguments of make_tiny_model)` -> folder, made once a session for each set of arguments."""
    root = tmp_path_factory.mktemp("tiny_models")
    made: dict[tuple[tuple[str, Any], ...], str] = {}

    def get(**arguments: Any) -> str:
        from tiny_models import make_tiny_model

        key = tuple(sorted(arguments.items()))
        if key not in made:
            made[key] = make_tiny_model(root / str(len(made)), **arguments)
        return made[key]

    return get
