"""Formats of the usual datasets of programming problems: a row becomes the one record of `rolecall.code_problems`."""

from __future__ import annotations

import ast
import base64
import binascii
import builtins
import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rolecall.code_problems import CallTest, CodeProblem, CodeTest, ScriptTest, StdioTest
from rolecall.tasks.rows import brief

Fields = Mapping[str, Any]
MAX_UNPACKED_BYTES = 256 << 20
STDIO_NOTE = "Write a Python program that reads standard input and prints to standard output."
CALL_NOTE = "Write Python code that defines {name}."
START_NOTE = "Begin with this:\n```python\n{code}\n```"


class Read(NamedTuple):
    """What a row says: the question as it is asked, and the problem."""

    question: str
    problem: CodeProblem


class Unreadable(ValueError):
    """A row that is not of its format; the source says where it stands."""


def human_eval(fields: Fields) -> Read:
    """HumanEval and HumanEval+: `prompt`, `entry_point`, `test` with a function `check(candidate)`."""
    prompt, name = _text(fields, "prompt"), _text(fields, "entry_point")
    script = f"{_text(fields, 'test')}\n\ncheck({name})\n"
    question = f"Complete this function. Give the whole function.\n```python\n{prompt.rstrip()}\n```"
    if not name.isidentifier():
        raise Unreadable(f"entry_point is {brief(name)}; wanted the name of a function")
    setup = prompt if _is_python(prompt) else f"{prompt.rstrip()}\n    pass\n"  # without a docstring it has no body
    problem = CodeProblem(
        tests=(ScriptTest(script=script, functions=(name,), setup=setup),),
        prefix=prompt,
        entry_point=name,
        solution=str(fields.get("canonical_solution") or ""),
    )
    return Read(question, problem)


def mbpp(fields: Fields) -> Read:
    """MBPP: `text` (or `prompt`), `code`, `test_list` of assertions, and what they need first. The question shows the
    first assertion, without which nobody knows the function's name."""
    asserts = _loaded(fields.get("test_list"))
    if not isinstance(asserts, list) or not all(isinstance(one, str) for one in asserts) or not asserts:
        raise Unreadable(f"test_list is {brief(asserts)}; wanted a list of assertions")
    imports = _loaded(fields.get("test_imports")) or []
    setup = "\n".join([*imports, str(fields.get("test_setup_code") or "")])
    solution = str(fields.get("code") or "")
    tests = tuple(
        ScriptTest(script=one, functions=called(one, solution, setup), setup=setup) for one in map(str, asserts)
    )
    text = _text(fields, "text" if "text" in fields else "prompt")
    question = f"{text}\nYour code must pass tests such as:\n```python\n{asserts[0]}\n```"
    return Read(question, CodeProblem(tests=tests, solution=solution))


def live_code_bench(fields: Fields) -> Read:
    """LiveCodeBench: public and private tests of the type `stdin` or `functional`; the private ones may be packed."""
    metadata = _loaded(fields.get("metadata")) or {}
    name = str(metadata.get("func_name") or "") if isinstance(metadata, Mapping) else ""
    listed = [*_tests_list(fields, "public_test_cases"), *_tests_list(fields, "private_test_cases")]
    tests = tuple(_case(one, name) for one in listed)
    return _asked(_text(fields, "question_content"), tests, fields)


def apps(fields: Fields) -> Read:
    """APPS and TACO: `input_output` is JSON with `inputs`, `outputs` and, for functions, `fn_name`."""
    return _asked(_text(fields, "question"), read_tests(fields.get("input_output"), ""), fields)


def prime_intellect(fields: Fields) -> Read:
    """PrimeIntellect and DeepCoder: the tests are JSON under `tests`, or under `verification_info`."""
    found = fields["tests"] if "tests" in fields else fields.get("verification_info")
    metadata = _loaded(fields.get("metadata"))
    name = str(metadata.get("func_name") or "") if isinstance(metadata, Mapping) else ""
    return _asked(_text(fields, "problem" if "problem" in fields else "prompt"), read_tests(found, name), fields)


FORMATS: dict[str, Callable[[Fields], Read]] = {
    "human_eval": human_eval,
    "mbpp": mbpp,
    "live_code_bench": live_code_bench,
    "apps": apps,
    "prime_intellect": prime_intellect,
}
_SIGNS = {  # a field that only rows of the format have
    "human_eval": "entry_point",
    "mbpp": "test_list",
    "live_code_bench": "public_test_cases",
    "apps": "input_output",
    "prime_intellect": "tests",
}


def format_of(fields: Fields) -> str:
    """The format of a row, by its fields."""
    for name, sign in _SIGNS.items():
        if sign in fields:
            return name
    if "verification_info" in fields:
        return "prime_intellect"
    raise Unreadable(f"its fields ({', '.join(sorted(fields))}) are of no known format; set format = ...")


