"""Programming problems with tests: one record for every format, and the program that a completion holds.

A problem travels in its task's metadata under `code`, as plain data: `Task(..., grader="code", metadata={"code":
problem.record()})`. `read_problem(task)` has it back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rolecall.errors import TaskError
from rolecall.records import Task

CODE_GRADERS = ("code", "code_partial")
MAX_PARSED_CHARS = 50_000  # a longer text without fences is taken as it is
PYTHON_TAGS = frozenset({"python", "py", "python3", "py3", "python 3"})


@dataclass(frozen=True, kw_only=True, slots=True)
class StdioTest:
    """The program reads `stdin` and prints `stdout`; white space at the ends of lines does not count.

    >>> StdioTest(stdin="1 2", stdout="3").kind
    'stdio'
    """

    stdin: str
    stdout: str
    kind: str = "stdio"


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTest:
    """`function(*arguments)`, a function of the program or a method of its class `Solution`, gives `expected`;
    where it is `wrapped`, the one item of a list `expected` will do.

    >>> CallTest(function="add", arguments=(1, 2), expected=3).kind
    'call'
    """

    function: str
    arguments: tuple[Any, ...]
    expected: Any
    wrapped: bool = False
    kind: str = "call"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptTest:
    """Python that raises when the program is wrong. It runs apart from the program, after `setup`; the names in
    `functions` call the program's functions.

    >>> ScriptTest(script="assert add(1, 2) == 3", functions=("add",)).kind
    'script'
    """

    script: str
    functions: tuple[str, ...]
    setup: str = ""
    kind: str = "script"


CodeTest = StdioTest | CallTest | ScriptTest
_KINDS: dict[str, type[StdioTest] | type[CallTest] | type[ScriptTest]] = {
    "stdio": StdioTest,
    "call": CallTest,
    "script": ScriptTest,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeProblem:
    """Tests, in the order in which they are tried, and what is put before the program (`prefix`).

    With an `entry_point`, an answer that does not define it is the rest of the prefix, as in HumanEval. `limits` are
    those of `sandbox.Limits` that the problem sets, by name. `tolerance` is how far numbers may be off, relative or
    absolute.
    """

    tests: tuple[CodeTest, ...]
    prefix: str = ""
    entry_point: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 1e-6
    solution: str = ""

    def __post_init__(self) -> None:
        if not self.tests:
            raise TaskError("a code problem has no tests; wanted at least one: leave such rows out")

    def record(self) -> dict[str, Any]:
        """Plain data, for a task's metadata."""
        return {
            "tests": [asdict(test) for test in self.tests],
            "prefix": self.prefix,
            "entry_point": self.entry_point,
            "limits": dict(self.limits),
            "tolerance": self.tolerance,
            "solution": self.solution,
        }

    def program(self, answer: str) -> str:
        """The source that is run: `answer` with what belongs before it."""
        if not self.prefix:
            return answer
        if self.entry_point and not defines(answer, self.entry_point):
            return self.prefix + _indented(answer)
        return f"{self.prefix}\n\n{answer}\n"


def read_problem(task: Task) -> CodeProblem:
    """The problem in a task's metadata; `TaskError` when there is none."""
    found = task.metadata.get("code")
    if not isinstance(found, Mapping) or not isinstance(found.get("tests"), list | tuple):
        raise TaskError(
            f"task {task.id!r} has no tests under metadata['code'], which grader {task.grader!r} runs; use a source of "
            f"code problems (tasks.name = 'code' or 'human_eval'), or another grader"
        )
    fields = dict(found)
    try:
        tests = tuple(_read_test(dict(test)) for test in fields.pop("tests"))
        return CodeProblem(tests=tests, **fields)
    except (TypeError, KeyError) as error:
        raise TaskError(f"task {task.id!r}: metadata['code'] is no code problem ({error})") from error


def _read_test(fields: dict[str, Any]) -> CodeTest:
    for name in ("arguments", "functions"):
        if name in fields:
            fields[name] = tuple(fields[name])
    return _KINDS[fields["kind"]](**fields)


