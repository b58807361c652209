"""The import graph of the design, enforced: no circles, and torch, vLLM and Ray only where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "rolecall"

LAYERS: dict[str, int] = {
    "records": 0,
    "errors": 0,
    "files": 0,
    "allocator": 0,
    "intervals": 0,
    "report": 1,
    "viewer": 1,
    "registry": 1,
    "code_problems": 1,
    "sandbox": 1,
    "tasks": 2,
    "grading": 2,
    "engines": 2,
    "workflows": 3,
    "rollout": 4,
    "testing": 9,
    "rewards": 5,
    "credit": 6,
    "pipeline": 6,
    "algorithms": 7,
    "testing_credit": 8,
    "dynamics": 8,
    "interventions": 8,
    "learner": 9,
    "policies": 10,
    "config": 11,
    "progress": 11,
    "assemble": 12,
    "evaluate": 12,
    "evaluate_system": 13,
    "run_folder": 12,
    "context_limit": 13,
    "dry_run": 14,
    "simulation": 13,
    "inflight": 13,
    "notes": 13,
    "partners": 13,
    "run_episodes": 13,
    "run_state": 13,
    "run_setup": 13,
    "trackers": 13,
    "serving": 14,
    "sources": 14,
    "cliff_guard": 14,
    "run": 15,
    "summary": 16,
    "train": 17,
    "evaluate_run": 17,
    "debugging": 18,
    "matrix": 18,
    "commands_debug": 19,
    "commands_evaluate": 19,
    "commands_matrix": 19,
    "commands_report": 19,
    "commands_signs": 19,
    "commands_simulate": 19,
    "commands_tasks": 19,
    "commands_view": 19,
    "cli": 20,
    "cell_process": 21,
}
"""A room may import rooms of lower layers, and itself."""

TORCH_ROOMS = (
    "learner/",
    "policies/",
    "engines/local",
    "dynamics/role_gradients",
    "dynamics/sketch",
    "dynamics/update_watch",
    "dry_run",
)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative imports hide where a name comes from"
            yield node.module or ""


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_module_imports_lower_rooms_only(path):
    mine = room(path)
    if mine in ("__init__", "models"):
        return
    assert mine in LAYERS, f"the room {mine!r} has no layer; add it to LAYERS"
    for name in imported(path):
        if name.startswith("rolecall."):
            other = name.split(".")[1]
            assert other == mine or LAYERS[other] < LAYERS[mine], f"{mine} imports {other}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_torch_is_imported_only_where_tensors_are(path):
    relative = str(path.relative_to(SOURCE))
    names = {name.split(".")[0] for name in imported(path)}
    if not relative.startswith(TORCH_ROOMS):
        assert not names & {"torch", "peft", "safetensors"}, relative
    assert not names & {"vllm", "ray"}, relative


def test_workflows_rewards_and_credit_load_without_torch():
    code = (
        "import rolecall.algorithms, rolecall.workflows, rolecall.grading, rolecall.tasks, rolecall.testing, sys;"
        "heavy = {'torch', 'transformers', 'sympy', 'math_verify', 'reasoning_gym', 'datasets'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