def read_tests(value: Any, name: str) -> tuple[CodeTest, ...]:
    """Tests in any of the forms that datasets have: `{inputs, outputs, fn_name?}`, `{test_cases: [...]}` or a list of
    `{input, output, type?, fn_name?}`; each may be JSON in a text."""
    found = _loaded(value)
    if isinstance(found, Mapping) and "test_cases" in found:
        found = _loaded(found["test_cases"])
    if isinstance(found, Mapping) and {"inputs", "outputs"} <= found.keys():
        inputs, outputs = found["inputs"], found["outputs"]
        if not isinstance(inputs, list) or not isinstance(outputs, list):
            raise Unreadable(f"inputs are {brief(inputs)}, outputs {brief(outputs)}; wanted a list of each")
        if len(inputs) != len(outputs):
            raise Unreadable(f"{len(inputs)} inputs and {len(outputs)} outputs; wanted as many of each")
        name = str(found.get("fn_name") or name)
        pairs = zip(inputs, outputs, strict=True)
        return tuple(_case({"input": given, "output": wanted, "fn_name": name}, name) for given, wanted in pairs)
    if not isinstance(found, list):
        raise Unreadable(f"its tests are {brief(found)}; wanted a list of tests, or an object of inputs and outputs")
    return tuple(_case(one, name) for one in found)


def _case(case: Any, name: str) -> CodeTest:
    """One test: of a function where it names one (or its type says so), else of input and output."""
    if not isinstance(case, Mapping) or not {"input", "output"} <= case.keys():
        raise Unreadable(f"a test is {brief(case)}; wanted an object with input and output")
    own = _loaded(case.get("metadata"))
    name = str(case.get("fn_name") or (own.get("func_name") if isinstance(own, Mapping) else "") or name or "")
    kind = str(case.get("testtype") or case.get("type") or ("functional" if name else "stdin"))
    given, wanted = case["input"], case["output"]
    if kind in ("stdin", "stdin_stdout"):
        return StdioTest(stdin=_joined(given), stdout=_joined(wanted))
    if kind not in ("functional", "function_call", "functioncall"):
        raise Unreadable(f"a test is of type {kind!r}; wanted stdin, stdin_stdout, functional or function_call")
    if not name:
        raise Unreadable("a test calls a function and does not name it (fn_name, or func_name in the metadata)")
    if not name.rsplit(".", 1)[-1].isidentifier():
        raise Unreadable(f"a test calls {brief(name)}; wanted the name of a function")
    if isinstance(given, str):
        given = [_json(line) for line in given.split("\n") if line.strip()]
    return CallTest(
        function=name.rsplit(".", 1)[-1],
        arguments=tuple(given) if isinstance(given, list) else (given,),
        expected=_json(wanted) if isinstance(wanted, str) and kind == "functional" and "testtype" in case else wanted,
        wrapped="testtype" not in case,
    )


def _asked(text: str, tests: tuple[CodeTest, ...], fields: Fields) -> Read:
    starter = str(fields.get("starter_code") or "").strip("\n")
    calls = [test.function for test in tests if isinstance(test, CallTest)]
    note = CALL_NOTE.format(name=calls[0]) if calls else STDIO_NOTE
    parts = [text.strip(), note, *([START_NOTE.format(code=starter)] if starter.strip() else [])]
    solutions = _loaded(fields.get("solutions"))
    solution = str(solutions[0]) if isinstance(solutions, list) and solutions else ""
    if not tests:
        raise Unreadable("it has no tests; wanted at least one: leave it out with `where`")
    return Read("\n\n".join(parts), CodeProblem(tests=tests, solution=solution))


def called(script: str, solution: str, setup: str = "") -> tuple[str, ...]:
    """The functions of the program that a test calls: those that the solution defines; without a solution, those that
    are neither built in nor made by the setup."""
    try:
        in_test = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Name)]
        known = _defined(solution)
        made = _defined(setup)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        raise Unreadable(f"{brief(script)} is no Python: {error}") from error
    names = dict.fromkeys(node.id for node in in_test if isinstance(node.ctx, ast.Load))
    found = [n for n in names if n in known] if known else [n for n in names if n not in made and not _built_in(n)]
    if not found:
        raise Unreadable(f"{brief(script)} calls no function of the program")
    return tuple(found)


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def _built_in(name: str) -> bool:
    return hasattr(builtins, name)


def _defined(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Unreadable(f"{name} is {brief(value)}; wanted a text")
    return value


def _joined(value: Any) -> str:
    if value is None or isinstance(value, Mapping):
        raise Unreadable(f"input or output of a test is {brief(value)}; wanted a text, or a list of lines")
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Unreadable(f"{brief(text)} is no JSON value ({error})") from error


def _loaded(value: Any) -> Any:
    """The value of a text that is JSON; anything else as it is."""
    if not isinstance(value, str) or not value.strip():
        return value or None
    try:
        return json.loads(value)
    except ValueError:
        return value


def _tests_list(fields: Fields, name: str) -> list[Any]:
    value = fields.get(name)
    if value is None or value == "":
        return []
    found = _loaded(value)
    if isinstance(found, str):
        found = _loaded(unpack(found))
    if not isinstance(found, list):
        raise Unreadable(f"{name} is {brief(found)}; wanted a list of tests")
    return found


def unpack(packed: str) -> str:
    """LiveCodeBench's packing of private tests: base64 of zlib of a pickled text. Nothing but a text is unpickled."""
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
        found = _TextOnly(io.BytesIO(data)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise Unreadable(f"its packed tests cannot be unpacked ({error})") from error
    return found if isinstance(found, str) else json.dumps(found)


class _TextOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}; wanted a text alone")
