"""The README's own code and recipe work as printed."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from rolecall.assemble import make_plan
from rolecall.config import load_config
from rolecall.records import Task
from rolecall.testing import check_workflow
from rolecall.workflows import load_workflow

ROOT = Path(__file__).resolve().parents[2]


def blocks(language: str, name: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)


@pytest.fixture
def user_folder(tmp_path, monkeypatch):
    (tmp_path / "my_workflow.py").write_text(blocks("python")[0])
    recipe = blocks("toml")[0].replace("path/to/a/model", "builtin:tiny")
    (tmp_path / "my_recipe.toml").write_text(recipe)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_workflow", None)


def test_the_workflow_of_the_readme_passes_the_check(user_folder):
    importlib.invalidate_caches()
    check_workflow(load_workflow("my_workflow:WriteAndJudge"), [Task(id="t", question="2+2", answer="4")])


def test_the_recipe_of_the_readme_makes_two_policies(user_folder):
    plan = make_plan(load_config(user_folder / "my_recipe.toml"))
    assert dict(plan.table.roles) == {"writer": "writer", "judge": "judge"}
    assert plan.table.train_roles == ("writer",)


def test_every_file_and_folder_that_the_readme_names_exists():
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"`((?:src|recipes|examples|docs|tests|benchmarks)/[\w/.]*)`|\]\(((?!http)[\w/.]+)\)", text):
        path = name[0] or name[1]
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.name)
def test_every_recipe_resolves(recipe):
    assert make_plan(load_config(recipe)).roles
