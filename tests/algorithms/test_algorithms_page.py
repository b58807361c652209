"""The page about algorithms says what the code does."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import fields
from pathlib import Path

import pytest

import rolecall
from rolecall.algorithms import ALGORITHMS, Loss, make_algorithm
from rolecall.credit import ESTIMATORS, PEERS
from rolecall.rewards import MARKS, REWARDS
from rolecall.testing_credit import check_algorithm, check_reward, made_step

PAGE = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()


@pytest.fixture
def example():
    """The page's own module, importable by the name that the page gives it."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "my_algorithm.py" in block)
    module = types.ModuleType("my_algorithm")
    sys.modules["my_algorithm"] = module
    exec(code, module.__dict__)
    yield module
    del sys.modules["my_algorithm"]


@pytest.mark.parametrize("name", [*ALGORITHMS, *PEERS, *ESTIMATORS, *REWARDS, *MARKS])
def test_every_name_has_a_row_on_the_page(name):
    assert re.search(rf"^\| `{name}` \|", PAGE, re.M)


@pytest.mark.parametrize("name", [field.name for field in fields(Loss)])
def test_every_setting_of_the_loss_has_a_row_with_its_default(name):
    row = re.search(rf"^\| (.*`{name}`.*?) \| (.*?) \|", PAGE, re.M)
    assert row is not None
    default = dict(zip(re.findall(r"`(\w+)`", row[1]), row[2].split(", "), strict=False))[name]
    value = getattr(Loss(), name)
    assert default.strip("`").startswith("none" if value in (None, {}) else str(value).lower().removesuffix(".0")), name


def test_every_file_and_function_that_the_page_names_is_there():
    source = Path(rolecall.__file__).parent
    for path in re.findall(r"`((?:rewards|credit|learner|algorithms|rollout)/\w+\.py)`", PAGE):
        assert (source / path).exists(), path
    for path, function in re.findall(r"`(learner/\w+\.py)`: `(\w+)`", PAGE):
        assert f"def {function}(" in (source / path).read_text(), function


def test_every_metric_of_a_step_is_on_the_page():
    metrics = make_algorithm("agent_grpo", {"balance_verdicts": True}).advantages(made_step()).metrics
    roles = ("solver", "verifier", "corrector")
    parts = {"correct", *MARKS}
    for key in metrics:
        for role in roles:
            key = key.replace(f"/{role}/", "/<role>/")
        area, *_, last = key.split("/")
        if area == "reward" and last in parts:
            continue
        assert f"`{key}`" in PAGE, key


def test_the_pages_own_algorithm_runs_and_has_no_complaints(example):
    made = make_algorithm("my_algorithm:brief_team", {"weight": 0.2, "n": 4})
    assert (made.sampler.n, made.reward.weights["brevity"]) == (4, 0.2)
    assert check_reward(example.Brevity()) == []
    assert check_algorithm(made) == []


def test_the_pages_first_configuration_is_accepted():
    import tomllib

    (text,) = (block for block in re.findall(r"```toml\n(.*?)```", PAGE, re.S) if "dr_mas" in block)
    settings = tomllib.loads(text)["algorithm"]
    made = make_algorithm(settings.pop("name"), settings)
    assert made.loss.kl_coef == 0.001
