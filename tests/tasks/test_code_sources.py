"""Rows of every format of programming problems, hand-written in the shape of the datasets, become the one record."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from rolecall.code_problems import CallTest, ScriptTest, StdioTest, extract_block, extract_program, read_problem
from rolecall.errors import ConfigError, TaskError
from rolecall.grading import GraderPool
from rolecall.records import GradeStatus, Task
from rolecall.tasks import Code, HumanEval, load_tasks
from rolecall.tasks.code_formats import called, unpack


def tasks(folder: Path, *rows: dict[str, Any], **knobs: Any) -> list[Task]:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return list(Code(path=str(path), **knobs).tasks())


def test_human_eval_has_its_164_problems():
    found = list(HumanEval().tasks())
    assert len(found) == 164
    first = found[0]
    assert (first.id, first.grader, first.answer) == ("human_eval:HumanEval/0", "code", None)
    assert first.question.startswith(
        "Complete this function. Give the whole function.\n```python\nfrom typing import List"
    )
    problem = read_problem(first)
    (test,) = problem.tests
    assert isinstance(test, ScriptTest)
    assert test.functions == ("has_close_elements",)
    assert test.script.endswith("check(has_close_elements)\n")
    splits = load_tasks(HumanEval(), train=100, validation=10, test=10)
    assert [len(one) for one in splits] == [100, 10, 10]


def test_human_eval_plus_rows(tmp_path):
    row = {
        "task_id": "HumanEval/0",
        "prompt": "def f(x):\n    '''x and one'''\n",
        "entry_point": "f",
        "canonical_solution": "    return x + 1\n",
        "test": "def check(candidate):\n    for x, y in [([1], 2)]:\n        assert candidate(*x) == y\n",
    }
    problem = read_problem(tasks(tmp_path, row, id="task_id")[0])
    assert problem.program("    return x + 1\n") == row["prompt"] + "    return x + 1\n"
    assert problem.program("return x + 1") == row["prompt"] + "    return x + 1\n"
    assert problem.program("def f(x):\n    return 2") == row["prompt"] + "\n\ndef f(x):\n    return 2\n"


def test_a_human_eval_prompt_without_a_docstring_has_a_test_that_runs(tmp_path):
    row = {"prompt": "def f(x):\n", "entry_point": "f", "test": "def check(g):\n    assert g(1) == 1\n"}
    (one,) = tasks(tmp_path, row)
    (test,) = read_problem(one).tests
    assert isinstance(test, ScriptTest)
    compile(test.setup, "setup", "exec")
    with GraderPool() as pool:
        right, wrong = pool.grade([("    return x\n", one), ("    return 0\n", one)])
    assert right.right
    assert wrong.status is GradeStatus.WRONG


def test_mbpp_rows(tmp_path):
    row = {
        "task_id": 2,
        "text": "Write a function to find the shared elements.",
        "code": "def helper(a):\n    return set(a)\ndef shared(a, b):\n    return helper(a) & helper(b)",
        "test_list": ["assert shared((1, 2), (2, 3)) == {2}", "assert set(shared((1,), (2,))) == set()"],
        "test_setup_code": "import math",
        "challenge_test_list": [],
    }
    (task,) = tasks(tmp_path, row)
    assert "assert shared((1, 2), (2, 3)) == {2}" in task.question
    first, second = read_problem(task).tests
    assert isinstance(first, ScriptTest)
    assert isinstance(second, ScriptTest)
    assert first.functions == second.functions == ("shared",)
    assert first.setup == "\nimport math" or first.setup == "import math"


def test_names_that_a_test_calls():
    assert called("assert math.floor(f(g(1))) == len([1])", "", "import math") == ("f", "g")
    assert called("assert f(1) == 2", "def f(x): ...\ndef g(x): ...") == ("f",)


def test_apps_and_taco_rows(tmp_path):
    stdio = {
        "problem_id": 1,
        "question": "Add.",
        "input_output": json.dumps({"inputs": ["1 2\n", ["3 4", "x"]], "outputs": ["3\n", ["7", "y"]]}),
        "solutions": json.dumps(["print(sum(map(int, input().split())))"]),
        "starter_code": "",
        "difficulty": "introductory",
    }
    call = {
        "question": "Add.",
        "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}),
        "starter_code": "def add(a, b):",
    }
    one, two = tasks(tmp_path, stdio, call)
    problem = read_problem(one)
    assert problem.tests == (StdioTest(stdin="1 2\n", stdout="3\n"), StdioTest(stdin="3 4\nx", stdout="7\ny"))
    assert problem.solution.startswith("print(")
    assert one.metadata["difficulty"] == "introductory"
    assert "standard input" in one.question
    assert read_problem(two).tests == (CallTest(function="add", arguments=(1, 2), expected=[3], wrapped=True),)
    assert "```python\ndef add(a, b):\n```" in two.question


def test_prime_intellect_and_deepcoder_rows(tmp_path):
    cases = [{"type": "stdin_stdout", "input": "1\n", "output": "2\n"}]
    functional = {"input": "[1]", "output": "2", "testtype": "functional", "metadata": {"func_name": "f"}}
    rows = [
        {"problem": "Plus one.", "tests": json.dumps(cases), "solutions": ["x"]},
        {"prompt": "Plus one.", "verification_info": json.dumps({"language": "python", "test_cases": cases})},
        {"problem": "P", "tests": json.dumps([{"type": "function_call", "fn_name": "f", "input": [1], "output": [2]}])},
        {"problem": "P", "tests": json.dumps({"inputs": ["1"], "outputs": ["2"]})},
        {"problem": "P", "tests": json.dumps([functional])},
    ]
    found = [read_problem(task).tests for task in tasks(tmp_path, *rows)]
    assert found[0] == found[1] == (StdioTest(stdin="1\n", stdout="2\n"),)
    assert found[2] == (CallTest(function="f", arguments=(1,), expected=[2], wrapped=True),)
    assert found[3] == (StdioTest(stdin="1", stdout="2"),)
    assert found[4] == (CallTest(function="f", arguments=([1],), expected=2),)


def test_live_code_bench_rows(tmp_path):
    private = [{"input": "[1, 2]\n3", "output": "[3]", "testtype": "functional"}]
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(private)))).decode()
    rows = [
        {
            "question_id": "abc_a",
            "question_content": "Add.",
            "platform": "atcoder",
            "starter_code": "",
            "public_test_cases": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}]),
            "private_test_cases": json.dumps([{"input": "2 2", "output": "4", "testtype": "stdin"}]),
            "metadata": "{}",
        },
        {
            "question_id": "3001",
            "question_content": "Add.",
            "starter_code": "class Solution:\n    def add(self, a, b):",
            "public_test_cases": json.dumps([{"input": "[1]\n2", "output": "[2]", "testtype": "functional"}]),
            "private_test_cases": packed,
            "metadata": json.dumps({"func_name": "add"}),
        },
    ]
    one, two = tasks(tmp_path, *rows, id="question_id")
    assert one.id.endswith(":abc_a")
    assert [test.stdout for test in read_problem(one).tests if isinstance(test, StdioTest)] == ["3", "4"]
    assert read_problem(two).tests == (
        CallTest(function="add", arguments=([1], 2), expected=[2]),
        CallTest(function="add", arguments=([1, 2], 3), expected=[3]),
    )


def test_packed_tests_unpickle_nothing_but_a_text():
    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return eval, ("1",)

    packed = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(ValueError, match=r"builtins\.eval; wanted a text alone"):
        unpack(packed)


def test_knobs_of_a_source(tmp_path):
    row = {"problem": "P", "tests": json.dumps({"inputs": ["1", "2", "3"], "outputs": ["1", "2", "3"]})}
    (task,) = tasks(tmp_path, row, max_tests=2, limits={"cpu_s": 1.5}, grader="code_partial")
    problem = read_problem(task)
    assert (len(problem.tests), dict(problem.limits), task.grader) == (2, {"cpu_s": 1.5}, "code_partial")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"x": 1}, "line 1: its fields .x. are of no known format"),
        ({"problem": "P", "tests": "[]"}, "it has no tests"),
        ({"problem": "P", "tests": '{"inputs": [1], "outputs": []}'}, "1 inputs and 0 outputs"),
        ({"problem": "P", "tests": '[{"input": "1"}]'}, "wanted an object with input and output"),
        ({"problem": "P", "tests": '[{"input": "1", "output": "1", "type": "magic"}]'}, "of type 'magic'"),
        ({"problem": "", "tests": '[{"input": "1", "output": "1"}]'}, "problem is ''"),
        ({"question": "Q", "input_output": '{"inputs": [[1]], "outputs": [1], "fn_name": null}'}, ""),
        ({"text": "T", "test_list": []}, "wanted a list of assertions"),
        ({"text": "T", "test_list": ["assert f("], "code": ""}, "is no Python"),
        ({"text": "T", "test_list": ["assert f(1)"], "code": "x = '\0'"}, "is no Python"),
        ({"question": "Q", "input_output": {"inputs": [[1]], "outputs": [1], "fn_name": 5}}, "calls '5'"),
        ({"question": "Q", "input_output": {"inputs": [None], "outputs": ["1"]}}, "is None"),
        ({"question": "Q", "input_output": {"inputs": "1", "outputs": "1"}}, "wanted a list of each"),
        ({"prompt": "def f():", "entry_point": "f()", "test": "x"}, "wanted the name of a function"),
    ],
)
def test_a_row_that_cannot_be_read_is_an_error_with_its_place(tmp_path, row, message):
    if not message:
        assert tasks(tmp_path, row)
        return
    with pytest.raises(TaskError, match=message):
        tasks(tmp_path, row)


def test_knobs_that_cannot_be():
    for knobs, message in (
        ({"format": "mbbp"}, "did you mean 'mbpp'"),
        ({"grader": "math"}, "wanted code or code_partial"),
        ({"question": "text"}, "leave it"),
        ({"limits": {"cpus": 1}}, "'cpus'"),
        ({"limits": {"cpu_s": "a"}}, "limit cpu_s of the sandbox is 'a'; wanted a number"),
        ({"limits": {"cpu_s": float("nan")}}, "limit cpu_s of the sandbox is nan"),
        ({"limits": {"cpu_s": -1.0}}, "limit cpu_s of the sandbox is -1.0; wanted at least"),
        ({"limits": {"threads": 1.5}}, "limit threads of the sandbox is 1.5; wanted a number without a fraction"),
        ({"limits": {"memory_mib": 1e30}}, "limit memory_mib"),
        ({"max_tests": -1}, "max_tests is -1"),
    ):
        with pytest.raises((TaskError, ConfigError), match=message):
            Code(path="x.jsonl", **knobs)


def test_a_task_without_a_problem_is_an_error():
    with pytest.raises(TaskError, match="has no tests under metadata"):
        read_problem(Task(id="t", question="?", answer=None, grader="code"))


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("```Python3\nx = 1\n```", "x = 1"),
        ("a\n```py\nx = 1\n```\nb\n```python\ny = 2\n```\nc", "y = 2"),
        ("```python\nx = 1\n```\nIt prints:\n```\n1\n```", "x = 1"),
        ("```\nx = 1\n```", "x = 1"),
        ("```python\nx = 1", "x = 1"),
        ("```python\nx = 1\n```python\ny = 2\n```", "y = 2"),
        ("~~~python\nx = '```'\n~~~", "x = '```'"),
        ("````python\nx = 1\n```\ny = 2\n````", "x = 1\n```\ny = 2"),
        ("```bash\nls\n```", None),
        ("```json\n{}\n```", None),
        ("```python\n\n```\n", None),
        ("1. Like this:\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1"),
        ("x = 1\nprint(x)", "x = 1\nprint(x)"),
        ("Here it is:\n\ndef f():\n    return 1\n\nI hope it helps!", "def f():\n    return 1"),
        ("    return 1\n", "    return 1\n"),
        ("I do not know the answer.", None),
        ("", None),
        (None, None),
        ("```python\r\nx = 1\r\n```\r\n", "x = 1"),
    ],
)
def test_programs_are_found_in_completions(text, program):
    assert extract_program(text) == program


def test_blocks_of_a_tool():
    assert extract_block("```run\nprint(1)\n```", "run") == "print(1)"
    assert extract_block("```python\nprint(1)\n```", "run") is None
    assert extract_program("```run\nprint(1)\n```") is None


@pytest.mark.parametrize(
    "text", ["(" * 100_000, "```" * 30_000, "```python\n" * 20_000, "def f():\n" * 5_000, "x" * 10**6]
)
def test_hostile_completions_are_read_quickly(text):
    extract_program(text)