def defines(source: str, name: str) -> bool:
    """Whether `source` defines a function, class or variable `name` at its outer level, by its text."""
    escaped = re.escape(name)
    pattern = rf"^(?:async\s+def|def|class)\s+{escaped}\b|^{escaped}\s*(?::[^=\n]+)?=(?!=)|^class\s+Solution\b"
    return re.search(pattern, source, re.MULTILINE) is not None


def _indented(body: str) -> str:
    """A function's body with the indentation that a body needs."""
    lines = body.strip("\n").split("\n")
    first = next((line for line in lines if line.strip()), "")
    if first[:1] in (" ", "\t"):
        return "\n".join(lines) + "\n"
    return "\n".join(f"    {line}" if line.strip() else line for line in lines) + "\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    tag: str
    text: str


_FENCE = re.compile(r"^[ \t]*+(?P<fence>`{3,}+|~{3,}+)(?P<tag>[^`\n]*+)$")  # possessive: each letter is read once


def extract_program(text: str | None) -> str | None:
    """The program in a completion, or None.

    The last fenced block that is tagged as Python and not empty; else the last one without a tag. A block that is not
    closed ends with the text. Without fences: the whole text when it is Python, or its lines from the first to the last
    that are, so that prose around a program is left out.

    >>> extract_program("First:\\n```python\\nx = 1\\n```\\nBetter:\\n```py\\nprint(2)\\n```\\nDone.")
    'print(2)'
    """
    if text is None or not text.strip():
        return None
    blocks = [block for block in _blocks(text) if block.text.strip()]
    if blocks or _has_fence(text):
        for wanted in (PYTHON_TAGS, frozenset({""})):
            found = [block.text for block in blocks if block.tag in wanted]
            if found:
                return _dedent(found[-1])
        return None
    return _unfenced(text)


def extract_block(text: str | None, tag: str) -> str | None:
    """The last fenced block with `tag`, when it is not empty."""
    found = [block.text for block in _blocks(text or "") if block.tag == tag and block.text.strip()]
    return found[-1] if found else None


def _has_fence(text: str) -> bool:
    return any(_FENCE.match(line) for line in text.split("\n"))


def _blocks(text: str) -> list[_Block]:
    blocks: list[_Block] = []
    inside: list[str] | None = None
    fence = tag = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        found = _FENCE.match(line)
        said = found["tag"].strip(" \t") if found is not None else ""
        if inside is None:
            if found is not None:
                fence, tag, inside = found["fence"], said.strip("{}. ").casefold(), []
        elif found is not None and not said and found["fence"].startswith(fence):
            blocks.append(_Block(tag=tag, text="\n".join(inside)))
            inside = None
        elif found is not None and said.casefold() in PYTHON_TAGS:  # the one before was never closed
            blocks.append(_Block(tag=tag, text="\n".join(inside)))
            fence, tag, inside = found["fence"], said.casefold(), []
        else:
            inside.append(line)
    if inside is not None:
        blocks.append(_Block(tag=tag, text="\n".join(inside)))
    return blocks


def _dedent(text: str) -> str:
    """A block inside a list is indented as a whole; a body of a function alone keeps its indentation."""
    lines = text.strip("\n").split("\n")
    if lines and re.match(r"[ \t]+(?:def|class|import|from|@)\b", lines[0]):
        width = len(lines[0]) - len(lines[0].lstrip())
        if all(not line.strip() or not line[:width].strip() for line in lines):
            return "\n".join(line[width:] for line in lines)
    return "\n".join(lines)


def _unfenced(text: str) -> str | None:
    if len(text) > MAX_PARSED_CHARS or _parses(text) or _parses(f"def f():\n{_indented(text)}"):
        return text
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if re.match(r"(?:from|import|def|async def|class|@)\b", line)]
    for start in starts[:3]:
        ends = [i for i in range(len(lines), start, -1) if i == len(lines) or not lines[i].startswith((" ", "\t"))]
        for end in ends[:60]:
            if _parses("\n".join(lines[start:end])):
                return "\n".join(lines[start:end]).strip("\n")
    return None


def _parses(text: str) -> bool:
    try:
        return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
